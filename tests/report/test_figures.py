"""From results to figures: what each shows, and that any result of the right shape can be drawn by both drawers."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from depth import examples
from hypothesis import HealthCheck, given
from made_up import (
    absent,
    conv_batches,
    conv_result,
    figure_of,
    figures_of,
    layers_result,
    memory_result,
    quantity,
    several,
)
from shapes import results

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.report.bar_places import pieces
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import CATALOG
from deepstone.report.page import render_result
from deepstone.report.panels import BarChart, HeatMap, ScatterPlot
from deepstone.report.static import draw_static
from deepstone.report.wording import table_text


def bars_of(figure: Figure, panel: int = 0) -> dict[str, dict[str, float]]:
    """Row by row, the length of each series; bars of the same series are not told apart."""
    bars = figure.panels[panel]
    assert isinstance(bars, BarChart)
    return {
        row.label: {bars.series[part.series].name: part.value.middle for bar in row.bars for part in bar}
        for row in bars.rows
    }


def notes_of(figure: Figure, panel: int = 0) -> dict[str, str]:
    bars = figure.panels[panel]
    assert isinstance(bars, BarChart)
    return {row.label: row.note for row in bars.rows}


class TestLayers:
    def test_every_layer_has_its_times(self) -> None:
        result = layers_result()
        shown = bars_of(figure_of(result, "bars"), 1)
        assert list(shown) == [layer["name"] for layer in result["layers"]]
        conv2 = next(layer for layer in result["layers"] if layer["name"] == "conv2")
        assert shown["conv2"] == {
            "forward": conv2["forward_s"]["median"],
            "backward": conv2["backward_s"]["median"],
            "forward, layer isolated": conv2["isolated"]["forward_s"]["median"],
            "data gradient, layer isolated": conv2["isolated"]["data_s"]["median"],
            "weight gradient, layer isolated": conv2["isolated"]["weight_s"]["median"],
        }
        assert "backward, layer isolated" in shown["relu1"]

    def test_how_it_was_timed_is_said_whole(self) -> None:
        rule = " ".join(f"word{number}" for number in range(70))
        assert len(rule) > 400
        figure = figure_of(layers_result() | {"rule": rule}, "bars")
        assert any(rule in line for line in figure.caption)

    def test_intervals_are_kept(self) -> None:
        panel = figure_of(layers_result(), "bars").panels[1]
        assert isinstance(panel, BarChart)
        for value in (piece.segment.value for piece in pieces(panel)):
            assert value.low is not None
            assert value.high is not None
            assert value.low < value.middle < value.high

    def test_what_is_no_layer_has_rows_of_its_own(self) -> None:
        result = layers_result()
        rows = bars_of(figure_of(result, "bars"))
        assert rows["update"] == {"not of a layer": result["update_s"]["median"]}
        assert rows["gaps"] == {"not of a layer": result["gaps_s"]["median"]}
        assert rows["copies"] == {"not of a layer": result["other"][1]["s"]["median"]}
        assert rows["step, not traced"] == {"total": result["step_s"]["median"]}
        assert "data" not in rows  # it is absent

    def test_a_deep_network_stays_readable(self) -> None:
        result = layers_result("resnet152")
        figure = figure_of(result, "bars")
        whole, shown = bars_of(figure), bars_of(figure, 1)
        assert len(shown) == 40
        others = [layer for layer in result["layers"] if layer["name"] not in shown]
        assert len(others) + 40 == len(result["layers"])
        assert whole[f"the other {len(others)} layers"]["forward"] == pytest.approx(
            sum(layer["forward_s"]["median"] for layer in others)
        )
        least = min(sum(shown[name][part] for part in ("forward", "backward")) for name in shown)
        assert all(layer["forward_s"]["median"] + layer["backward_s"]["median"] <= least for layer in others)
        assert any(f"40 costliest of {len(result['layers'])} layers" in line for line in figure.caption)
        assert len(figure.table.rows) == len(result["layers"])

    def test_the_order_is_that_of_the_network(self) -> None:
        result = layers_result("resnet152")
        order = [layer["name"] for layer in result["layers"]]
        places = [order.index(name) for name in bars_of(figure_of(result, "bars"), 1)]
        assert all(one < other for one, other in pairwise(places))

    def test_five_thousand_layers(self) -> None:
        result = layers_result("cifarnet")
        first = result["layers"][0]
        result["layers"] = [{**first, "name": f"layer{number}"} for number in range(5000)]
        figure = figure_of(result, "bars")
        assert len(bars_of(figure, 1)) == 40
        assert "the other 4,960 layers" in bars_of(figure)

    def test_times_of_layers_alone_are_never_shown_as_the_step(self) -> None:
        figure = figure_of(layers_result(in_step=False), "bars")
        assert all("isolated" in name for row in bars_of(figure, 1).values() for name in row)
        assert not any(label.startswith("all ") for label in bars_of(figure))

    def test_a_layer_without_times_says_why(self) -> None:
        result = layers_result("cifarnet")
        reason = absent("fused into conv1")
        result["layers"][1] |= {"forward_s": reason, "backward_s": reason, "isolated": reason}
        figure = figure_of(result, "bars")
        name = result["layers"][1]["name"]
        assert bars_of(figure, 1)[name] == {}
        assert notes_of(figure, 1)[name] == "fused into conv1"

    def test_groups(self) -> None:
        result = layers_result()
        rows = bars_of(figure_of(result, "groups"))
        assert rows["convolutions"]["forward"] == result["groups"][0]["forward_s"]
        assert "%" in notes_of(figure_of(result, "groups"))["convolutions"]

    def test_commands_and_doubts_are_told(self) -> None:
        figure = figure_of(layers_result(), None)
        assert figure.commands == ("deepstone layers alexnet-owt batch=32 framework=torch@2.13.0",)
        assert figure.doubts == ("other_load: other processes took 12 % of the CPU while it measured",)
        assert figure.subtitle == "batch 32 · train · torch 2.13.0 · cpu · fp32 · nchw · 2 threads"


class TestFrameworks:
    def test_side_by_side_under_the_same_names(self) -> None:
        result = several()
        figure = figure_of(result, "bars")
        row = bars_of(figure, 1)["conv1"]
        for name in ("torch", "tensorflow"):
            layer = result["frameworks"][name]["layers"][0]
            assert row[f"{name} forward"] == layer["forward_s"]["median"]
            assert row[f"{name} backward"] == layer["backward_s"]["median"]
        # The third was timed layer by layer, which is said.
        assert (
            row["jax forward, layer isolated"]
            == result["frameworks"]["jax"]["layers"][0]["isolated"]["forward_s"]["median"]
        )
        panel = figure.panels[1]
        assert isinstance(panel, BarChart)
        assert all(len(each.bars) == 3 for each in panel.rows)

    def test_each_has_its_own_step(self) -> None:
        rows = bars_of(figure_of(several(), "bars"))
        assert {"torch · update", "tensorflow · update", "jax · update"} <= set(rows)

    def test_one_that_failed_is_told_and_spares_the_others(self) -> None:
        result = several()
        result["frameworks"]["jax"] = {
            "outcome": "oom",
            "failure": {"reason": "9 GiB were not enough", "stderr_tail": ""},
        }
        for figure in figures_of(result, None).figures:
            assert "jax: oom: 9 GiB were not enough" in figure.caption

    def test_none_is_left(self) -> None:
        failure = {"outcome": "crashed", "failure": {"reason": "it fell", "stderr_tail": ""}}
        with pytest.raises(NothingToDrawError, match="torch: crashed: it fell"):
            figures_of({**several(), "frameworks": {"torch": failure}}, None)

    def test_doubts_name_their_framework(self) -> None:
        assert figure_of(several(), None).doubts[1].startswith("tensorflow: other_load: ")


class TestRoofline:
    def test_points_are_flops_over_bytes_and_seconds(self) -> None:
        result = layers_result()
        panel = figure_of(result, "roofline").panels[0]
        assert isinstance(panel, ScatterPlot)
        conv1 = result["layers"][0]
        forward, backward = panel.groups
        assert forward.points[0].label == "conv1"
        assert forward.points[0].x == pytest.approx(conv1["flops"]["forward"] / conv1["bytes"]["forward"])
        assert forward.points[0].y.middle == pytest.approx(conv1["flops"]["forward"] / conv1["forward_s"]["median"])
        assert len(forward.points) == len(backward.points) == 8  # five convolutions, three dense layers

    def test_ceilings_meet(self) -> None:
        panel = figure_of(layers_result(), "roofline").panels[0]
        assert isinstance(panel, ScatterPlot)
        memory, fp32, bf16 = panel.lines
        assert memory.points[-1] == bf16.points[0]
        assert fp32.points[0][1] == fp32.points[1][1] == 9e10
        assert "90.0 GFLOP/s" in fp32.label

    def test_ceilings_too_near_for_two_names_share_one(self) -> None:
        result = layers_result()
        result["peaks"]["flops_per_s"] |= {"fp64": quantity(8.9e10), "fp16": quantity(2.8e11)}
        panel = figure_of(result, "roofline").panels[0]
        assert isinstance(panel, ScatterPlot)
        names = [line.label for line in panel.lines[1:]]
        assert sorted(names) == [
            "",
            "",
            "fp16: 280 GFLOP/s, bf16: 279 GFLOP/s",
            "fp32: 90.0 GFLOP/s, fp64: 89.0 GFLOP/s",
        ]

    def test_the_share_of_the_ceiling_is_of_the_precision_that_ran(self) -> None:
        result = layers_result()
        result["setup"]["effective"]["precision"]["value"] = "bf16-mixed"
        first = table_text(figure_of(result, "roofline").table)[0]
        assert first[-2] == "279 GFLOP/s"

    def test_without_ceilings(self) -> None:
        result = layers_result() | {"peaks": absent("not measured")}
        with pytest.raises(NothingToDrawError, match="doctor --peaks"):
            figure_of(result, "roofline")
        drawable = figures_of(result, None)
        assert [figure.name for figure in drawable.figures] == ["bars", "groups"]
        assert drawable.missing[0].startswith("roofline: ")


class TestMemory:
    def test_predicted_against_measured(self) -> None:
        result = memory_result()
        figure = figure_of(result, None)
        rows = bars_of(figure)
        assert sum(rows["predicted"].values()) == result["predicted"]["total_bytes"]
        assert rows["measured peak"] == {"measured peak": result["measured_peak_bytes"]}
        assert any(line == "Predicted is 93 % of the measured peak." for line in figure.caption)

    def test_layers_add_up_to_the_prediction(self) -> None:
        result = memory_result("resnet152")
        figure = figure_of(result, None)
        listed = sum(size for row in bars_of(figure, 1).values() for size in row.values())
        (others,) = (sum(row.values()) for label, row in bars_of(figure).items() if label.startswith("the other "))
        assert listed + others == pytest.approx(result["predicted"]["total_bytes"])

    def test_a_peak_that_was_not_measured(self) -> None:
        figure = figure_of({**memory_result(), "measured_peak_bytes": absent("no meter")}, None)
        assert "The peak was not measured: no meter." in figure.caption


class TestAlgorithms:
    def heat(self, result: dict[str, Any]) -> HeatMap:
        panel = figure_of(result, None).panels[0]
        assert isinstance(panel, HeatMap)
        return panel

    def test_the_best_of_each_row_is_one(self) -> None:
        for row in self.heat(conv_result()).cells:
            assert min(cell.ratio for cell in row if isinstance(cell.ratio, float)) == 1

    def test_time_and_workspace_stand_in_the_cell(self) -> None:
        result = conv_result()
        result["layers"][0]["results"][0] |= {"time_s": quantity(0.0123), "workspace_bytes": 3 * 2**20}
        assert self.heat(result).cells[0][0].text == ("12.3 ms", "3.00 MiB")

    def test_picked_cells_are_marked(self) -> None:
        result = conv_result()
        picked = sum(each["picked"] for layer in result["layers"] for each in layer["results"])
        assert sum(cell.marked for row in self.heat(result).cells for cell in row) == picked > 0

    def test_no_verdict_from_a_reference_implementation(self) -> None:
        heat = self.heat(conv_result())
        column = heat.columns.index("winograd F(4,3)")
        assert all(isinstance(row[column].ratio, Absent) for row in heat.cells)

    def test_what_is_absent_has_a_letter_that_is_explained(self) -> None:
        figure = figure_of(conv_batches(32, 64), None)
        assert len(figure.panels) == 2
        for panel in figure.panels:
            assert isinstance(panel, HeatMap)
            for cell in (cell for row in panel.cells for cell in row if isinstance(cell.ratio, Absent)):
                assert f"{cell.text[0]}: {cell.ratio.reason}" in figure.caption

    def test_an_algorithm_that_some_layers_lack(self) -> None:
        result = conv_result()
        result["layers"][0]["results"] = result["layers"][0]["results"][:1]
        cells = self.heat(result).cells[0]
        assert [cell.ratio for cell in cells[1:]] == [Absent("not tried")] * (len(cells) - 1)

    def test_equal_layers_are_counted(self) -> None:
        result = conv_result()
        result["layers"][0]["equal"] = ["convx", "convy"]
        assert self.heat(result).rows[0] == "conv1 (and 2 equal) · forward"


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda result: result["layers"][2].pop("name"), r"layers\[2\].name: is missing"),
            (lambda result: result.update(layers={}), "layers: must be a list"),
            (lambda result: result["layers"][0].update(forward_s="fast"), r"layers\[0\].forward_s: must be an object"),
            (lambda result: result["layers"][0]["forward_s"].update(median=float("inf")), "must be a finite number"),
            (lambda result: result["layers"][0]["forward_s"].update(low=1e9), "low <= median <= high"),
            (lambda result: result["step_s"].update(high=1e300), "at most 1e"),
            (lambda result: result["step_s"].pop("low"), "step_s.low: is missing"),
            (lambda result: result.update(doubts=[3]), r"doubts\[0\]: must be an object"),
            (lambda result: result.update(command=[3]), r"command\[0\]: must be text"),
            (lambda result: result.update(frameworks={}), "1 to 12 frameworks"),
            (lambda result: result.update(schema=99), "schema 99"),
            (lambda result: result.update(kind="run"), "kind 'run'"),
            (lambda result: result.pop("kind"), "does not say of which kind"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_place(self, change: Any, told: str) -> None:
        result = copy.deepcopy(layers_result("cifarnet"))
        change(result)
        with pytest.raises(UsageError, match=told):
            figures_of(result, None)

    def test_a_figure_that_there_is_not(self) -> None:
        with pytest.raises(UsageError, match="did you mean roofline"):
            figure_of(layers_result("cifarnet"), "rooflin")


@examples(80, suppress_health_check=list(HealthCheck))
@given(result=results)
def test_any_result_of_the_right_shape_becomes_figures(result: dict[str, Any]) -> None:
    json.dumps(result)
    for name in CATALOG[result["kind"]]:
        try:
            figure = figure_of(result, name)
        except NothingToDrawError:
            continue
        for panel in figure.panels:
            if isinstance(panel, HeatMap):
                assert all(len(row) == len(panel.columns) for row in panel.cells)
        assert all(len(row) == len(figure.table.headings) for row in figure.table.rows)


@examples(8, suppress_health_check=list(HealthCheck))
@given(result=results)
def test_any_figure_can_be_drawn(result: dict[str, Any]) -> None:
    try:
        drawable = figures_of(result, None)
    except NothingToDrawError:
        return
    page = render_result(drawable)
    assert b"<script>alert" not in page
    for figure in drawable.figures:
        ElementTree.fromstring(draw_static(figure, "svg"))
