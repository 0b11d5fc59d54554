"""What is made of a GPU's recordings: kinds of events, owners of kernels, accounts of steps, summaries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from profiler_events import call, kernel, operator, recording, window
from torch.autograd import DeviceType

from deepstone.backends.torch.compiled import KernelCall
from deepstone.backends.torch.compiled_steps import (
    NO_LAYER,
    compiled_ownership,
    device_accounts,
    host_accounts,
    owners_by_order,
)
from deepstone.backends.torch.device import launched_kernels
from deepstone.backends.torch.profile import LAYER_RANGE, Event, from_profiler, innermost
from deepstone.backends.torch.trace import eager_ownership, summarize_device, summarize_host


def seen(name: str, *, device: DeviceType = DeviceType.CPU, annotation: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        device_type=device,
        is_user_annotation=annotation,
        time_range=SimpleNamespace(start=1e6, end=3e6),
        id=7,
        sequence_nr=5,
        self_cpu_time_total=1e6,
    )


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (seen("aten::mm"), "operator"),
        (seen("graph_0_cpp_fused_relu_0"), "operator"),
        (seen("deepstone step", annotation=True), "range"),
        (seen("cudaLaunchKernel"), "call"),
        (seen("cuLaunchKernelEx"), "call"),
        (seen("sm90_xmma_fprop_implicit_gemm", device=DeviceType.CUDA), "kernel"),
        (seen("Memcpy HtoD (Pinned -> Device)", device=DeviceType.CUDA), "copy"),
        (seen("Memset (Device)", device=DeviceType.CUDA), "set"),
    ],
)
def test_kinds_of_events(event: SimpleNamespace, kind: str):
    (found,) = from_profiler([event])
    assert (found.name, found.kind, found.start_s, found.end_s) == (event.name, kind, 1.0, 3.0)
    assert found.correlation == (0 if kind in ("operator", "range") else 7)


def test_what_the_device_did_not_run_is_no_event_of_it():
    drawn_ranges = [seen("deepstone step", device=DeviceType.CUDA, annotation=True)]
    waiting = [seen("Stream Sync", device=DeviceType.CUDA), seen("Stream Wait Event", device=DeviceType.CUDA)]
    assert from_profiler([*drawn_ranges, *waiting]) == []


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("aten::mm", True),
        ("mkldnn::_linear_pointwise", True),
        ("graph_12_cpp_fused_0", True),
        ("triton_poi_fused_relu_0", True),
        ("autograd::engine::evaluate_function: AddmmBackward0", False),
        ("AddmmBackward0", False),
        ("torch::autograd::AccumulateGrad", False),
        ("CompiledFunctionBackward", False),
    ],
)
def test_frames_around_work_are_not_work(name: str, computes: bool):
    assert operator(name, 0, 1).computes == computes


def layer_range(layer: str, start_s: float, end_s: float) -> Event:
    return Event(name=LAYER_RANGE + layer, kind="range", start_s=start_s, end_s=end_s)


def test_an_autograd_node_belongs_to_the_layer_that_made_it():
    node = "autograd::engine::evaluate_function: "
    events = [
        layer_range("conv", 0, 2),
        operator("aten::empty", 0.1, 0.2, sequence=4),  # runs before node 4 is there
        operator("aten::conv2d", 0.5, 1.5, sequence=4),
        operator("aten::empty", 1.6, 1.7, sequence=5),  # shows the number of the node that relu will make
        layer_range("relu", 2, 4),
        operator("aten::relu", 2.5, 3.5, sequence=5),
        operator("aten::ones_like", 4, 5),
        operator(node + "ReluBackward0", 5, 6, sequence=5),
        operator(node + "ConvolutionBackward0", 6, 8, sequence=4),
        operator(node + "torch::autograd::AccumulateGrad", 8, 9),
        operator(node + "SomethingElse", 9, 10, sequence=77),
        operator(node + "torch::autograd::AccumulateGrad", 10, 11),
    ]
    owners = innermost(eager_ownership(events), [1.0, 3.0, 4.5, 5.5, 7.0, 8.5, 9.5, 10.5])
    assert owners == [{"conv": 1}, {"relu": 1}, None, {"relu": 1}, {"conv": 1}, {"conv": 1}, None, None]


CALLS = {
    "forward": [
        KernelCall(name="aten::convolution", layers={"conv": 1}),
        KernelCall(name="triton_poi_0", layers={"conv": 1, "relu": 3}),
        KernelCall(name="triton_poi_0", layers={"loss": 2}),
    ],
    "backward": [KernelCall(name="triton_poi_0", layers={"relu": 1})],
}


def gpu_step(start_s: float, first: int) -> list[Event]:
    """Two seconds of launches (forward, backward, update), whose kernels run later and for longer."""
    return [
        operator("aten::convolution", start_s, start_s + 0.5),
        call(first, start_s + 0.1, start_s + 0.2),
        operator("triton_poi_0", start_s + 0.5, start_s + 0.7),
        call(first + 1, start_s + 0.55, start_s + 0.6),
        operator("triton_poi_0", start_s + 0.7, start_s + 0.9),
        call(first + 2, start_s + 0.75, start_s + 0.8),
        operator("triton_poi_0", start_s + 1.1, start_s + 1.2),
        call(first + 3, start_s + 1.15, start_s + 1.2),
        call(first + 4, start_s + 1.6, start_s + 1.7),
        kernel(first, start_s + 1, start_s + 2, name="cudnn"),
        kernel(first + 1, start_s + 2, start_s + 3, name="triton_poi_0"),
        kernel(first + 2, start_s + 3, start_s + 3.2, name="triton_poi_0"),
        kernel(first + 3, start_s + 3.5, start_s + 4, name="triton_poi_0"),
        kernel(first + 4, start_s + 4, start_s + 4.5, name="multi_tensor_apply"),
    ]


def gpu_window(start_s: float):
    return window(start_s, data=0.0, forward=1.0, backward=0.5, update=0.5)


GPU = recording(gpu_step(0, 1) + gpu_step(10, 11), gpu_window(0), gpu_window(10))


KERNELS = launched_kernels(GPU)
OWNERS = innermost(compiled_ownership(GPU, CALLS), [each.launch.start_s for each in KERNELS if each.launch is not None])


class TestCompiledOnAGpu:
    def test_kernels_belong_to_the_call_that_launched_them(self):
        one_step = [{"conv": 1}, {"conv": 1, "relu": 3}, {"loss": 2}, {"relu": 1}, None]
        assert one_step * 2 == OWNERS

    def test_a_step_lasts_from_the_end_of_the_one_before_to_its_own(self):
        (account,) = device_accounts(GPU, KERNELS, OWNERS, CALLS)
        assert account.total_s == pytest.approx(10)
        assert account.layers == pytest.approx(
            {("conv", "forward"): 1.25, ("relu", "forward"): 0.75, ("loss", "forward"): 0.2, ("relu", "backward"): 0.5}
        )
        assert account.update_s == pytest.approx(0.5)
        assert account.gaps_s == pytest.approx(6.5 + 0.3)
        assert account.other == {}

    def test_summary(self):
        found = summarize_device(GPU, KERNELS, OWNERS, ["conv", "relu", "loss"])
        assert found["span_s"] == pytest.approx(3.5)
        assert found["busy_s"] == pytest.approx(3.2)
        assert found["idle"] == pytest.approx({"waiting for the host": 0.0, "between kernels": 0.3})
        assert [(row["name"], row["count"], row["layers"]) for row in found["kernels"]] == [
            ("triton_poi_0", 3, ["conv", "relu", "loss"]),
            ("cudnn", 1, ["conv"]),
            ("multi_tensor_apply", 1, []),
        ]
        assert [(row["kind"], row["count"]) for row in found["calls"]] == [("launch", 5)]

    def test_kernels_of_a_replayed_graph_are_known_by_their_order(self):
        launch = call(1, 10.1, 10.2, name="cudaGraphLaunch")
        names = ["Memcpy DtoD", "cudnn_a", "cudnn_b", "triton_poi_0", "triton_poi_0"]
        replay = [kernel(1, 11 + number, 11.5 + number, name=name) for number, name in enumerate(names)]
        kernels = launched_kernels(recording([launch, *replay], gpu_window(0), gpu_window(10)))
        conv = {"conv": 1}
        assert owners_by_order(kernels, CALLS) == [conv, conv, conv, {"conv": 1, "relu": 3}, {"loss": 2}]

    def test_order_agrees_with_what_the_host_launched(self):
        by_order = owners_by_order(KERNELS, CALLS)
        assert by_order == OWNERS


class TestCompiledOnTheCpu:
    def test_where_the_time_of_a_step_went(self):
        calls = {
            "forward": [
                KernelCall(name="aten::convolution", layers={"conv": 1}),
                KernelCall(name="cpp_fused_0", layers={"conv": 1, "relu": 3}),
            ],
            "backward": [KernelCall(name="cpp_fused_0", layers={"relu": 1})],
        }
        events = [
            operator("aten::convolution", 12, 16),
            operator("aten::mkldnn_convolution", 13, 15),
            operator("graph_0_cpp_fused_0", 17, 21),
            operator("aten::ones_like", 22, 23),
            operator("CompiledFunctionBackward", 23, 27),
            operator("graph_1_cpp_fused_0", 24, 26),
            operator("aten::add_", 28, 29),
        ]
        seen = recording(events, window(0, data=1), window(10, data=2, forward=10, backward=6, update=2))
        (account,) = host_accounts(seen, compiled_ownership(seen, calls), calls)
        assert account.layers == pytest.approx(
            {("conv", "forward"): 5, ("relu", "forward"): 3, ("relu", "backward"): 2}
        )
        assert (account.total_s, account.data_s, account.update_s) == (20, 2, 2)
        assert account.other == {NO_LAYER: 1}
        assert account.gaps_s == pytest.approx(20 - 10 - 4 - 1)

    def test_summary_of_nested_operators(self):
        events = [
            Event(name="aten::conv2d", kind="operator", start_s=10, end_s=14, self_s=1),
            Event(name="aten::mkldnn_convolution", kind="operator", start_s=11, end_s=14, self_s=3),
            operator("AddmmBackward0", 15, 16),
        ]
        found = summarize_host(recording(events, window(0, forward=1), window(10, forward=8)), [], [])
        assert (found["busy_s"], found["span_s"]) == (4, 8)
        assert {row["name"] for row in found["kernels"]} == {"aten::conv2d", "aten::mkldnn_convolution"}
        assert "absent" in found["calls"]
        assert "absent" in found["idle"]
