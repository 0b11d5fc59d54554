"""The numbers of `caffe time`, from what a worker measured."""

from __future__ import annotations

import pytest
from fake_jobs import fake_job

from deepstone.absent import Absent
from deepstone.measure.statistics import Quantity
from deepstone.results.layers import IsolatedLayer
from deepstone.runner.conversation import JobFailed
from deepstone.runner.layers.caffe_time import caffe_summary, time_iterations
from deepstone.runner.layers.measure import LayersFound
from deepstone.runner.replies import InPlaceTimes


def in_place(**layers_s: list[float]) -> InPlaceTimes:
    """`conv_forward=[…]` and so on, of steps that took a second each."""
    steps = len(next(iter(layers_s.values())))
    return InPlaceTimes(
        method="stamps",
        rule="",
        total_s=[1.0] * steps,
        data_s=[0.0] * steps,
        update_s=[0.0] * steps,
        gaps_s=[0.0] * steps,
        other_s={},
        passes=[(key.split("_")[0], key.split("_")[1], times) for key, times in layers_s.items()],
    )


def test_means_over_all_iterations() -> None:
    found = LayersFound(
        plain_s=[[3.0, 5.0], [4.0]],
        rounds=[
            in_place(conv_forward=[1.0, 2.0], conv_backward=[2.0, 2.0], relu_forward=[0.25, 0.5]),
            in_place(conv_forward=[6.0], conv_backward=[5.0]),
        ],
    )
    summary = caffe_summary(fake_job(phase="gradient"), found)
    assert (summary.iterations, summary.iteration_s) == (3, [3.0, 5.0, 4.0])
    assert (summary.forward_backward_s, summary.total_s) == (4.0, 12.0)
    assert [layer.to_json() for layer in summary.layers] == [
        {"name": "conv", "forward_s": 3.0, "backward_s": 3.0},
        {"name": "relu", "forward_s": 0.25, "backward_s": 0.0},
        {"name": "flatten", "forward_s": 0.0, "backward_s": 0.0},
        {"name": "dense", "forward_s": 0.0, "backward_s": 0.0},
        {"name": "loss", "forward_s": 0.0, "backward_s": 0.0},
    ]
    assert (summary.forward_s, summary.backward_s) == (3.25, 3.0)
    assert summary.in_place is True


def test_layers_by_themselves() -> None:
    no = Absent("it does nothing")
    taken = Quantity.of(median=0.5, low=0.4, high=0.6, n=3)
    conv = IsolatedLayer(forward_s=taken, backward_s=no, data_s=no, weight_s=no, by_difference=False)
    found = LayersFound(plain_s=[[1.0]], in_place_absent=Absent("no profiler"), isolated={"conv": conv})
    summary = caffe_summary(fake_job(phase="gradient"), found)
    assert summary.layers[0].to_json() == {"name": "conv", "forward_s": 0.5, "backward_s": 0.0}
    assert (summary.in_place, summary.why_not_in_place) == (False, "no profiler")


def test_without_a_backward_pass() -> None:
    found = LayersFound(plain_s=[[1.0]], rounds=[in_place(conv_forward=[1.0])])
    summary = caffe_summary(fake_job(phase="forward"), found)
    assert isinstance(summary.backward_s, Absent)
    assert all(isinstance(layer.backward_s, Absent) for layer in summary.layers)


def test_a_setup_that_makes_no_sense_starts_no_process() -> None:
    with pytest.raises(JobFailed, match="runs on a CPU only"):
        time_iterations(fake_job(device="gpu:0", engine="onednn"), 1, timeout_s=10)
