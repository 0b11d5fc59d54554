"""Charts by year: panels, places within a year, the line that leads past a variant, and names that can be read."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from made_up import figure_of, figures_of
from made_up_charts import point, years_chart

from deepstone.errors import UsageError
from deepstone.report.figure import Figure
from deepstone.report.html.plot import Dot, Path
from deepstone.report.html.points import lines_plot
from deepstone.report.labels import PointName, Sizes, point_names
from deepstone.report.page import render_result
from deepstone.report.panels import LineChart, Point
from deepstone.report.scales import line_scales
from deepstone.report.static import draw_static
from deepstone.report.wording import table_text

PAPER = Sizes(width=660.0, height=260.0, letter=4.2, line=8.75)


def figure() -> Figure:
    return figure_of(years_chart(), None)


def panels() -> list[LineChart]:
    return [panel for panel in figure().panels if isinstance(panel, LineChart)]


def stops(curves: LineChart) -> dict[str, Point]:
    return {stop.label: stop for curve in curves.curves for stop in curve.points}


def test_a_panel_for_each_with_the_same_colours() -> None:
    training, forward = panels()
    assert training.title == "Training: images per second by year of release"
    assert forward.title == "Forward: images per second by year of release"
    assert [curve.series for curve in training.curves] == [curve.series for curve in forward.curves]


def test_those_of_one_year_stand_side_by_side_in_it() -> None:
    training, forward = panels()
    found = stops(training)
    at = [found[name].x for name in ("torch 2.13.0", "tensorflow 2.21.0", "jax 0.10.2")]
    assert all(round(x) == 2026 for x in at)
    assert min(abs(one - other) for one in at for other in at if one != other) > 0.1
    assert found["torch 1.1.0"].x == 2019
    assert {name: stop.x for name, stop in stops(forward).items()} == {name: stop.x for name, stop in found.items()}
    assert any("side by side" in line for line in figure().caption)


def test_many_of_one_year_stay_within_it() -> None:
    result = years_chart()
    many = [{**point(2026, 10.0 + at), "label": f"version {at}"} for at in range(20)]
    result["series"] = [{"name": "many", "points": many}]
    (panel,) = figure_of(result, None).panels
    assert isinstance(panel, LineChart)
    assert all(round(stop.x) == 2026 for stop in stops(panel).values())


def test_years_have_ticks_of_their_own_and_room_at_both_ends() -> None:
    x, _ = line_scales(panels()[0])
    assert list(x.ticks.values()) == [str(year) for year in range(2017, 2027)]
    assert x.low < 2016.5
    assert x.high > 2026.5


def test_a_line_leads_past_a_variant() -> None:
    plot = lines_plot(panels()[0])
    (own,) = [groups for entry, groups in plot.keys if entry.name == "tensorflow"]
    _, joined, _, apart, _ = (plot.drawing.groups[place] for place in own)
    assert [len(mark.points) for mark in joined if isinstance(mark, Path)] == [3]
    assert not any(isinstance(mark, Path) for mark in apart)
    assert [sum(isinstance(mark, Dot) for mark in marks) for marks in (joined, apart)] == [3, 1]
    assert {place for _, groups in plot.keys for place in groups} == set(range(len(plot.drawing.groups)))


@pytest.mark.parametrize("panel", [0, 1])
def test_every_name_stands_somewhere_and_none_on_another(panel: int) -> None:
    curves = panels()[panel]
    named = list(point_names(curves, line_scales(curves), PAPER))
    assert {name.label for name in named} == set(stops(curves))
    boxes = [_box(name) for name in named]
    for number, (left, low, right) in enumerate(boxes):
        for other_left, other_low, other_right in boxes[:number]:
            beside = right <= other_left + 1e-6 or other_right <= left + 1e-6
            assert beside or abs(low - other_low) >= PAPER.line - 1e-6


def _box(name: PointName) -> tuple[float, float, float]:
    width = len(name.text) * PAPER.letter
    left = name.pin.x - {"left": 0.0, "center": width / 2, "right": width}[name.pin.side]
    return left, name.pin.low, left + width


def test_both_drawers_draw_the_names() -> None:
    svg = ElementTree.fromstring(draw_static(figure(), "svg"))
    words = ["".join(each.itertext()) for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("tensorflow 1.12.0-intel") == 2
    page = render_result(figures_of(years_chart(), None)).decode()
    assert "tensorflow 1.12.0-intel" in page
    assert draw_static(figure(), "png").startswith(b"\x89PNG")


def test_the_table_names_version_panel_and_year() -> None:
    rows = {row[0]: row for row in table_text(figure().table)}
    assert rows["tensorflow 1.12.0-intel, training"][1] == "2018"
    assert "crashed" in rows["jax, forward"][2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"x": {"label": "", "scale": "linear", "unit": "month"}}, r"x\.unit: must be one of"),
        ({"series": [{"name": "a", "panel": str(at), "points": [point(2020, 1.0)]} for at in range(13)]}, "12 panels"),
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        figure_of({**years_chart(), **change}, None)
