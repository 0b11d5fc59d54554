"""Every command with --json prints one JSON value with the keys that programs may rely on."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from cli_kit import Cli, Result
from known_counts import PARAMETERS

RECORD_KEYS = {
    "schema", "id", "job", "started_at", "graph_sha", "command", "identity", "workload", "setup", "outcome", "failure",
    "samples", "summary", "phases", "startup", "memory", "energy", "cost", "share_of_peak", "environment", "comparison",
    "training",
    "doubts",
}  # fmt: skip
QUANTITY_KEYS = {"median", "low", "high", "n"}


def test_models_lists_the_zoo_with_the_published_counts(reader: Cli) -> None:
    listed = reader("models", "--json").assert_ok().json
    found = {model["name"]: model for model in listed}
    assert {name: found[name]["parameters"] for name in PARAMETERS} == PARAMETERS
    assert {"resnet110", "resnet1001", "resnet5000"} <= set(found)
    assert all(set(model["flops"]) == {"forward", "backward"} and model["source"] for model in listed)


def test_one_model_is_told_layer_by_layer(reader: Cli) -> None:
    model = reader("models", "resnet152", "--json").assert_ok().json
    assert (model["name"], model["parameters"], model["input"]) == ("resnet152", 60_192_808, [3, 224, 224])
    layers = model["layers"]
    assert sum(layer["parameters"] for layer in layers) == model["parameters"]
    for way in ("forward", "backward"):
        assert sum(layer["flops"][way] for layer in layers) == model["flops"][way] > 0
    assert all({"name", "op", "inputs", "output", "parameters", "flops", "bytes"} <= set(layer) for layer in layers)
    names = [layer["name"] for layer in layers]
    assert all(set(layer["inputs"]) <= set(names[:number]) for number, layer in enumerate(layers))


def test_axes_tells_every_axis(reader: Cli) -> None:
    listed = reader("axes", "--json").assert_ok().json
    names = (
        "framework device batch phase precision layout engine algorithm compile space_to_depth threads inter_threads "
        "affinity input_grad isa dropout optimizer checkpointing input processes nodes launcher scheme servers pipeline "
        "microbatches schedule transport library collective interface overlap bucket compression accumulate seed"
    )
    assert [axis["name"] for axis in listed] == names.split()
    keys = {"name", "type", "values", "default", "honoured_by", "tuned", "help"}
    assert all(set(axis) == keys and axis["help"] and axis["honoured_by"] for axis in listed)
    assert not any("fake" in axis["honoured_by"] for axis in listed)


def test_one_run_prints_its_record(cli: Cli) -> None:
    record = cli("run", "cifarnet", "framework=fake", "batch=8", "--json").assert_ok().json
    assert set(record) == RECORD_KEYS
    assert record["outcome"] == "ok"
    for name in ("step_s", "samples_per_s"):
        quantity = record["summary"][name]
        assert set(quantity) == QUANTITY_KEYS
        assert quantity["low"] <= quantity["median"] <= quantity["high"]
    rate, step_s = record["summary"]["samples_per_s"], record["summary"]["step_s"]
    assert rate["median"] == pytest.approx(8 / step_s["median"])
    assert step_s["median"] == pytest.approx(0.01, rel=0.05)  # what the fake backend's script says
    assert {"data_s", "forward_s", "backward_s", "communication_s", "update_s", "method"} == set(record["phases"])
    assert record["setup"]["requested"]["batch"] == 8
    assert record["setup"]["effective"]["layout"] == {"value": "nchw", "source": "set"}
    multiply_adds = {
        "conv1": 32 * 32 * 32 * 75,
        "conv2": 16 * 16 * 32 * 800,
        "conv3": 8 * 8 * 64 * 800,
        "ip1": 1024 * 10,
    }
    passes = {"conv1": 2, "conv2": 3, "conv3": 3, "ip1": 3}  # the image needs no gradient
    assert record["cost"]["flops"] == 8 * sum(2 * passes[name] * count for name, count in multiply_adds.items())
    assert isinstance(record["doubts"], list)


def test_several_runs_print_a_list_in_the_order_asked_for(measured: tuple[Cli, Result]) -> None:
    records = measured[1].json
    asked = [(record["workload"]["batch"], record["setup"]["requested"]["layout"]) for record in records]
    assert asked == [(8, "nchw"), (8, "nhwc"), (16, "nchw"), (16, "nhwc")]
    assert [record["outcome"] for record in records] == ["ok", "crashed", "ok", "crashed"]
    assert all(set(record) == RECORD_KEYS for record in records)
    assert records[1]["failure"]["reason"] == "RuntimeError: scripted failure"
    assert "scripted failure" in records[1]["failure"]["stderr_tail"]


def test_what_is_absent_says_why_and_null_is_nowhere(measured: tuple[Cli, Result]) -> None:
    assert "null" not in measured[1].out
    crashed = measured[1].json[1]
    assert set(crashed["summary"]) == {"absent"}


def test_results_in_json(measured: tuple[Cli, Result]) -> None:
    cli, done = measured
    ids = [record["id"] for record in done.json]
    listed = cli("results", "list", "--json").assert_ok().json
    assert [row["id"] for row in listed] == ids
    assert listed[0]["requested"]["layout"] == "nchw"
    assert listed[0]["step_s_median"] == done.json[0]["summary"]["step_s"]["median"]
    assert "step_s_median" not in listed[1]  # it crashed
    assert cli("results", "show", ids[2], "--json").assert_ok().json == done.json[2]
    assert [record["id"] for record in cli("results", "export", "--json").assert_ok().json] == ids
    assert cli("results", "rebuild", "--json").assert_ok().json == {"runs": 4, "damaged": []}


def test_results_of_an_empty_store_in_json(cli: Cli) -> None:
    cli("run", "cifarnet", "framework=fake", "precision=tf32", "device=cpu")
    (run,) = cli("results", "list", "--json").json
    assert cli("results", "delete", run["id"], "--json").assert_ok().json == {"deleted": [run["id"]]}
    assert cli("results", "list", "--json").assert_ok().json == []
    assert cli("results", "export", "--json").assert_ok().json == []


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_is_measured_from_the_command_line(cli: Cli) -> None:
    record = cli("run", "cifarnet", "batch=8", "device=cpu", "threads=1", "--budget", 0.5, "--json").assert_ok().json
    assert record["outcome"] == "ok"
    effective = record["setup"]["effective"]
    assert effective["framework"]["value"].startswith("torch@")
    assert effective["threads"] == {"value": 1, "source": "observed"}
    assert 0 < record["phases"]["forward_s"]["median"] < record["phases"]["backward_s"]["high"] * 10
    assert record["memory"]["host_peak_bytes"] > 2**20
    assert record["startup"]["import_s"] > 0
