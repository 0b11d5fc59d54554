"""Rules that rest on times of layers, and those that only count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from papers_kit import apply, found, layers, quantity

from deepstone.measure.statistics import Quantity
from deepstone.models.load import load_in_process
from deepstone.models.zoo import ZOO
from deepstone.papers.paper import load_paper
from deepstone.papers.rules.counted import caffe_layers

TIMES = {
    "conv1": (1.0, 1.0),
    "conv2": (2.0, 2.0),
    "conv3": (1.0, 1.0),
    "relu1": (0.1, 0.1),
    "fc6": (0.9, 0.9),
    "fc7": (0.5, 0.5),
}


def test_share_of_time_takes_the_best_framework() -> None:
    slow_rest = {**TIMES, "fc6": (9.0, 9.0)}
    tables = found(layers(TIMES), layers(slow_rest, framework="jax@0.10.2"))
    answer = apply("share of time", tables, 0.83, models=["alexnet-owt"], op="conv")
    assert answer.measured.median == pytest.approx(8 / 11)
    assert answer.word == "holds"
    assert answer.unit == "share"
    assert "torch" in answer.setup


def test_share_of_time_takes_the_best_network_and_batch() -> None:
    """Not the first one that has any, so that what else was measured cannot hide the best case."""
    small = {**TIMES, "fc6": (9.0, 9.0)}
    tables = [layers(small, model="alexnet", batch=4), layers(TIMES, batch=128), layers(small, batch=8)]
    for order in (tables, tables[::-1]):
        answer = apply(
            "share of time",
            found(*order),
            0.83,
            models=["alexnet", "alexnet-owt"],
            op="conv",
            remarks={"alexnet-owt": "another network"},
        )
        assert answer.measured.median == pytest.approx(8 / 11)
        assert "batch 128" in answer.setup
        assert answer.why.endswith("another network")


def test_share_of_time_leaves_out_times_that_hold_more_than_the_work() -> None:
    table = layers(TIMES)
    for row in table["layers"]:
        row["isolated"]["beside"] = "a copy of what the layer is given"
    assert apply("share of time", found(table), 0.83, models=["alexnet-owt"], op="conv").word == "not testable here"


def test_share_of_time_without_layers() -> None:
    assert apply("share of time", found(), 0.83, models=["alexnet"], op="conv").word == "not testable here"


def kernels(*tables: dict[str, Any]) -> Any:
    return apply(
        "operation across frameworks",
        found(*tables),
        2.03,
        operations={
            "ReLU": {"models": ["alexnet-kim", "alexnet-owt"], "layer": "relu1", "published": 2.03},
            "bias": {
                "models": ["kim2017-bias"],
                "layer": "conv_with_bias",
                "without": "conv_without_bias",
                "published": 3.0,
            },
        },
        frameworks=["caffe", "tensorflow", "torch"],
    )


def relu(framework: str, seconds: float, **effective: Any) -> dict[str, Any]:
    table = layers({"relu1": (seconds, seconds)}, framework=framework, batch=effective.pop("batch", 32))
    table["setup"]["effective"] |= {axis: {"value": value, "source": "observed"} for axis, value in effective.items()}
    return table


def test_an_operation_that_differs_by_framework() -> None:
    answer = kernels(layers(TIMES), relu("tensorflow@2.21.0", 0.3))
    assert answer.measured.median == pytest.approx(3.0)
    assert answer.word == "holds"
    assert set(answer.findings) == {"finding-0", "finding-1"}
    assert "without caffe, which the paper had" in answer.why


def test_an_operation_in_one_framework_alone() -> None:
    answer = kernels(relu("torch@2.13.0", 0.1), relu("torch@1.1.0", 0.3))
    assert answer.word == "not testable here"
    assert "env add" in answer.why


def test_a_framework_that_the_paper_did_not_compare_says_nothing_about_its_claim() -> None:
    """Chainer on NumPy takes ten times as long as any of them."""
    three = [relu("torch@2.13.0", 0.1), relu("tensorflow@2.21.0", 0.3), relu("chainer@7.8.1", 3.0)]
    assert kernels(*three).measured.median == pytest.approx(3.0)
    alone = kernels(three[0], three[2])
    assert alone.word == "not testable here"
    assert "times of chainer 7.8.1" in alone.why


@pytest.mark.parametrize("unequal", [{"batch": 64}, {"threads": 1}, {"precision": "bf16"}])
def test_frameworks_are_compared_under_equal_conditions_alone(unequal: dict[str, Any]) -> None:
    equal = {"threads": 2, "precision": "fp32"}
    first = relu("torch@2.13.0", 0.1, **equal)
    assert kernels(first, relu("tensorflow@2.21.0", 0.3, **{**equal, **unequal})).word == "not testable here"
    others = [relu("caffe@1.0.0", 0.2, **equal), relu("tensorflow@2.21.0", 9.9, **{**equal, **unequal})]
    answer = kernels(first, *others)
    assert answer.measured.median == pytest.approx(2.0)
    assert "tensorflow 2.21.0 is left out, since it ran at batch" in answer.why


def bias(framework: str, seconds: float, spread: float = 0.001) -> dict[str, Any]:
    """What a bias adds to a convolution of 1 s, which the tests of `layers` do not make."""
    table = relu(framework, 1.0)
    table["workload"]["model"] = "kim2017-bias"
    times = {"conv_without_bias": 1.0, "conv_with_bias": 1.0 + seconds}
    table["layers"] = [
        {
            **table["layers"][0],
            "name": name,
            "op": "conv",
            "isolated": {**table["layers"][0]["isolated"], "forward_s": quantity(time, spread)},
        }
        for name, time in times.items()
    ]
    return table


RELU = (relu("torch@2.13.0", 0.1), relu("tensorflow@2.21.0", 0.3))


def test_a_bias_is_judged_as_well_as_a_relu() -> None:
    both = kernels(*RELU, bias("torch@2.13.0", 0.1), bias("caffe@1.0.0", 0.4))
    assert both.word == "holds"
    assert both.measured.median == pytest.approx(3.0)
    assert "bias: takes 4.00" in both.why
    equal = kernels(*RELU, bias("torch@2.13.0", 0.3), bias("caffe@1.0.0", 0.3))
    assert equal.word == "undecided"
    assert set(equal.findings) == {f"finding-{number}" for number in range(4)}
    assert "bias: not timed" in kernels(*RELU).why


def test_a_bias_that_costs_nothing_in_one_framework() -> None:
    """Fused into the convolution: no ratio, but a lower end of it."""
    tables = bias("torch@2.13.0", 0.001, spread=0.01), bias("caffe@1.0.0", 0.4)
    answer = kernels(*tables)
    assert answer.word == "holds"
    assert "at least 17" in answer.why
    assert "torch 2.13.0 up to 21" in answer.why
    assert "low" in json.loads(json.dumps(answer.on("here").to_json(), allow_nan=False))["measured"]
    free = kernels(*(bias(name, 0.001, spread=0.01) for name in ("torch@2.13.0", "caffe@1.0.0")))
    assert free.word == "not testable here"
    assert "not told apart from nothing" in free.why


def test_the_convolutions_that_tell_the_bias_have_the_outputs_of_conv1() -> None:
    graph = load_in_process(str(load_paper("kim2017").studies["small"].with_name("bias.json"))).graph
    conv1 = ZOO["alexnet-kim"].make().shapes["conv1"]
    assert graph.shapes["conv_with_bias"] == graph.shapes["conv_without_bias"] == conv1
    assert "bias" in graph.parameters(graph.layer("conv_with_bias"))
    assert "bias" not in graph.parameters(graph.layer("conv_without_bias"))


def rank(conv2_on_gpu: float, **of_gpu: Any) -> Any:
    gpu = {name: (forward / 10, backward / 10) for name, (forward, backward) in TIMES.items()}
    gpu["conv2"] = (conv2_on_gpu, conv2_on_gpu)
    tables = found(layers(TIMES), layers(gpu, gpu="Test GPU", **of_gpu))
    others = ["conv1", "conv3", "fc6", "fc7"]
    return apply("layer ranks", tables, models=["alexnet-owt"], favoured="conv2", others=others, part="backward")


def test_the_layer_that_suits_the_cpu() -> None:
    assert rank(conv2_on_gpu=0.4).word == "holds"
    assert rank(conv2_on_gpu=0.4).measured.median == pytest.approx(2.0)
    assert rank(conv2_on_gpu=0.1).word == "reversed"
    assert rank(conv2_on_gpu=0.2).word == "undecided"  # equal, but measured apart


def test_layers_on_two_devices_are_compared_at_one_precision_and_setup() -> None:
    other = rank(conv2_on_gpu=0.4, precision="tf32-conv")
    assert other.word == "not testable here"
    assert "fp32" in other.why
    assert "tf32-conv" in other.why
    assert rank(conv2_on_gpu=0.4, asked={"layout": "nhwc"}).word == "not testable here"
    assert rank(conv2_on_gpu=0.4, asked={"precision": "fp32", "device": "gpu:0"}).word == "holds"


def test_bandwidth_of_a_device_that_is_known() -> None:
    table = layers(TIMES, gpu="NVIDIA H200")
    rate = {"median": 4e12, "low": 3.9e12, "high": 4.1e12, "n": 5}
    table["peaks"] = {
        "device": "gpu:0",
        "flops_per_s": {},
        "bytes_per_s": {"copy": rate},
        "measured_with": "torch",
        "measured_at": "2026-11-15T03:40:12.123456Z",
    }
    answer = apply("share of bandwidth", found(table), 0.68, peak_bytes_per_s={"H200": 4.8e12})
    assert answer.measured.median == pytest.approx(4 / 4.8)
    assert answer.word == "weaker"
    unknown = apply("share of bandwidth", found(table), 0.68, peak_bytes_per_s={})
    assert unknown.word == "not testable here"
    assert "4.00 TB/s" in unknown.why


def test_caffe_counts() -> None:
    """Counted by hand in Caffe's own files: 229 layers and 16 splits for ResNet-50."""
    assert caffe_layers("alexnet", ["Flatten"]) == 24
    assert caffe_layers("resnet50", ["Flatten"]) == 245
    wrong = apply("layer count", found(), layers={"alexnet": 25}, implied=["Flatten"])
    assert wrong.word == "reversed"


def test_parameters() -> None:
    answer = apply("parameter share", found(), 0.94, model="alexnet-kim", parameters=62e6, tolerance=0.01)
    assert answer.word == "holds"
    assert "62,378,344" in answer.why
    assert apply("parameter share", found(), 0.5, model="alexnet-kim", parameters=62e6, tolerance=0.01).word == "weaker"


def test_operations() -> None:
    answer = apply(
        "operation counts",
        found(),
        2.0,
        bound="more than",
        model="alexnet-kim",
        layers=["conv3", "conv4", "conv5"],
        formulas=["winograd-2x2", "winograd-4x4"],
        paper_batch=256,
        backward=2.0,
        tolerance=0.01,
    )
    assert isinstance(answer.measured, Quantity)
    assert 1.9 < answer.measured.low < 2 < answer.measured.median
    assert answer.word == "weaker"
    assert "with winograd-2x2 (weaker)" in answer.why
    assert "with winograd-4x4 (holds)" in answer.why
