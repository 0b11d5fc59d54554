"""Reads the words of `deepstone comm`: which operations, sizes, transports and numbers of processes to measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deepstone.errors import UsageError, nearest, shown
from deepstone.setups.axes import AXES, Value
from deepstone.setups.request import complete, parse_words
from deepstone.setups.transfers import TRANSFERS
from deepstone.setups.world import World

DEFAULT_SIZES: Final = "1K..64M"
OWN_WORDS: Final = ("operation", "size")
MOST_BYTES: Final = 2**32
_LEAST_BYTES: Final = 4
_GROWTH: Final = 4  # from one size of a range to the next
_MOST_SIZES: Final = 64
_SIZE: Final = re.compile(r"([0-9]{1,12})([kmg]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3}
_LISTS: Final = ("transport", "processes")
_ALLOWED: Final = ("framework", "device", "nodes", "launcher", "interface", "threads", "affinity", *_LISTS)
_OF_A_MODEL: Final = ("batch", "bucket", "overlap")


class CommWords(Struct, frozen=True, kw_only=True):
    """`lanes`: the axes of each transport and number of processes. `sizes`: empty for a model's own buckets.
    `by_name`: whether operations were asked for."""

    model: str | None
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    lanes: tuple[dict[str, Value], ...]
    by_name: bool = False


def read_words(words: Sequence[str]) -> CommWords:
    """Raises UsageError with one line for the first mistake."""
    model, rest = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    own = {word.partition("=")[0]: word.partition("=")[2] for word in rest if word.partition("=")[0] in OWN_WORDS}
    choices = parse_words([word for word in rest if word.partition("=")[0] not in OWN_WORDS])
    for name, values in choices.items():
        _check_axis(name, values, model)
    if model is not None and "size" in own:
        raise UsageError(f"size={shown(own['size'])}: the sizes are those of the gradients of {model}; leave it out")
    default = "allreduce" if model is not None else ",".join(TRANSFERS)
    given = {name: values[0] for name, values in choices.items() if name not in _LISTS}
    transports = choices.get("transport", [AXES["transport"].default])
    several = int(given.get("nodes", 1)) > 1
    counts = choices.get("processes", [AXES["processes"].default if several else 2])
    lanes = [{**given, "transport": transport, "processes": count} for count in counts for transport in transports]
    for lane in lanes:
        _check_processes(lane)
    return CommWords(
        model=model,
        operations=_operations(own.get("operation", default)),
        sizes=() if model is not None else parse_sizes(own.get("size", DEFAULT_SIZES)),
        lanes=tuple(lanes),
        by_name="operation" in own,
    )


def _check_axis(name: str, values: Sequence[Value], model: str | None) -> None:
    if name in _OF_A_MODEL and model is None:
        raise UsageError(f"{name}: says how a model is trained; name one, as in deepstone comm resnet50 {name}=…")
    if name not in (*_ALLOWED, *_OF_A_MODEL):
        raise UsageError(f"{name}: comm times operations between processes, not training; leave it out")
    if len(values) > 1 and name not in _LISTS:
        raise UsageError(f"{name}: comm takes one value; only {' and '.join(_LISTS)} may list several")


def _check_processes(lane: dict[str, Value]) -> None:
    world = World.of(complete(lane))
    if not world.is_parallel:
        raise UsageError(f"processes={lane['processes']}: one process has nobody to send to; give processes=2 or more")


def _operations(text: str) -> tuple[str, ...]:
    names = [name.strip().lower().replace("-", "") for name in text.split(",")]
    for name in names:
        if name not in TRANSFERS:
            raise UsageError(f"operation={shown(name)}: no such operation; {nearest(name, TRANSFERS)}")
    if len(set(names)) < len(names):
        raise UsageError(f"operation={shown(text)}: an operation is listed twice")
    return tuple(names)


def parse_sizes(text: str) -> tuple[int, ...]:
    """`1K..64M` is every fourth power of two from 1 KiB to 64 MiB, `1K..64M*2` every one, `1K,25M` just these."""
    found: set[int] = set()
    for part in text.split(","):
        found.update(_range(part.strip()))
    if len(found) > _MOST_SIZES:
        raise UsageError(f"size={shown(text)}: {len(found)} sizes; give at most {_MOST_SIZES}")
    return tuple(sorted(found))


def _range(text: str) -> list[int]:
    first, dots, rest = text.partition("..")
    last, star, factor = rest.partition("*")
    if not dots:
        return [_size(text)]
    begin, end = _size(first), _size(last)
    if begin > end:
        raise UsageError(f"size={shown(text)}: the range is reversed; write {shown(last)}..{shown(first)}")
    if star and not re.fullmatch(r"[2-9]|[1-9][0-9]{1,3}", factor):
        raise UsageError(f"size={shown(text)}: after * comes how much one size grows to the next, as in 1K..64M*2")
    growth, sizes = int(factor) if star else _GROWTH, [begin]
    while sizes[-1] * growth < end:
        sizes.append(sizes[-1] * growth)
    return [*sizes, end] if sizes[-1] < end else sizes


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * 1024 ** _POWERS[match[2].lower()] if match else 0
    if not _LEAST_BYTES <= size <= MOST_BYTES:
        raise UsageError(
            f"size={shown(text)}: not a size from {_LEAST_BYTES} bytes to 4G; write it as 64K or 25M, or a range as "
            f"{DEFAULT_SIZES}"
        )
    return size
