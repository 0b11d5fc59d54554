"""Layer by layer on the scripted backend, whose clock tells exactly what should come out."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from fake_jobs import fake_job, set_script

from deepstone.absent import Absent
from deepstone.cli.layers import show_layers
from deepstone.measure import doubts
from deepstone.measure.statistics import median_of
from deepstone.report.figures import make_figure
from deepstone.report.files import as_result
from deepstone.report.panels import BarChart
from deepstone.report.wording import table_text
from deepstone.results.codec import as_bare_finding
from deepstone.results.doubt import Doubt
from deepstone.runner.assemble import now
from deepstone.runner.conversation import JobFailed
from deepstone.runner.layers.measure import LayersEffort, find_layers
from deepstone.runner.layers.report import layers_report
from deepstone.setups.axes import Value
from deepstone.units import seconds

TIMES = ("forward_s", "backward_s")
SHARES = {"conv": [4.0, 8.0], "relu": [0.5, 0.5], "dense": [1.0, 2.0], "loss": [0.5, 0.5]}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    return lambda **keys: set_script(monkeypatch, **{"noise": 0.001, **keys})


def report(*, effort: LayersEffort | None = None, **axes: Value) -> dict[str, Any]:
    job = fake_job(**axes)
    found = find_layers(job, effort or LayersEffort(budget_s=1.0))
    written = layers_report(job, found, started_at=now()).to_json()
    return json.loads(json.dumps(written, allow_nan=False))


def layer(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["layers"] if each["name"] == name)


def test_the_parts_explain_the_step(script: Any):
    script(layers=SHARES)
    found = report()
    assert found["step_s"]["median"] == pytest.approx(0.01, rel=0.01)
    assert found["explained"]["median"] == pytest.approx(1.0, rel=0.01)
    parts = sum(found[part]["median"] for part in ("sum_s", "update_s", "gaps_s", "data_s"))
    assert parts == pytest.approx(found["step_s"]["median"], rel=0.01)
    assert found["update_s"]["median"] == pytest.approx(0.001, rel=0.02)


def test_text_figure_and_numbers_add_up_to_the_same(script: Any, capsys: pytest.CaptureFixture[str]):
    """On a machine so noisy that the median of a sum is far from the sum of medians."""
    script(layers=SHARES)
    job, chance = fake_job(), random.Random(1)
    raw = find_layers(job, LayersEffort(budget_s=1.0))
    for times in raw.rounds:
        for key, steps_s in times.layers_s.items():
            times.layers_s[key] = [step_s * (5 if chance.random() < 0.3 else 1) for step_s in steps_s]
    found = json.loads(json.dumps(layers_report(job, raw, started_at=now()).to_json()))
    layers_s = sum(each[part]["median"] for each in found["layers"] for part in TIMES if "median" in each[part])
    parts_s = layers_s + sum(found[part]["median"] for part in ("update_s", "gaps_s", "data_s"))
    assert found["sum_s"]["median"] == pytest.approx(layers_s)
    assert found["together_s"]["median"] == pytest.approx(parts_s)
    assert found["explained"]["median"] == pytest.approx(parts_s / found["step_s"]["median"])
    assert sum(group[part] for group in found["groups"] for part in TIMES) == pytest.approx(layers_s)
    for name in ("sum_s", "together_s", "explained", "layers_time_ratio", "traced_time_ratio"):
        assert found[name]["low"] <= found[name]["median"] <= found[name]["high"], name
    show_layers({"fake": as_bare_finding({**found, "outcome": "ok"})}, everything=True)
    assert f"layers {seconds(layers_s)} + " in capsys.readouterr().out
    whole = make_figure(as_result(found), "bars").panels[0]
    assert isinstance(whole, BarChart)
    assert next(row.note for row in whole.rows if row.label.startswith("all ")) == seconds(layers_s)


def test_few_rounds_do_not_say_that_looking_changed_the_step():
    def doubt(rounds: int) -> Doubt | None:
        return doubts.profiler_overhead(median_of([[[1.5 + 0.01 * number] for number in range(rounds)]]))

    assert doubt(5) is None
    assert doubt(6) is not None


def test_a_difference_that_may_be_negative_is_not_resolved(script: Any, capsys: pytest.CaptureFixture[str]):
    script(layers=SHARES, by_difference=True, isolated=1.0)
    found = report()
    lost = {"median": -0.001, "low": -0.003, "high": 0.002, "n": 9}
    layer(found, "conv")["isolated"]["backward_s"] = lost
    layer(found, "conv")["isolated"]["data_s"] = layer(found, "conv")["isolated"]["weight_s"] = {"absent": "none"}
    show_layers({"fake": as_bare_finding({**found, "outcome": "ok"})}, everything=True)
    words = "not resolved (-3.00 ms – 2.00 ms)"
    assert words in " ".join(capsys.readouterr().out.split())
    figure = make_figure(as_result(found), "bars")
    assert any(words in cell for row in table_text(figure.table) for cell in row)
    layers = figure.panels[-1]
    assert isinstance(layers, BarChart)
    lengths = [segment.value.middle for row in layers.rows for bar in row.bars for segment in bar]
    assert min(lengths) >= 0


def test_each_layer_has_its_share(script: Any):
    script(layers=SHARES)
    found = report()
    assert layer(found, "conv")["share"] == pytest.approx(12 / 17, rel=0.01)
    assert layer(found, "conv")["backward_s"]["median"] == pytest.approx(
        2 * layer(found, "conv")["forward_s"]["median"], rel=0.01
    )
    assert sum(each["share"] for each in found["layers"]) == pytest.approx(1.0)
    convolutions = next(group for group in found["groups"] if group["name"] == "convolutions")
    assert convolutions["share"] == layer(found, "conv")["share"]
    assert layer(found, "flatten")["forward_s"] == {"absent": "the layer did nothing forward"}


def test_what_marking_costs_shows(script: Any):
    script(layers=SHARES, timestamps=1.5)
    found = report()
    assert found["explained"]["median"] == pytest.approx(1.5, rel=0.01)
    assert "profiler_overhead" in {doubt["code"] for doubt in found["doubts"]}
    assert found["step_s"]["median"] == pytest.approx(0.01, rel=0.01)


def test_layers_that_nobody_can_time_are_not_said_to_do_nothing(script: Any):
    script(layers=SHARES)
    job = fake_job()
    found = find_layers(job, LayersEffort(budget_s=1.0))
    found.rounds, found.in_place_absent, found.isolated = [], Absent("no profiler"), Absent("no single layers")
    written = json.loads(json.dumps(layers_report(job, found, started_at=now()).to_json()))
    assert layer(written, "conv")["forward_s"] == {"absent": "no single layers"}


def test_rates_come_from_the_graph_and_the_time(script: Any):
    script(layers=SHARES)
    conv = layer(report(), "conv")
    assert conv["flops"] == {"forward": 8 * 2 * 4 * 3 * 9 * 64, "backward": 8 * 2 * 4 * 3 * 9 * 64}
    assert conv["flops_per_s"]["forward"] == pytest.approx(conv["flops"]["forward"] / conv["forward_s"]["median"])
    assert layer(report(), "relu")["flops_per_s"] == {
        "forward": {"absent": "no multiply-adds"},
        "backward": {"absent": "no multiply-adds"},
    }


def test_alone_and_in_place_are_told_apart(script: Any):
    script(layers={name: [share / 20 for share in both] for name, both in SHARES.items()}, isolated=2.0)
    found = report()
    alone_s = 0.01 * 2.0 * 17 / 20
    assert found["isolated_sum_s"]["median"] == pytest.approx(alone_s, rel=0.02)
    saved = found["fusion_saved_s"]
    assert saved["median"] == pytest.approx(alone_s - found["sum_s"]["median"], rel=0.02)
    assert 0 < saved["low"] <= saved["median"] <= saved["high"]
    assert layer(found, "dense")["isolated"]["backward_s"]["median"] == pytest.approx(0.01 * 2.0 * 2 / 20, rel=0.02)


def test_what_cannot_run_without_the_forward_is_subtracted(script: Any):
    script(layers=SHARES, by_difference=True, isolated=1.0)
    isolated = layer(report(), "conv")["isolated"]
    assert isolated["by_difference"] is True
    assert isolated["backward_s"]["median"] == pytest.approx(0.01 * 8, rel=0.02)


def test_what_is_timed_beside_the_layer_is_said(script: Any):
    script(layers=SHARES, beside="a copy of what the layer is given")
    found = report(effort=LayersEffort(budget_s=1.0, in_place=False))
    assert layer(found, "conv")["isolated"]["beside"] == "a copy of what the layer is given"
    assert found["rule"].endswith("each time holds a copy of what the layer is given")
    script(layers=SHARES)
    assert "beside" not in layer(report(), "conv")["isolated"]


def test_where_layers_cannot_be_timed_in_place_the_step_is_not_made_up(script: Any):
    script(layers={"absent": "one program"})
    found = report(effort=LayersEffort(budget_s=1.0, isolated=False))
    for part in ("sum_s", "update_s", "gaps_s", "explained", "traced_step_s"):
        assert "one program" in found[part]["absent"]
    assert found["step_s"]["median"] == pytest.approx(0.01, rel=0.01)


def test_isolated_alone_is_never_a_step(script: Any):
    script(layers=SHARES)
    found = report(effort=LayersEffort(budget_s=1.0, in_place=False))
    assert found["method"] == "each layer by itself"
    assert "absent" in found["sum_s"]
    assert "absent" in found["fusion_saved_s"]
    assert layer(found, "conv")["forward_s"] == layer(found, "conv")["isolated"]["forward_s"]


def test_forward_alone_has_nothing_backward(script: Any):
    script(layers={name: both[:1] for name, both in SHARES.items()})
    found = report(phase="forward")
    assert found["update_s"]["median"] == 0
    assert all("absent" in each["backward_s"] for each in found["layers"])


def test_a_worker_that_dies_is_an_outcome(script: Any):
    script(fault={"at": "step", "step": 30, "kind": "segfault"})
    with pytest.raises(JobFailed) as failed:
        report()
    assert failed.value.outcome == "crashed"
