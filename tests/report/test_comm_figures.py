"""Curves of communication: of one result, of several networks, of a model's buckets; and the chapter of a report."""

from __future__ import annotations

from typing import Any

import pytest
from factory import make_record
from made_up import comm_result, figure_of, figures_of, quantity
from made_up_book import sources_of

from deepstone.errors import UsageError
from deepstone.report.book import make_book
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import make_figure
from deepstone.report.figures.comm import together
from deepstone.report.files import as_result
from deepstone.report.page import render_result
from deepstone.report.panels import BarChart, LineChart, ScatterPlot
from deepstone.report.static import draw_static
from deepstone.results.findings import Finding


def finding_of(result: dict[str, Any]) -> Finding:
    found = as_result(result)
    assert isinstance(found, Finding)
    return found


def names_of(figure: Figure, panel: int = 0) -> list[str]:
    plane = figure.panels[panel]
    assert isinstance(plane, LineChart | ScatterPlot)
    groups = plane.curves if isinstance(plane, LineChart) else plane.groups
    return [group.series.name for group in groups]


def test_every_operation_has_a_panel_with_every_transport() -> None:
    bandwidth = figure_of(comm_result(), "bandwidth")
    assert [panel.title for panel in bandwidth.panels] == ["All-reduce", "Point to point"]
    assert names_of(bandwidth) == ["gloo", "mpi"]
    first = bandwidth.panels[0]
    assert isinstance(first, LineChart)
    assert (first.x.log, first.y.log) == (True, True)
    assert first.curves[0].points[0].y.low is not None
    time = figure_of(comm_result(), "time")
    plane = time.panels[0]
    assert isinstance(plane, ScatterPlot)
    assert len(plane.lines) == 2  # a fit for each transport
    assert plane.lines[0].points[0] == (1024, pytest.approx(4e-4 + 1.2e-9 * 1024))


def test_both_drawers_draw_it() -> None:
    drawable = figures_of(comm_result())
    assert [figure.name for figure in drawable.figures] == ["bandwidth", "time"]
    assert b"1 KiB" in draw_static(drawable.figures[0], "svg")
    assert b"All-reduce" in render_result(drawable)


def test_a_wrong_result_is_a_gap_with_its_reason() -> None:
    plane = figure_of(comm_result(wrong=4096), "bandwidth").panels[0]
    assert isinstance(plane, LineChart)
    assert [point.x for point in plane.curves[0].points][:2] == [1024, 16384]
    assert plane.curves[0].gaps == ((4096, "the result was wrong: rank 1: 3 of 4 numbers"),)


def test_several_networks_share_a_figure() -> None:
    slow, fast = comm_result(transports={"gloo": (1e-3, 8e-8)}), comm_result(transports={"gloo": (1e-4, 8e-9)})
    both = together({"100 Mbit/s": finding_of(slow), "1 Gbit/s": finding_of(fast)})
    figure = make_figure(both, "bandwidth")
    assert names_of(figure) == ["100 Mbit/s", "1 Gbit/s"]
    assert {row[0] for row in figure.table.rows} == {"100 Mbit/s", "1 Gbit/s"}
    assert draw_static(figure, "svg")
    with pytest.raises(UsageError):
        make_figure(both, "roofline")


def test_a_model_shows_its_buckets_first() -> None:
    figure = figure_of(comm_result(operations=("allreduce",), buckets=(26_214_400, 4_000_000, 4_000_000)), "bandwidth")
    bars = figure.panels[0]
    assert isinstance(bars, BarChart)
    assert [row.label for row in bars.rows] == ["gloo", "mpi"]
    assert [segment.series for segment in bars.rows[0].bars[0]] == [0, 1, 2]
    assert sum(segment.value.middle for segment in bars.rows[0].bars[0]) == pytest.approx(0.0422, rel=0.01)
    assert draw_static(figure, "svg")


def test_nothing_measured_is_said() -> None:
    with pytest.raises(NothingToDrawError):
        figure_of({**comm_result(), "curves": []}, "bandwidth")


class TestChapter:
    @staticmethod
    def run(processes: int, *, step_s: float, batch: int = 64, exposed_s: float = 0.002, repetition: int = 1) -> Any:
        parallel: dict[str, Any] = {
            "world": processes,
            "nodes": 1,
            "local_batch": batch // processes,
            "launcher": {"name": "local", "version": "0.1.0", "argv": []},
            "ranks": [],
            "buckets": [{"bytes": 1000}],
            "communication": {
                "exposed_s": quantity(exposed_s),
                "waiting_s": [quantity(0.001)] * processes,
                "meeting_s": 0.0,
                "alone_s": quantity(0.004),
                "hidden_share": 0.5,
                "local_step_s": quantity(step_s),
                "method": "in turns",
            },
            "rates": {"per_process": 1.0, "per_node": 1.0, "total": 1.0},
        }
        requested: dict[str, Any] = {"framework": "torch", "device": "cpu", "processes": processes}
        more = {"parallel": parallel} if processes > 1 else {}
        return make_record(batch=batch, requested=requested, step_s=step_s, repetition=repetition, **more)

    def test_it_has_speeds_exposed_communication_and_curves(self) -> None:
        records = [self.run(1, step_s=0.04), self.run(2, step_s=0.022), self.run(4, step_s=0.013)]
        records.append(self.run(2, step_s=0.023, repetition=2))
        book = make_book(sources_of(records=records, findings=[comm_result()]))
        (chapter,) = [each for each in book.chapters if each.title == "Scaling and communication"]
        scaling, *curves = chapter.figures
        assert [figure.name for figure in curves] == ["bandwidth", "time"]
        speed, steps = scaling.panels
        assert isinstance(speed, LineChart)
        assert [(point.x, round(point.y.middle)) for point in speed.curves[0].points] == [
            (1, 1600),
            (2, pytest.approx(2846, abs=30)),
            (4, 4923),
        ]
        assert isinstance(steps, BarChart)
        rows = {
            row.label: {steps.series[part.series].name: part.value.middle for part in row.bars[0]} for row in steps.rows
        }
        assert list(rows) == ["1 process, batch 64", "2 processes, batch 64", "4 processes, batch 64"]
        assert "exposed communication" not in rows["1 process, batch 64"]
        assert rows["2 processes, batch 64"]["exposed communication"] == pytest.approx(0.002)
        assert rows["2 processes, batch 64"]["waiting for others"] == pytest.approx(0.001)
        assert len(scaling.table.runs) == len(scaling.table.rows) == 3

    def test_one_process_has_no_such_chapter(self) -> None:
        book = make_book(sources_of(records=[self.run(1, step_s=0.04)]))
        assert "Scaling" not in [chapter.short for chapter in book.chapters]
