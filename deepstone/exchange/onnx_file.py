"""Reads an ONNX file to plain data: nodes, shapes and small constants, without the weights. Only this module uses
protobuf."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct

from deepstone.errors import GraphError, MissingError

# Names in our ONNX files for facts that ONNX itself cannot express.
PRODUCER = "deepstone"  # also the domain of our function
WITHIN_CHANNEL_FUNCTION = "LrnWithinChannel"
WITHIN_CHANNEL = f"{PRODUCER}.{WITHIN_CHANNEL_FUNCTION}"
LOSSES = "deepstone.losses"  # a property: [{"name", "output", "weight"}] as JSON
OPSET = 17
IR_VERSION = 8

LIMIT_BYTES: Final = 2 * 2**30  # the limit of a protobuf message
_VALUES_KEPT: Final = 64  # a shape or a ratio is small; what is larger is a weight, and only its shape matters
_NAME_SHOWN: Final = 80

Number: TypeAlias = int | float
Side: TypeAlias = int | str  # a number, or what the file calls a size that it leaves open


class Constant(Struct, frozen=True, kw_only=True):
    """An array in the file. `values` are those of a small numeric one, in row-major order."""

    shape: tuple[int, ...]
    values: tuple[Number, ...] | None = None


Attribute: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | Constant | None  # None: another kind


class Node(Struct, frozen=True, kw_only=True):
    op: str  # with its domain before it, if that is not ONNX's own
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]


class OnnxFile(Struct, frozen=True, kw_only=True):
    name: str
    producer: str
    nodes: tuple[Node, ...]
    constants: Mapping[str, Constant]
    inputs: Mapping[str, tuple[Side, ...]]  # those that are no constants
    outputs: tuple[str, ...]
    properties: Mapping[str, str]


def onnx_package() -> ModuleType:
    """Return the `onnx` package, an extra: only reading and writing ONNX files needs it."""
    try:
        import onnx
    except ImportError as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"does not import: {error}"
        raise MissingError(f"the package onnx {why}; from the clone: pip install -e '.[onnx]'") from error
    return onnx


def parse(path: Path, content: bytes) -> OnnxFile:
    """Parse the file. Raises GraphError with the file's name if it is not a complete ONNX model."""
    onnx = onnx_package()
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        plain = _plain(model)
    except DecodeError as error:
        raise GraphError(f"{path} is not an ONNX file, or not a whole one: {_one_line(error)}") from error
    except ValueError as error:  # names that are no text, sizes that are none
        raise GraphError(f"{path} is not an ONNX file we can read: {_one_line(error)}") from error
    if not plain.nodes:
        raise GraphError(f"{path} is not an ONNX file with a graph in it; export the model again")
    return plain


def readable(name: str, most: int = _NAME_SHOWN) -> str:
    """Escape a name from a file for a message of one line."""
    text = name if name.isprintable() else name.encode("unicode_escape").decode()
    return text if len(text) <= most else f"{text[:most]}…"


def _plain(model: Any) -> OnnxFile:
    graph = model.graph
    constants = {_str(tensor.name): _constant(tensor) for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        constants[_str(sparse.values.name)] = Constant(shape=_shape(sparse.dims, _str(sparse.values.name)))
    return OnnxFile(
        name=_str(graph.name),
        producer=_str(model.producer_name),
        nodes=tuple(_node(node, number) for number, node in enumerate(graph.node, start=1)),
        constants=constants,
        inputs={_str(each.name): _sides(each) for each in graph.input if _str(each.name) not in constants},
        outputs=tuple(_str(each.name) for each in graph.output),
        properties={_str(each.key): _str(each.value) for each in model.metadata_props},
    )


def _node(node: Any, number: int) -> Node:
    domain = "" if node.domain in ("", "ai.onnx") else f"{_str(node.domain)}."
    op = f"{domain}{_str(node.op_type)}"
    return Node(
        op=op,
        name=_str(node.name).strip("/ ") or f"{op}{number}",
        inputs=tuple(_str(name) for name in node.input),
        outputs=tuple(_str(name) for name in node.output),
        attributes={_str(each.name): _attribute(each) for each in node.attribute},
    )


def _str(text: Any) -> str:
    """Return the text; protobuf returns bytes if they are not text."""
    if not isinstance(text, str):
        raise ValueError(f"the name {text!r} is not text")
    return text


def _attribute(attribute: Any) -> Attribute:
    """Read an attribute by its declared type, as ONNX numbers them; those of very old files have none, and become
    None."""
    kinds = {1: _float, 2: _int, 3: _text, 4: _tensor, 6: _floats, 7: _ints}
    kind = kinds.get(attribute.type)
    return None if kind is None else kind(attribute)


def _float(attribute: Any) -> float:
    return decimal(attribute.f)


def _int(attribute: Any) -> int:
    return attribute.i


def _text(attribute: Any) -> str:
    return attribute.s.decode()


def _tensor(attribute: Any) -> Constant:
    return _constant(attribute.t)


def _floats(attribute: Any) -> tuple[float, ...]:
    return tuple(decimal(each) for each in attribute.floats)


def _ints(attribute: Any) -> tuple[int, ...]:
    return tuple(attribute.ints)


def decimal(value: float) -> float:
    """Return the decimal number that the author wrote: ONNX stores 32 bits, and 1e-05 would become
    9.99999974737875e-06."""
    return float(str(np.float32(value))) if math.isfinite(value) else value


def _constant(tensor: Any) -> Constant:
    shape = _shape(tensor.dims, _str(tensor.name))
    return Constant(shape=shape, values=_values(tensor, math.prod(shape)))


def _shape(dims: Iterable[int], name: str) -> tuple[int, ...]:
    shape = tuple(dims)
    if any(side < 0 for side in shape):
        raise ValueError(f"the array {readable(name)!r} has the shape {list(shape)}")
    return shape


def _values(tensor: Any, count: int) -> tuple[Number, ...] | None:
    """Return the values; None for a large array, one of another type, and one outside the file."""
    fields = {1: ("<f4", tensor.float_data), 6: ("<i4", tensor.int32_data), 7: ("<i8", tensor.int64_data)}
    if count > _VALUES_KEPT or tensor.data_type not in fields or tensor.external_data:
        return None
    dtype, listed = fields[tensor.data_type]
    if tensor.raw_data:
        if len(tensor.raw_data) != count * np.dtype(dtype).itemsize:
            raise ValueError(f"the array {readable(tensor.name)!r} does not hold as many bytes as its shape says")
        found: list[Number] = np.frombuffer(tensor.raw_data, dtype=dtype).tolist()
    else:
        found = list(listed)
    if not found:
        return None if count else ()
    if len(found) != count:
        raise ValueError(f"the array {readable(tensor.name)!r} does not hold as many values as its shape says")
    return tuple(decimal(each) if isinstance(each, float) else each for each in found)


def _sides(info: Any) -> tuple[Side, ...]:
    return tuple(
        side.dim_value if side.HasField("dim_value") else (_str(side.dim_param) or "?")
        for side in info.type.tensor_type.shape.dim
    )


def _one_line(error: BaseException) -> str:
    return readable(" ".join(str(error).split()))
