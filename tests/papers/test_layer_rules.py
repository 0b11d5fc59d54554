"""Rules that rest on times of layers, and those that only count."""

from __future__ import annotations

from typing import Any

import pytest
from papers_kit import apply, found, layers

from deepstone.measure.statistics import Quantity
from deepstone.papers.rules.layer_count import caffe_layers

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


def test_share_of_time_without_layers() -> None:
    assert apply("share of time", found(), 0.83, models=["alexnet"], op="conv").word == "not testable here"


def test_an_operation_that_differs_by_framework() -> None:
    tables = found(layers(TIMES), layers({"relu1": (0.3, 0.3)}, framework="jax@0.10.2"))
    answer = apply(
        "operation across frameworks",
        tables,
        2.03,
        models=["alexnet-kim", "alexnet-owt"],
        layer="relu1",
        frameworks=["torch", "tensorflow"],
    )
    assert answer.measured.median == pytest.approx(3.0)
    assert answer.word == "holds"
    assert set(answer.findings) == {"finding-0", "finding-1"}
    assert "tensorflow, which the paper had, not measured on this machine" in answer.why


def test_an_operation_in_one_framework_alone() -> None:
    answer = apply(
        "operation across frameworks",
        found(layers(TIMES)),
        2.03,
        models=["alexnet-owt"],
        layer="relu1",
        frameworks=["torch", "tensorflow"],
    )
    assert answer.word == "not testable here"
    assert "env add" in answer.why


def test_frameworks_at_different_batches_are_not_compared() -> None:
    tables = found(layers(TIMES), layers(TIMES, framework="jax@0.10.2", batch=64))
    answer = apply(
        "operation across frameworks",
        tables,
        2.03,
        models=["alexnet-owt"],
        layer="relu1",
        frameworks=["torch", "tensorflow"],
    )
    assert answer.word == "not testable here"


def rank(conv2_on_gpu: float) -> Any:
    gpu = {name: (forward / 10, backward / 10) for name, (forward, backward) in TIMES.items()}
    gpu["conv2"] = (conv2_on_gpu, conv2_on_gpu)
    tables = found(layers(TIMES), layers(gpu, gpu="Test GPU"))
    others = ["conv1", "conv3", "fc6", "fc7"]
    return apply("layer ranks", tables, models=["alexnet-owt"], favoured="conv2", others=others, part="backward")


def test_the_layer_that_suits_the_cpu() -> None:
    assert rank(conv2_on_gpu=0.4).word == "holds"
    assert rank(conv2_on_gpu=0.4).measured.median == pytest.approx(2.0)
    assert rank(conv2_on_gpu=0.1).word == "reversed"
    assert rank(conv2_on_gpu=0.2).word == "undecided"  # equal, but measured apart


def test_bandwidth_of_a_device_that_is_known() -> None:
    table = layers(TIMES, gpu="NVIDIA H200")
    rate = {"median": 4e12, "low": 3.9e12, "high": 4.1e12, "n": 5}
    table["peaks"] = {"bytes_per_s": {"copy": rate}}
    answer = apply("share of bandwidth", found(table), 0.68, peak_bytes_per_s={"H200": 4.8e12})
    assert answer.measured.median == pytest.approx(4 / 4.8)
    assert answer.word == "holds"
    unknown = apply("share of bandwidth", found(table), 0.68, peak_bytes_per_s={})
    assert unknown.word == "not testable here"
    assert "4.00 TB/s" in unknown.why


def test_kinds_of_memory() -> None:
    assert "one memory node" in apply("kinds of memory", found(layers(TIMES))).why


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
        model="alexnet-kim",
        layers=["conv3", "conv4", "conv5"],
        formulas=["winograd-2x2", "winograd-4x4"],
        paper_batch=256,
        backward=2.0,
        tolerance=0.1,
    )
    assert isinstance(answer.measured, Quantity)
    assert answer.measured.low > 1.9
    assert answer.word == "holds"
