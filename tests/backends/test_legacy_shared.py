"""What backends for old frameworks have in common, tried in this Python; test_contract.py runs it in old ones."""

from __future__ import annotations

import os
from typing import Any

import pytest
from awkward_ops import awkward

from deepstone.backends.base import Unsupported
from deepstone.backends.before_import import thread_counts
from deepstone.backends.effective import effective, format_cpus, refuse_other_values
from deepstone.backends.onednn_log import OnednnLog, logging_onednn
from deepstone.backends.wire_graph import WireGraph, refuse_other_ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import AveragePool, Dense, Flatten, Input, MaxPool, SoftmaxCrossEntropy
from deepstone.models.zoo import ZOO
from deepstone.setups import axes
from deepstone.setups.request import complete


@pytest.mark.parametrize("graph", [awkward(), ZOO["alexnet"].make(), ZOO["resnet50"].make()], ids=lambda g: g.name)
def test_a_graph_read_from_json_is_the_same(graph: Graph) -> None:
    old = WireGraph(graph.to_worker_json())
    assert [layer.name for layer in old.layers] == [layer.name for layer in graph.layers]
    assert old.input.name == graph.input.name
    for layer in graph.layers:
        other = old.by_name[layer.name]
        assert (other.op, other.inputs, other.output) == (layer.op.kind, layer.inputs, graph.shapes[layer.name])
        assert other.parameters == graph.parameters(layer)
        assert other.buffers == tuple(graph.buffers(layer))
        assert all(getattr(layer.op, name) == value for name, value in other.has.items())
        assert old.takers(layer.name) == len(graph.consumers[layer.name])  # which has a layer for each time it takes it


def pool_of(op: MaxPool | AveragePool, shape: tuple[int, int, int]) -> tuple[Any, tuple[int, ...]]:
    layers = [
        Layer(name="image", op=Input(shape=shape)),
        Layer(name="pool", op=op, inputs=("image",)),
        Layer(name="flat", op=Flatten(), inputs=("pool",)),
        Layer(name="dense", op=Dense(features=2), inputs=("flat",)),
        Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("dense",)),
    ]
    graph = WireGraph(Graph("one pool", layers).to_worker_json())
    return graph.by_name["pool"], graph.shape("image")


@pytest.mark.parametrize(
    ("op", "outside"),
    [
        (MaxPool(kernel=(3, 3), stride=(2, 2)), False),
        (MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=True), False),
        (MaxPool(kernel=(3, 2), stride=(2, 3), ceil_mode=True), True),
        (AveragePool(kernel=(2, 2), stride=(2, 2), pad=(1, 1, 1, 1), ceil_mode=True), True),
    ],
)
def test_a_last_window_outside_the_image_is_seen(op: MaxPool | AveragePool, outside: bool) -> None:
    layer, source = pool_of(op, (1, 9, 12))
    assert layer.ends_outside(source) is outside


def test_all_that_is_lacking_is_told_at_once() -> None:
    graph = WireGraph(ZOO["alexnet"].make().to_worker_json())
    known = {layer.op for layer in graph.layers} - {"lrn", "dropout"}
    with pytest.raises(Unsupported, match=r"old 1 has no lowering of: dropout \(layer '.*'\), lrn \(layer 'norm1'\)"):
        refuse_other_ops(graph, known, "old 1")
    refuse_other_ops(graph, known | {"lrn", "dropout"}, "old 1")


def test_every_value_that_is_not_honoured_is_told_at_once() -> None:
    request = dict(complete({"framework": "mxnet", "layout": "nhwc", "precision": "bf16"}))
    honoured = {"layout": ("auto", "nchw"), "precision": ("auto", "fp32"), "device": ("auto", "cpu")}
    with pytest.raises(Unsupported) as refusal:
        refuse_other_values(request, honoured, "old 1")
    assert str(refusal.value) == (
        "old 1 does not honour layout=nhwc (it takes auto or nchw); precision=bf16 (it takes auto or fp32)"
    )


def test_what_was_read_back_comes_last() -> None:
    request = dict(complete({"framework": "mxnet"}))
    answer = effective(request, {"layout": "nchw", "threads": 1}, {"threads": 2})
    assert set(answer) == set(axes.AXES)
    assert answer["layout"] == {"value": "nchw", "source": "set"}
    assert answer["threads"] == {"value": 2, "source": "observed"}
    assert answer["affinity"]["source"] == "observed"


@pytest.mark.parametrize("cpus", [[0], [0, 1, 2], [0, 2, 3, 7], [5, 6]])
def test_cpus_are_written_as_the_axis_writes_them(cpus: list[int]) -> None:
    assert format_cpus(cpus) == axes.format_cpus(cpus)


def test_threads_are_told_to_every_library() -> None:
    assert thread_counts(complete({"framework": "mxnet"})) == {}
    told = thread_counts(complete({"framework": "mxnet", "threads": 3}))
    assert told == {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}


# Of MKL-DNN 0.18 in torch 1.1, and of oneDNN 2.
LOG = """noise
mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_nchw out:f32_nChw16c,num:1,8x3x32x32,0.02
mkldnn_verbose,exec,convolution,jit:avx512_common,forward_training,fsrc:nchw fwei:Ohwi16o,alg:convolution_direct,mb8,0.2
mkldnn_verbose,exec,convolution,jit:avx2,backward_data,fsrc:nchw,alg:convolution_direct,mb8,0.2
mkldnn_verbose,create,convolution,jit:avx512_core,forward_training,fsrc:nchw,alg:convolution_direct,mb8,0.2
dnnl_verbose,exec,cpu,pooling,jit:avx2,forward_training,src_f32::blocked:abcd:f0,,alg:pooling_max,mb8,0.1
"""


def test_what_the_library_says() -> None:
    log = OnednnLog()
    log.read(LOG)
    assert log.primitives == {"convolution": ["jit:avx2", "jit:avx512_common"], "pooling": ["jit:avx2"]}
    assert log.isa == "avx512_common"


def test_a_library_that_cannot_be_listened_to_is_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    for library in ("/nowhere/libnothing.so", "libc.so.6"):
        with logging_onednn(library) as log:
            os.write(1, b"said meanwhile\n")
        assert not log.available
    assert capfd.readouterr().out == "said meanwhile\n" * 2
