"""Charts: what each form shows, what stands where there is no number, and that both drawers draw any of them."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import pytest
from depth import examples
from hypothesis import HealthCheck, given
from made_up import absent, figure_of, figures_of
from made_up_charts import RUN, bars_chart, chart, lines_chart, point, ratios_chart
from shapes import charts

from deepstone.errors import UsageError
from deepstone.report.bar_places import bars_scale, words_behind
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.chart import chart as chart_figure
from deepstone.report.html.bars import bars_plot
from deepstone.report.html.plot import Box, Dot, Path, Whisker
from deepstone.report.html.points import lines_plot
from deepstone.report.page import render_result
from deepstone.report.panels import BarChart, LineChart
from deepstone.report.scales import ratio_scale, titled
from deepstone.report.static import draw_static
from deepstone.report.wording import table_text
from deepstone.results.codec import as_chart

FORMS = ("bars", "lines", "ratios")

WRONG_INTERVAL = {"median": 1, "low": 2, "high": 3, "n": 1}


def drawn(result: dict[str, Any]) -> Figure:
    return figure_of(result, None)


def bars_in(result: dict[str, Any]) -> BarChart:
    panel = drawn(result).panels[0]
    assert isinstance(panel, BarChart)
    return panel


def curves_in(result: dict[str, Any]) -> LineChart:
    panel = drawn(result).panels[0]
    assert isinstance(panel, LineChart)
    return panel


def words_in(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


class TestBars:
    def test_a_row_for_each_place_and_a_bar_for_each_series(self) -> None:
        bars = bars_in(bars_chart())
        assert [row.label for row in bars.rows] == ["torch", "jax", "tensorflow"]
        lengths = [[part.value.middle for bar in row.bars for part in bar] for row in bars.rows]
        assert lengths == [[900, 30, 20], [1200], [25]]

    def test_what_is_published_is_named_and_hollow(self) -> None:
        bars = bars_in(bars_chart())
        assert [(series.name, series.published) for series in bars.series] == [
            ("NVIDIA H200", False),
            ("2 cores", False),
            ("K40, published", True),
        ]
        bar = bars_plot(bars).drawing.groups[2][0]
        assert isinstance(bar, Box)
        assert bar.style == "hatched"
        assert bars_plot(bars).keys[2][0].hollow

    def test_a_gap_tells_its_reason_where_the_bar_would_be(self) -> None:
        gap = next(place for place in words_behind(bars_in(bars_chart())) if place.gap)
        assert gap.text == "2 cores: oom: 12 GiB wanted, 8 GiB there"
        assert gap.start == 0
        assert "oom: 12 GiB wanted" in " ".join(words_in(draw_static(drawn(bars_chart()), "svg")))

    def test_doubts_are_marked_and_named(self) -> None:
        figure = drawn(bars_chart())
        bars = figure.panels[0]
        assert isinstance(bars, BarChart)
        assert bars.rows[1].bar_labels[0].text == "1,200 †"
        assert figure.doubts == ("throttling: the device slowed itself down for heat or power (1 of these numbers)",)
        assert any(line.startswith("†") for line in figure.caption)

    def test_who_points_at_a_bar_learns_setup_interval_n_doubts_and_runs(self) -> None:
        result = bars_chart()
        result["series"][0]["points"][0]["doubts"] = ["trend"]
        figure = chart_figure(as_chart(result), {RUN: "alexnet-kim · batch 128 · nhwc"})
        panel = figure.panels[0]
        assert isinstance(panel, BarChart)
        bar = bars_plot(panel).drawing.groups[0][0]
        assert isinstance(bar, Box)
        told = "\n".join(bar.told)
        for words in ("900 images/s (864 images/s – 954 images/s)", "batch 128 · nhwc", "n = 3", "trend", RUN):
            assert words in told

    def test_on_a_logarithmic_axis_ends_are_points(self) -> None:
        result = bars_chart()
        result["y"]["scale"] = "log"
        plot = bars_plot(bars_in(result))
        assert not any(isinstance(mark, Box) for group in plot.drawing.groups for mark in group)
        assert plot.drawing.x.log

    def test_every_number_is_in_the_table_with_its_runs(self) -> None:
        table = drawn(bars_chart()).table
        assert table.headings == ("series", "framework", "doubts", "speed", "95 % interval", "n")
        rows = table_text(table)
        assert rows[0] == ("NVIDIA H200", "torch", "", "900 images/s", "864 images/s – 954 images/s", "3")
        assert table.runs[0] == (RUN,)
        assert rows[-1][:3] == ("2 cores", "jax", "no number: oom: 12 GiB wanted, 8 GiB there")


class TestLines:
    def test_stops_lie_in_order_and_holes_at_the_foot(self) -> None:
        result = lines_chart()
        result["series"][0]["points"].reverse()
        curves = curves_in(result)
        assert [stop.x for stop in curves.curves[0].points] == [1, 2, 4, 8, 16, 32]
        assert curves.curves[0].gaps == ((64, "oom: no memory left"),)
        assert curves.curves[1].gaps == ()  # a published curve has none
        hole = lines_plot(curves).drawing.groups[2][0]
        assert isinstance(hole, Dot)
        assert hole.x == 64
        assert any("oom" in line for line in hole.told)

    def test_few_intervals_are_whiskers_and_many_a_band(self) -> None:
        few, many = (lines_plot(curves_in(lines_chart(points))) for points in (6, 12))
        assert sum(isinstance(mark, Whisker) for mark in few.drawing.groups[1]) == 6
        assert few.drawing.groups[0] == ()
        assert not any(isinstance(mark, Whisker) for mark in many.drawing.groups[1])
        (band,) = many.drawing.groups[0]
        assert isinstance(band, Path)
        assert len(band.points) == 24

    def test_published_lines_are_dashed_and_share_the_colour(self) -> None:
        curves = curves_in(lines_chart())
        measured, published = (curve.series for curve in curves.curves)
        assert published.name == "nchw, published"
        assert published.colour == measured.colour
        plot = lines_plot(curves)
        marks = [mark for place in plot.keys[1][1] for mark in plot.drawing.groups[place]]
        assert all(mark.dashed for mark in marks if isinstance(mark, Path))
        dots = [mark for mark in marks if isinstance(mark, Dot)]
        assert dots
        assert all(dot.symbol == "diamond" and dot.hollow for dot in dots)

    def test_ticks_stand_at_the_sizes_that_were_measured(self) -> None:
        ruler = lines_plot(curves_in(lines_chart())).drawing.x
        assert ruler.texts == tuple((text,) for text in ("1", "2", "4", "8", "16", "32", "64"))
        assert ruler.log

    def test_names_along_x(self) -> None:
        result = chart("lines", x={"label": "layout", "scale": "category"}, gaps=[])
        result["series"] = [{"name": "a", "points": [point("nchw", 1.0), point("nhwc", 2.0)]}]
        curves = curves_in(result)
        assert curves.names == ("nchw", "nhwc")
        assert [stop.x for stop in curves.curves[0].points] == [0, 1]


class TestRatios:
    def test_points_on_a_logarithmic_axis_around_1(self) -> None:
        bars = bars_in(ratios_chart())
        assert bars.reference == 1
        assert bars.axis.log
        scale = bars_scale(bars)
        assert scale.low < 0.55 * 0.96
        assert scale.high > 2.1 * 1.06
        assert 1.0 in scale.ticks

    def test_the_number_stands_beside_its_point(self) -> None:
        assert [place.text for place in words_behind(bars_in(ratios_chart()))] == [
            "1.40×",
            "2.10×",
            "0.550×",
        ]

    def test_a_ratio_of_nothing_is_a_gap(self) -> None:
        result = ratios_chart()
        result["series"][0]["points"][2]["y"] = 0
        assert any(place.gap for place in words_behind(bars_in(result)))

    @pytest.mark.parametrize("values", [[1.0], [0.99, 1.01], [0.5, 2], [0.01, 3000], [1e-9, 1e9]])
    def test_every_scale_of_ratios_has_ticks_within_it(self, values: list[float]) -> None:
        scale = ratio_scale(values)
        assert 3 <= len(scale.ticks) <= 13
        assert all(scale.low <= at * (1 + 1e-9) and at <= scale.high * (1 + 1e-9) for at in scale.ticks)
        assert len(set(scale.ticks.values())) == len(scale.ticks)


@pytest.mark.parametrize("form", FORMS)
class TestEveryForm:
    def test_svg_and_html_hold_the_words(self, form: str) -> None:
        result = chart(form)
        words = words_in(draw_static(drawn(result), "svg"))
        page = render_result(figures_of(result, None)).decode()
        for text in (result["title"], result["subtitle"], result["caption"][0]):
            assert text in " ".join(words)
            assert text in page
        assert "deepstone run alexnet-kim framework=torch,jax" in page

    def test_the_same_chart_is_the_same_file(self, form: str) -> None:
        figure = drawn(chart(form))
        assert draw_static(figure, "svg") == draw_static(figure, "svg")

    def test_nothing_to_draw_is_said(self, form: str) -> None:
        result = chart(form, gaps=[{"series": "", "x": "torch" if form != "lines" else 4, "why": "oom: too big"}])
        for series in result["series"]:
            series["points"] = []
        with pytest.raises(NothingToDrawError, match="oom: too big"):
            drawn(result)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"form": "pie"}, "form: must be one of bars, lines, ratios"),
        ({"x": {"label": "batch", "scale": "cubic"}}, r"x\.scale: must be one of"),
        ({"y": {"label": "speed", "unit": "furlongs"}}, r"y\.unit: must be one of images/s"),
        ({"series": [{"name": "a", "points": [{"x": 0, "y": 1}]}]}, r"points\[0\]\.x: must be a number above 0"),
        ({"series": [{"name": "a", "points": [{"x": "b", "y": 1}]}]}, r"x: must be a finite number"),
        ({"series": [{"name": "a", "points": [{"x": 1}]}]}, r"points\[0\]\.y: is missing"),
        ({"series": [{"name": "a", "points": [{"x": 1, "y": 1}] * 5001}]}, "at most 5,000 points"),
        (
            {"series": [{"name": "a", "points": [{"x": 1, "y": {"median": 1, "low": 2, "high": 3, "n": 1}}]}]},
            "low <= median",
        ),
        ({"commands": [1]}, r"commands\[0\]: must be text"),
        ({"schema": 2}, "schema 2"),
    ],
)
def test_what_is_no_chart_is_refused_with_its_place(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        drawn(chart("lines", **change))


def test_a_value_that_is_absent_is_not_drawn() -> None:
    result = copy.deepcopy(ratios_chart())
    result["series"][0]["points"][0]["y"] = absent("no time")
    assert [row.label for row in bars_in(result).rows] == ["precision=bf16-mixed", "threads=1"]


@pytest.mark.parametrize(
    ("label", "unit", "shown"),
    [
        ("speed", "images/s", "speed in images/s"),
        ("images per second", "images/s", "images per second"),
        ("images/s", "images/s", "images/s"),
        ("ratio", "", "ratio"),
        ("", "s", "s"),
    ],
)
def test_a_unit_is_said_once(label: str, unit: str, shown: str) -> None:
    assert titled(label, unit) == shown


@examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(charts)
def test_any_chart_is_drawn_or_refused_in_words(result: dict[str, Any]) -> None:
    try:
        figures = figures_of(result, None)
    except UsageError:
        return
    ElementTree.fromstring(draw_static(figures.figures[0], "svg"))
    assert render_result(figures).startswith(b"<!DOCTYPE html>")
