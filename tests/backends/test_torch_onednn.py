"""oneDNN's log, line by line, to the layers whose problem each line solved."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.backends.torch.onednn import executed, primitives_by_layer
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph

_HERE = Path(__file__).parent
NEWER = (
    _HERE / "recorded_onednn_3.txt"
).read_text()  # torch 2.13 on a Xeon: `network` in float32, a product in bfloat16
OLDER = (_HERE / "recorded_onednn_2.txt").read_text()  # the forms of oneDNN 2.6: the product names its result too


@cache
def usual() -> Graph:
    return network()


def network(**second: object) -> Graph:
    b = Builder("lines")
    x = b.conv("first", b.input("data", (6, 13, 10)), channels=8, kernel=3, pad=1)
    attributes = {"channels": 8, "kernel": (3, 2), "stride": 2, "pad": (1, 1, 0, 0), "groups": 2, **second}
    x = b.flatten("flat", b.conv("second", x, **attributes))
    b.softmax_cross_entropy("loss", b.dense("dense", x, features=24))
    return b.build()


def test_each_pass_of_each_convolution():
    assert primitives_by_layer(NEWER, network(), batch=4) == {
        "first": ["forward: jit:avx512_core", "data gradient: jit:avx512_core", "weight gradient: jit:avx2"],
        "second": ["forward: jit:avx512_core", "data gradient: jit:avx512_core", "weight gradient: x64:gemm:jit"],
    }


def test_the_products_of_a_dense_layer():
    passes = ["forward: gemm:jit:bf16", "data gradient: gemm:jit:bf16", "weight gradient: gemm:jit:bf16"]
    assert primitives_by_layer(NEWER, network(), batch=512) == {"dense": passes}


def test_the_forms_of_oneDNN_2():
    assert primitives_by_layer(OLDER, network(), batch=4) == {
        "first": ["forward: brgconv:avx512_core"],
        "dense": ["forward: gemm:jit", "data gradient: gemm:jit"],
    }


@pytest.mark.parametrize(
    "other", [{"groups": 1}, {"channels": 4}, {"stride": 1}, {"pad": (1, 1, 1, 1)}, {"dilation": 2}]
)
def test_a_layer_with_another_problem_gets_none_of_it(other: dict[str, object]):
    assert "second" not in primitives_by_layer(NEWER, network(**other), batch=4)


def test_another_batch_is_another_problem():
    assert primitives_by_layer(NEWER, network(), batch=5) == {}


def test_layers_with_the_same_problem_share_its_lines():
    b = Builder("twins")
    x = b.input("data", (6, 13, 10))
    twins = [b.conv(name, x, channels=8, kernel=3, pad=1) for name in ("left", "right")]
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", b.concat("both", *twins)), features=3))
    found = primitives_by_layer(NEWER, b.build(), batch=4)
    assert found["left"] == found["right"]
    assert found["left"][-1] == "weight gradient: jit:avx2"


def test_uneven_padding_is_done_before_the_convolution():
    b = Builder("uneven")
    x = b.conv("conv", b.input("data", (6, 12, 9)), channels=8, kernel=3, pad=(1, 0, 1, 0))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", x), features=3))
    problem = "mb4_ic6oc8_ih13oh11kh3sh1dh0ph0_iw10ow8kw3sw1dw0pw0"
    line = f"onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,forward_training,src wei dst,,,{problem},0.1\n"
    assert primitives_by_layer(line, b.build(), batch=4) == {"conv": ["forward: jit:avx2"]}


@given(st.text(alphabet="onednn_verbose,v1primitiveexeccpuconvolutionmb4_ic6:x \n", max_size=200))
def test_any_text_is_read(log: str):
    for line in executed(log):
        assert line.operation
    primitives_by_layer(log, usual(), batch=4)


@given(st.integers(0, len(NEWER)))
def test_a_log_that_was_cut_off_says_no_more_than_the_whole(length: int):
    whole = primitives_by_layer(NEWER, usual(), batch=4)
    for layer, found in primitives_by_layer(NEWER[:length], usual(), batch=4).items():
        assert set(found) <= set(whole[layer])
