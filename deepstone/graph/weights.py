"""The initial weights and the synthetic batch: the same numbers for every framework, whatever NumPy it pins.

Each set of parameters and seed has one flat file, which any NumPy can map and slice. After the array, which is all that
NumPy reads, comes the CRC-32 of the file: without it, wrong weights would be measured silently.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.errors import StoreError
from deepstone.graph.batch import seeded
from deepstone.graph.batch import synthetic_batch as make_batch
from deepstone.graph.graph import Graph
from deepstone.graph.ops import BatchNorm, Op, Shape

Float32s: TypeAlias = NDArray[np.float32]

_CHUNK_VALUES = 1 << 20  # limits the float64 numbers in memory while a large layer is sampled
_CHUNK_BYTES = 1 << 22
_CHECKSUM_BYTES = 4


class ParameterSlice(NamedTuple):
    """The position of one parameter in the flat file; `offset` counts values, not bytes."""

    layer: str
    name: str
    offset: int
    shape: Shape


def parameter_slices(graph: Graph) -> list[ParameterSlice]:
    """Return every parameter in the order of the graph, without gaps."""
    slices: list[ParameterSlice] = []
    offset = 0
    for layer in graph.layers:
        for name, shape in graph.parameters(layer).items():
            slices.append(ParameterSlice(layer.name, name, offset, shape))
            offset += math.prod(shape)
    return slices


def split_parameters(graph: Graph, flat: Float32s) -> dict[str, dict[str, Float32s]]:
    """Return views of a flat array, such as a mapped weights file, by layer and parameter."""
    parameters: dict[str, dict[str, Float32s]] = {}
    for layer, name, offset, shape in parameter_slices(graph):
        values = flat[offset : offset + math.prod(shape)]
        parameters.setdefault(layer, {})[name] = values.reshape(shape)
    return parameters


def initial_parameters(graph: Graph, seed: int, *, generic: bool = False) -> dict[str, dict[str, Float32s]]:
    """Return the initial value of every parameter, by layer and name. They depend on the seed, the names and the
    shapes.

    `generic`, for checks: no value is exactly 0 or 1, which could hide a missing bias or scale.
    """
    flat = np.empty(_count(graph), dtype=np.float32)
    _fill(flat, _initial_chunks(graph, seed, generic))
    return split_parameters(graph, flat)


def initial_buffers(graph: Graph) -> dict[str, dict[str, Float32s]]:
    """Return running means of 0 and running variances of 1, by layer and name."""
    buffers: dict[str, dict[str, Float32s]] = {}
    for layer in graph.layers:
        for name, shape in graph.buffers(layer).items():
            value = 1.0 if name == "running_var" else 0.0
            buffers.setdefault(layer.name, {})[name] = np.full(shape, value, dtype=np.float32)
    return buffers


def synthetic_batch(
    graph: Graph, batch: int, seed: int, *, like_photographs: bool = False
) -> tuple[Float32s, NDArray[np.int64]]:
    """Return N(0, 1) samples (batch, channels, height, width) and uniform labels, as the workers make them."""
    shape = graph.shapes[graph.input.name]
    return make_batch(shape, graph.classes, batch, seed, like_photographs=like_photographs)


def cached_weights(graph: Graph, seed: int, folder: Path, *, generic: bool = False) -> Path:
    """Return the file with all initial parameters as one flat float32 array; write it if it is missing or damaged.

    A file that does not match its checksum is logged and rewritten. Writers do not disturb each other: each writes its
    own file and renames it, and all write the same content.
    """
    path = folder / f"{_identity(graph, seed, generic)}.npy"
    header = _npy_header(_count(graph))
    try:
        damage = _damage(path, header, _count(graph))
        if damage is None:
            return path
        if damage:
            logging.getLogger("deepstone").warning("deepstone: %s: %s; the weights are made anew", path, damage)
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, header, _initial_chunks(graph, seed, generic))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"cannot keep initial weights in {folder}: {reason}; set DEEPSTONE_CACHE to a folder with room to write"
        ) from error
    return path


def _init_kind(op: Op, name: str) -> str:
    if name == "bias":
        return "zero"
    return "one" if isinstance(op, BatchNorm) else "he_normal"


def _initial_chunks(graph: Graph, seed: int, generic: bool) -> Iterator[Float32s]:
    """Yield all parameters one after the other, in pieces."""
    for layer in graph.layers:
        for name, shape in graph.parameters(layer).items():
            kind = _init_kind(layer.op, name)
            if kind == "he_normal":
                fan_in = math.prod(shape[1:])
                yield from _normal_chunks(seeded(seed, layer.name), math.prod(shape), math.sqrt(2.0 / fan_in))
            else:
                values = np.full(math.prod(shape), kind == "one", dtype=np.float32)
                if generic:
                    values += seeded(seed, f"{layer.name}/{name}").standard_normal(len(values)).astype(np.float32) / 8
                yield values


def _normal_chunks(random: np.random.RandomState, count: int, deviation: float) -> Iterator[Float32s]:
    """Yield the same numbers as one call would sample: the stream continues from piece to piece."""
    for start in range(0, count, _CHUNK_VALUES):
        values = random.standard_normal(min(_CHUNK_VALUES, count - start))
        yield (values * deviation).astype(np.float32)


def _fill(flat: Float32s, chunks: Iterator[Float32s]) -> None:
    offset = 0
    for chunk in chunks:
        flat[offset : offset + len(chunk)] = chunk
        offset += len(chunk)


def _count(graph: Graph) -> int:
    return sum(math.prod(shape) for _, _, _, shape in parameter_slices(graph))


def _identity(graph: Graph, seed: int, generic: bool) -> str:
    """Name the file by what decides its content: graphs that differ only elsewhere share it."""
    content: list[Any] = [
        [layer, name, list(shape), _init_kind(graph.layer(layer).op, name)]
        for layer, name, _, shape in parameter_slices(graph)
    ]
    text = json.dumps([seed, content, *(["generic"] if generic else [])], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _npy_header(count: int) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (count,)})
    return stream.getvalue()


def _damage(path: Path, header: bytes, count: int) -> str | None:
    """Return how the file is damaged: None if it is good, "" if it is missing or has no checksum."""
    unchecked_bytes = len(header) + 4 * count
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == unchecked_bytes:  # from an earlier version
                return ""
            if size != unchecked_bytes + _CHECKSUM_BYTES:
                return "has the wrong size"
            if file.read(len(header)) != header:
                return "has the wrong header"
            return None if _matches_checksum(file, header, 4 * count) else "does not match its checksum"
    except FileNotFoundError:
        return ""


def _matches_checksum(file: BinaryIO, header: bytes, rest_bytes: int) -> bool:
    checksum = zlib.crc32(header)
    while rest_bytes > 0:
        chunk = file.read(min(_CHUNK_BYTES, rest_bytes))
        if not chunk:  # truncated meanwhile
            return False
        checksum = zlib.crc32(chunk, checksum)
        rest_bytes -= len(chunk)
    return file.read(_CHECKSUM_BYTES) == _checksum(checksum)


def _checksum(crc32: int) -> bytes:
    return crc32.to_bytes(_CHECKSUM_BYTES, "little")


def _write(path: Path, header: bytes, chunks: Iterator[Float32s]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(header)
            checksum = zlib.crc32(header)
            for chunk in chunks:
                data = chunk.astype("<f4", copy=False).data
                file.write(data)
                checksum = zlib.crc32(data, checksum)
            file.write(_checksum(checksum))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # it exists only if something failed
