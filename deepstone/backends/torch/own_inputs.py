"""Reads the spec of inputs in a user's file (`INPUTS`, `UNIT`), and makes its synthetic batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor

from deepstone.errors import UsageError, nearest
from deepstone.graph.batch import sampled, seeded

INPUTS: Final = "INPUTS"
UNIT: Final = "UNIT"
BATCH: Final = "batch"  # the one size that a shape may leave open

_TYPES: Final = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}
_KEYS: Final = ("shape", "type", "vocabulary", "value")
_MOST_VALUES: Final = 2**40  # of one input of one sample; more is a mistake
_EXAMPLE: Final = '{"tokens": {"shape": (128,), "type": "int64", "vocabulary": 1000}}'


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInput:
    """One tensor of the batch. `shape` is that of one sample; the batch dimension is inserted at `batch_axis`."""

    name: str
    shape: tuple[int, ...]
    batch_axis: int
    type: str
    vocabulary: int = 0  # of int64: values are from 0 to below it
    value: bool | int | float | None = None  # all its values, where they are not random

    def make(self, batch: int, seed: int, *, like_photographs: bool = False) -> Any:
        """Return the values as a NumPy array, the same in every process. `like_photographs`: of images."""
        shape = (*self.shape[: self.batch_axis], batch, *self.shape[self.batch_axis :])
        kind = np.dtype(self.type)
        if self.value is not None:
            return np.full(shape, self.value, dtype=kind)
        random = seeded(seed, f"input {self.name}")
        if self.type == "int64":
            return random.randint(0, self.vocabulary, size=shape, dtype=np.int64)
        if self.type == "bool":
            return random.randint(0, 2, size=shape).astype(kind)
        if like_photographs and self.batch_axis == 0:
            return sampled(random, self.shape, batch, like_photographs=True)
        return random.standard_normal(shape).astype(kind)

    @property
    def words(self) -> str:
        sizes: list[object] = [*self.shape]
        sizes.insert(self.batch_axis, BATCH)
        below = f" below {self.vocabulary}" if self.type == "int64" else ""
        return f"{self.name} {'×'.join(map(str, sizes))} {self.type}{below}"


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSpec:
    """The inputs by name. `constants` are arguments that are not tensors, such as `use_cache=False`."""

    tensors: tuple[TensorInput, ...]
    constants: Mapping[str, object]

    def batch(self, batch: int, seed: int, *, like_photographs: bool = False) -> dict[str, Tensor]:
        made = {each.name: each.make(batch, seed, like_photographs=like_photographs) for each in self.tensors}
        return {name: torch.from_numpy(values) for name, values in made.items()}

    def hardest_batch(self, batch: int) -> dict[str, Tensor]:
        """Return a batch with the largest token id of each vocabulary, which a random one may lack."""
        made = self.batch(batch, 0)
        for each in self.tensors:
            if each.type == "int64" and each.value is None and made[each.name].numel():
                made[each.name].view(-1)[-1] = each.vocabulary - 1
        return made

    @property
    def values(self) -> int:
        """Return the count of numbers in one sample."""
        return sum(math.prod(each.shape) for each in self.tensors)

    @property
    def words(self) -> str:
        return ", ".join(each.words for each in self.tensors)


def read_spec(path: Path, told: object) -> InputSpec:
    """Parse the file's `INPUTS`. Raises UsageError with one line if it is not a spec."""
    if not isinstance(told, Mapping) or not told:
        raise UsageError(f"{path}: {INPUTS} must name inputs and their shapes, as in {_EXAMPLE}, not {_short(told)}")
    tensors: list[TensorInput] = []
    constants: dict[str, object] = {}
    for name, entry in cast(Mapping[object, object], told).items():
        if not isinstance(name, str) or not name.isidentifier():
            raise UsageError(f"{path}: {INPUTS}: {name!r} is no name of an argument")
        where = f"{path}: {INPUTS}[{name!r}]"
        given = _entry(where, entry)
        if "shape" in given:
            tensors.append(_tensor(where, name, given))
        elif set(given) == {"value"}:
            constants[name] = given["value"]
        else:
            raise UsageError(f"{where}: needs a shape, without the batch, as in (128,)")
    if not tensors:
        raise UsageError(f"{path}: {INPUTS} has no tensor; a sample must have values, as in {_EXAMPLE}")
    return InputSpec(tensors=tuple(tensors), constants=constants)


