"""From Inductor's own account of its kernels to the layers that each worked for."""

from __future__ import annotations

import json
import types

import pytest
import torch

from deepstone.backends.torch.compiled import KernelCall, kernel_calls, shown_name
from deepstone.backends.torch.effective import mode_in_use

# What torch 2.13 writes for a convolution, a fused kernel used twice, and the gradient of the convolution.
SOURCE = """\
cpp_fused_relu_0 = async_compile.cpp_pybinding(['const float*', 'float*'], '''
// [Provenance debug handles] is not here
''')
    def call(self, args):
        # Topologically Sorted Source Nodes: [layer_conv1], Original ATen: [aten.convolution]
        # [Provenance debug handles] extern_kernels.convolution:1
        buf0 = extern_kernels.convolution(primals_3, primals_1, primals_2, stride=(1, 1), padding=(1, 1))
        # [Provenance debug handles] cpp_fused_relu_0:2
        cpp_fused_relu_0(buf0, buf1)
        # [Provenance debug handles] cpp_fused_relu_0:3
        cpp_fused_relu_0(buf1, buf2)
        # [Provenance debug handles] torch.ops.aten.convolution_backward.default:4
        buf3 = torch.ops.aten.convolution_backward.default(buf2, primals_3, primals_1)
        # [Provenance debug handles] cpp_fused_4:5
        cpp_fused_4(buf3)
        return (buf3, )
"""
ORIGINS = json.dumps(
    {
        "cppCodeToPost": {
            "extern_kernels.convolution:1": ["convolution"],
            "cpp_fused_relu_0:2": ["relu", "add", "zero"],
            "cpp_fused_relu_0:3": ["view"],
            "torch.ops.aten.convolution_backward.default:4": ["relu", "add", "convolution_backward"],
        },
        "version": 2.0,
    }
)
OPERATIONS = {
    "convolution": KernelCall(name="aten::convolution", layers={"conv": 100}),
    "relu": KernelCall(name="aten::relu", layers={"relu": 100}),
    "add": KernelCall(name="aten::add", layers={"sum": 300}),
    "zero": KernelCall(name="aten::full", layers={}),
    "view": KernelCall(name="aten::view", layers={"flatten": 0}),
    "convolution_backward": KernelCall(name="aten::convolution_backward", layers={"conv": 54}),
}


def test_calls_in_order_with_what_each_makes_for_whom():
    assert kernel_calls(SOURCE, ORIGINS, OPERATIONS) == [
        KernelCall(name="aten::convolution", layers={"conv": 100}),
        KernelCall(name="cpp_fused_relu_0", layers={"relu": 100, "sum": 300}),
        KernelCall(name="cpp_fused_relu_0", layers={"flatten": 1}),
        KernelCall(name="aten::convolution_backward", layers={"conv": 54}),  # not those that made its inputs
        KernelCall(name="cpp_fused_4", layers={}),
    ]


def test_nodes_that_are_not_known_are_passed_over():
    assert [call.layers for call in kernel_calls(SOURCE, ORIGINS, {})] == [{}] * 5


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("extern_kernels.mm", "aten::mm"),
        ("extern_kernels.bias_addmm", "aten::addmm"),
        ("torch.ops.aten.convolution_backward.default", "aten::convolution_backward"),
        ("torch.ops.mkldnn._linear_pointwise.default", "mkldnn::_linear_pointwise"),
        ("triton_poi_fused_relu_0", "triton_poi_fused_relu_0"),
        ("graph_3_cpp_fused_relu_0", "cpp_fused_relu_0"),
    ],
)
def test_how_a_kernel_shows_itself(call: str, shown: str):
    assert shown_name(call) == shown


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about itself
class TestModeInUse:
    """Real dynamo; what Inductor would compile is left as it is, since that takes a minute."""

    @pytest.fixture(autouse=True)
    def uncompiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch._TorchCompileInductorWrapper, "__call__", lambda _self, graph, _inputs, **_: graph)

    @pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
    def test_the_mode_is_read_from_what_runs(self, mode: str) -> None:
        code = (lambda x: x + 1).__code__.replace(co_name=mode.replace("-", "_"))
        torch.compile(types.FunctionType(code, globals()), mode=mode)(torch.ones(2))
        assert mode_in_use(code, "whatever was asked") == {"value": mode, "source": "observed"}

    def test_nothing_was_compiled(self) -> None:
        assert mode_in_use((lambda x: x).__code__, "default") == {"value": "off", "source": "observed"}

    def test_by_another_compiler(self) -> None:
        code = (lambda x: x + 1).__code__.replace(co_name="by_another")
        torch.compile(types.FunctionType(code, globals()), backend="eager")(torch.ones(2))
        found = mode_in_use(code, "default")
        assert found["source"] == "observed"
        assert str(found["value"]).startswith("another compiler")
