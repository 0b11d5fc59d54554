"""Figures of several processes: a step with a lane for each rank, speed-up with its ideal, the parts of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browsing import visit
from factory import typed
from made_up import absent, figure_of, figures_of, quantity
from made_up_processes import STEP_S, scale_result, several_record
from test_figures import bars_of

from deepstone.absent import Absent
from deepstone.analysis.step_parts import step_parts
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.files import as_result, draw
from deepstone.report.lane_places import placed_spans
from deepstone.report.page import render_result
from deepstone.report.panels import BarChart, LaneChart, LineChart
from deepstone.report.scales import farthest, line_scales
from deepstone.report.static import draw_static


def lanes_of(figure: Figure) -> LaneChart:
    lanes = figure.panels[0]
    assert isinstance(lanes, LaneChart)
    return lanes


class TestTimeline:
    def test_every_rank_has_its_lane(self) -> None:
        figure = figure_of(several_record(ranks=3), "timeline")
        lanes = lanes_of(figure)
        assert [lane.label for lane in lanes.lanes] == ["rank 0", "rank 1", "rank 2"]
        first = [(lanes.series[span.series].name, span.start, span.end) for span in lanes.lanes[0].tracks[0]]
        assert ("waiting for others", 7e-3, 9e-3) in first
        assert ("backward", 3e-3, 7e-3) in first
        assert "waiting for others" not in {lanes.series[span.series].name for span in lanes.lanes[1].tracks[0]}

    def test_buckets_that_overlap_are_on_tracks_of_their_own(self) -> None:
        lanes = lanes_of(figure_of(several_record(), "timeline"))
        assert [[span.label for span in track] for track in lanes.lanes[1].tracks[1:]] == [["bucket 1"], ["bucket 2"]]
        placed = [each for each in placed_spans(lanes) if each.span.label.startswith("bucket")]
        assert len({each.middle for each in placed}) == 4

    def test_what_is_too_short_to_be_seen_is_in_the_table_alone(self) -> None:
        figure = figure_of(several_record(), "timeline")
        assert "data" not in {span.label for lane in lanes_of(figure).lanes for track in lane.tracks for span in track}
        assert "data" in {row[1] for row in figure.table.rows}

    def test_the_account_is_below_with_what_is_left_over(self) -> None:
        figure = figure_of(several_record(), "timeline")
        shown = bars_of(figure, 1)
        assert list(shown) == ["total", "waiting", "tail", "slowdown", "packing", "buffers", "residual"]
        assert shown["residual"] == {"not explained": -0.5e-3}
        bars = figure.panels[1]
        assert isinstance(bars, BarChart)
        assert "not resolved" in bars.rows[-1].bar_labels[0].text

    def test_a_run_without_one_says_why(self) -> None:
        record = several_record()
        record["parallel"]["timeline"] = absent("the framework does not tell")
        with pytest.raises(NothingToDrawError, match="does not tell"):
            figure_of(record, "timeline")
        found = figures_of(record)
        assert [figure.name for figure in found.figures] == ["run"]
        assert "does not tell" in found.missing[0]

    def test_many_ranks(self) -> None:
        figure = figure_of(several_record(ranks=40), "timeline")
        assert len(lanes_of(figure).lanes) == 32
        assert any("40 processes" in line for line in figure.caption)

    def test_a_kind_that_nobody_knows_is_drawn_too(self) -> None:
        record = several_record()
        record["parallel"]["timeline"]["lanes"][0]["spans"] = [{"kind": "<b>", "begin_s": 0, "end_s": STEP_S}]
        svg = draw_static(figure_of(record, "timeline"), "svg")
        assert "&lt;b&gt;" in svg.decode()


def pipeline_record() -> dict[str, Any]:
    """Two stages, one after the other, and their memory."""
    record = several_record()
    parallel = record["parallel"]
    for rank, lane in enumerate(parallel["timeline"]["lanes"]):
        passes = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]
        lane["spans"] = [
            {"kind": kind, "begin_s": (at + rank) / 1e3, "end_s": (at + 1 + rank) / 1e3, "stage": rank, "microbatch": n}
            for at, (kind, n) in enumerate(passes)
        ]
        parallel["ranks"][rank] |= {"step_bytes": (rank + 2) * 2**20, "predicted_bytes": 2**20}
    parallel["scheme"], parallel["communication"] = "pipeline", absent("stages wait in any case")
    stage = {"layers": 2, "first": "a", "last": "b", "share": 0.5, "method": "made up"}
    parallel["stages"] = [{"rank": rank, "stage": rank, **stage} for rank in (0, 1)]
    parallel["bubbles"] = {
        "share": quantity(0.4),
        "ranks": [quantity(0.4)] * 2,
        "ideal_share": 0.2,
        "replayed_share": quantity(0.3),
        "exposed_s": quantity(1e-3),
        "traced_step_s": quantity(STEP_S),
        "method": "made up",
    }
    return record


class TestPipeline:
    def test_passes_are_named_by_their_microbatch(self) -> None:
        lanes = lanes_of(figure_of(pipeline_record(), "timeline"))
        assert [lane.label for lane in lanes.lanes] == ["rank 0, stage 0", "rank 1, stage 1"]
        assert [span.label for span in lanes.lanes[0].tracks[0]] == ["F0", "B0", "F1", "B1"]

    def test_the_caption_tells_how_long_stages_wait(self) -> None:
        (told,) = [line for line in figure_of(pipeline_record(), "timeline").caption if "waits" in line]
        assert all(share in told for share in ("40 %", "30 %", "20 %"))

    def test_memory_of_every_rank_measured_and_predicted(self) -> None:
        figure = figure_of(pipeline_record(), "ranks")
        shown = bars_of(figure)
        assert shown["rank 0, stage 0"] == {"measured": 2 * 2**20, "predicted from the graph": 2**20}
        assert figure.table.rows[1][1:] == (3 * 2**20, 2**20)

    def test_what_stages_wait_and_exchange_are_parts_of_the_step(self) -> None:
        parts = step_parts(typed(pipeline_record()))
        assert not isinstance(parts, Absent)
        assert not isinstance(parts.waiting_s, Absent)
        assert not isinstance(parts.communication_s, Absent)
        assert parts.waiting_s.median == pytest.approx(0.3 * (STEP_S - 1e-3))
        assert parts.communication_s.median == pytest.approx(1e-3)

    def test_a_record_without_memory_by_rank_says_so(self) -> None:
        with pytest.raises(NothingToDrawError, match="no memory by rank"):
            figure_of(several_record(), "ranks")


class TestScaling:
    def test_speed_up_and_its_ideal(self) -> None:
        figure = figure_of(scale_result())
        speedup, efficiency = figure.panels
        assert isinstance(speedup, LineChart)
        assert isinstance(efficiency, LineChart)
        ideal, measured = speedup.curves
        assert [(point.x, point.y.middle) for point in ideal.points] == [(1, 1), (2, 2), (4, 4)]
        assert [(point.x, point.y.middle) for point in measured.points] == [(1, 0.9), (2, 1.8), (4, 3.0)]
        assert [point.doubtful for point in measured.points] == [False, False, True]
        assert [point.y.middle for point in efficiency.curves[0].points] == [1, 1, 1]

    def test_a_wild_interval_does_not_press_the_rest_into_a_line(self) -> None:
        result = scale_result()
        result["points"][1]["speedup"] = {"median": 1.8, "low": 0.001, "high": 4000.0, "n": 2}
        figure = figure_of(result)
        chart = figure.panels[0]
        assert isinstance(chart, LineChart)
        assert farthest(chart) == pytest.approx(8)
        assert line_scales(chart)[1].high < 10
        assert any("beyond" in line for line in figure.caption)
        assert not any("beyond" in line for line in figure_of(scale_result()).caption)

    def test_the_parts_of_a_step_are_stacked(self) -> None:
        shown = bars_of(figure_of(scale_result(), "steps"))
        assert list(shown) == [
            "base: 1 process, threads=1",
            "1 process, batch 96",
            "2 processes, batch 96",
            "4 processes, batch 96",
        ]
        two = shown["2 processes, batch 96"]
        assert sum(two.values()) == pytest.approx(0.057)
        assert two["exposed communication"] == 5e-3
        assert "waiting for others" not in shown["4 processes, batch 96"]  # below 0

    def test_what_is_below_0_is_told(self) -> None:
        bars = figure_of(scale_result(), "steps").panels[0]
        assert isinstance(bars, BarChart)
        assert "waiting for others -1.00 ms" in bars.rows[-1].bar_labels[0].text

    def test_early_answers_do_not_tell_the_parts(self) -> None:
        result = scale_result()
        for part in (result["base"], *result["points"]):
            del part["step"]
        assert [figure.name for figure in figures_of(result).figures] == ["scaling"]


@pytest.mark.parametrize(
    "result", [several_record(), pipeline_record(), scale_result()], ids=["run", "pipeline", "scale"]
)
def test_both_drawers_draw_them(result: dict[str, Any]) -> None:
    found = figures_of(result)
    for figure in found.figures:
        ElementTree.fromstring(draw_static(figure, "svg").decode())
        assert draw_static(figure, "png").startswith(b"\x89PNG")
    assert found.figures[0].title.encode() in render_result(found)


@pytest.mark.parametrize("width", [390, 1400])
def test_lanes_in_a_browser(browser: Any, tmp_path: Path, width: int) -> None:
    draw(as_result(several_record()), tmp_path / "run.html", "timeline")
    seen = visit(browser, tmp_path / "run.html", width=width)
    seen.assert_drawn()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    assert seen.page.evaluate("document.querySelectorAll('.box').length") >= 15
    seen.assert_quiet()
    seen.page.close()