def read_unit(path: Path, told: object, spec: InputSpec) -> tuple[str, int]:
    """What the file's `UNIT` says a sample is made of, and of how many: `"token"`, or `("token", 128)`."""
    if told is None:
        return "", 0
    name, count = cast(tuple[object, object], told) if isinstance(told, tuple) and len(told) == 2 else (told, None)  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 40:
        raise UsageError(f'{path}: {UNIT} must be a word, or a word and how many a sample has, as in ("token", 128)')
    if count is None:
        tokens = [math.prod(each.shape) for each in spec.tensors if each.type == "int64"]
        if not tokens:
            raise UsageError(f'{path}: {UNIT}: say how many a sample has, as in {UNIT} = ("{name}", 128)')
        count = tokens[0]
    if not _is_size(count):
        raise UsageError(f"{path}: {UNIT}: a sample must have at least 1 {name}, not {count!r}")
    return name, cast(int, count)


def _entry(where: str, entry: object) -> dict[str, object]:
    """Parse an entry; a shape alone means float32."""
    if isinstance(entry, (tuple, list)):
        return {"shape": cast(object, entry)}
    if not isinstance(entry, Mapping):
        raise UsageError(
            f'{where}: must be a shape, as in (3, 32, 32), or {{"shape": …, "type": …}}, not {_short(entry)}'
        )
    given = {str(key): value for key, value in cast(Mapping[object, object], entry).items()}
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"{where}: no such key {key!r}; {nearest(key, _KEYS)}")
    return given


def _tensor(where: str, name: str, given: Mapping[str, object]) -> TensorInput:
    shape, batch_axis = _shape(where, given["shape"])
    kind = str(given.get("type", "float32")).removeprefix("torch.")
    if kind not in _TYPES:
        raise UsageError(f"{where}: no type {kind!r} here; choose float32, int64 (with a vocabulary) or bool")
    vocabulary, value = given.get("vocabulary"), given.get("value")
    if value is not None and not isinstance(value, (bool, int, float)):
        raise UsageError(f"{where}: value must be a number, True or False, not {_short(value)}")
    if kind != "int64" and vocabulary is not None:
        raise UsageError(f"{where}: only int64 has a vocabulary, and its type is {kind}")
    if kind == "int64" and value is None and not _is_size(vocabulary):
        told = "" if vocabulary is None else f", not {_short(vocabulary)}"
        raise UsageError(f'{where}: int64 needs a vocabulary of 1 or more, as in "vocabulary": 1000{told}')
    return TensorInput(
        name=name,
        shape=shape,
        batch_axis=batch_axis,
        type=kind,
        vocabulary=cast(int, vocabulary or 0),
        value=value,
    )


def _shape(where: str, told: object) -> tuple[tuple[int, ...], int]:
    """Return the shape of one sample, and the position of the batch dimension."""
    sizes = list(cast(tuple[object, ...], told)) if isinstance(told, (tuple, list)) else [told]
    open_sizes = [number for number, size in enumerate(sizes) if isinstance(size, str)]
    if [sizes[number] for number in open_sizes] not in ([], [BATCH]):
        raise UsageError(f"{where}: the only size with a name is {BATCH!r}, once; not {_short(told)}")
    whole = [cast(int, size) for size in sizes if _is_size(size)]
    if len(whole) + len(open_sizes) != len(sizes) or math.prod(whole) > _MOST_VALUES:
        raise UsageError(f"{where}: a shape is whole numbers above 0, as in (128,), not {_short(told)}")
    return tuple(whole), open_sizes[0] if open_sizes else 0


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_VALUES


def _short(value: object) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}…"
