"""Whatever the file holds: a network, or one line that says what is wrong, and soon."""

from __future__ import annotations

from functools import cache

import caffe_nets
import pytest
from depth import examples
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import GraphError
from deepstone.models.caffe.network import network


def read(content: bytes) -> None:
    message = "net.prototxt"
    try:
        network(content, file="net.prototxt", name="net")
    except GraphError as error:
        message = str(error)
    assert message.startswith("net.prototxt")
    assert "\n" not in message
    assert len(message) < 500_000


@cache
def whole() -> bytes:
    """A network with all that is supported: all layer types of both forms of data."""
    heads = caffe_nets.googlenet(heads=True).splitlines()[:60]
    norms = caffe_nets.resnet50().splitlines()[1:20]
    return "\n".join([*heads, *norms, caffe_nets.dense("fc", "conv1", 5), caffe_nets.loss("end", "fc")]).encode()


@examples(60)
@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    read(content)


MARKS = ["{", "}", "<", ">", "[", "]", ":", ",", ";", "-", "\n", "#", '"', "'", "\\", "\0", "é", "\ud7ff"]
VALUES = [
    "0",
    "-1",
    "1",
    "2",
    "7",
    "1000000000",
    "2147483648",
    "0.5",
    "1e400",
    "nan",
    "inf",
    "true",
    "MAX",
    "{ }",
    '""',
]
NAMES = ["layer", "layers", "name", "type", "bottom", "top", "input", "input_dim", "include", "phase"]
TYPES = [
    "convolution_param",
    "num_output",
    "kernel_size",
    '"data"',
    '"ReLU"',
    '"Convolution"',
    "CONVOLUTION",
    "0x",
    "1" * 5000,
]
pieces = st.sampled_from([*MARKS, *VALUES, *NAMES, *TYPES])


@examples(60)
@given(st.lists(pieces, max_size=60))
def test_any_words(words: list[str]) -> None:
    read(" ".join(words).encode())


@examples(60)
@given(st.data())
def test_a_network_cut_off(data: st.DataObject) -> None:
    read(whole()[: data.draw(st.integers(0, len(whole())))])


@examples(60)
@given(st.data())
def test_a_network_with_bytes_changed(data: st.DataObject) -> None:
    content = bytearray(whole())
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position : position + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=4))
    read(bytes(content))


@examples(60)
@given(st.data())
def test_a_network_with_values_changed(data: st.DataObject) -> None:
    words = whole().decode().split(" ")
    places = [number for number, word in enumerate(words) if word and (word[0].isdigit() or word[0] == '"')]
    for _ in range(data.draw(st.integers(1, 5))):
        words[data.draw(st.sampled_from(places))] = data.draw(st.sampled_from(VALUES))
    read(" ".join(words).encode())


@examples(60)
@given(st.data())
def test_a_network_with_layers_moved_or_lost(data: st.DataObject) -> None:
    lines = whole().decode().splitlines()
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=30))
    read("\n".join(chosen).encode())


TWO_MIB = 2 * 2**20


@pytest.mark.timeout(60)  # work must not grow out of proportion, on however slow a machine
@pytest.mark.parametrize(
    "content",
    [
        b"layer {" * 300_000,
        b"layer <" * 300_000,
        b"a [" * 300_000,
        b"a: [" + b"1," * 100_000,
        b"layer { name: 'x' type: 'Y' }\n" * 15_000,
        b"layer { name: 'x' type: 'ReLU' bottom: 'y' top: 'z' }\n" * 10_000,
        b"".join(b"field_%d: 1 " % number for number in range(40_000)),
        b"".join(b"layer { name: 'x%d' type: 'T%d' }" % (number, number) for number in range(12_000)),
        b"input: 'data' input_dim: [1,3,8,8]\n"
        + b"".join(b"layer { name: 'x%d' type: 'ReLU' bottom: 'data' top: 'data' }\n" % n for n in range(5_000)),
        b"# comment\n" * 200_000,
        b" " * TWO_MIB,
        b"\n" * TWO_MIB,
        b"x" * TWO_MIB,
        b"a: '" + b"x" * TWO_MIB,
        b"a: '" + b"\\" * TWO_MIB,
        b"a: " + b"'x' " * 100_000,
        b"a: " + b"1" * TWO_MIB,
        b"a: " + b"." * TWO_MIB,
        b"a: 0x" + b"f" * TWO_MIB,
        b"-" * TWO_MIB,
        b"x" * (9 * 2**20),
    ],
    ids=range(21),
)
def test_huge_files_end_soon(content: bytes) -> None:
    read(content)
