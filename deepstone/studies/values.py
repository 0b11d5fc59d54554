"""The values of one axis in a study: a list or a range, with words for values that depend on the machine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from deepstone.errors import UsageError, nearest, shown
from deepstone.setups.axes import AXES, MOST_BATCH, Value

CORES: Final = "cores"  # of a count: as many as this process may keep busy; also a part or a multiple: cores/2
INSTALLED: Final = "installed"  # of framework: each of today whose environment is there
EVERY_VERSION: Final = "every-version"  # of framework: each environment that is there, those of legacy frameworks too
BUSY: Final = "busy"  # of batch: the smallest that keeps the device busy; also busy/8 or busy*4
FRAMEWORK_WORDS: Final = (INSTALLED, EVERY_VERSION)
RANGE_KEYS: Final = ("from", "to", "step", "times")
_MOST: Final = 2**31 - 1
_WORD_FORM: Final = re.compile(rf"({CORES}|{BUSY})(?:([*/])([1-9][0-9]{{0,3}}))?")


class Here(Struct, frozen=True, kw_only=True):
    """The meaning of the words on this machine."""

    cores: int
    frameworks: tuple[str, ...]
    versions: tuple[str, ...] = ()
    busy: int = 1024  # for the network in question


class Listed(Struct, frozen=True, kw_only=True):
    """Checked values, with `cores`, `busy`, `installed` and `every-version` still as words."""

    values: tuple[Value, ...]


class Range(Struct, frozen=True, kw_only=True):
    """From `start` to `stop` in steps, or each `times` the previous one. The number of cores is always included."""

    start: int
    stop: int | None  # None: the number of cores
    step: int = 0
    times: int = 0

    def last(self, here: Here) -> int:
        return here.cores if self.stop is None else self.stop

    def count(self, here: Here) -> int:
        """Return how many there are, without making them."""
        last = self.last(here)
        if last < self.start:
            return 1 if self.stop is None else 0
        if self.step:
            regular = (last - self.start) // self.step + 1
            end = self.start + (regular - 1) * self.step
        else:
            regular = int(math.log(last / self.start, self.times)) + 1
            while self.start * self.times**regular <= last:  # the logarithm may be rounded down below a whole number
                regular += 1
            while self.start * self.times ** (regular - 1) > last:
                regular -= 1
            end = self.start * self.times ** (regular - 1)
        return regular + (self.stop is None and end != last)

    def values(self, here: Here) -> Iterator[int]:
        last, value = self.last(here), self.start
        while value < last:
            yield value
            value = value + self.step if self.step else value * self.times
        if value == last or self.stop is None:
            yield last


Values: TypeAlias = Listed | Range


def names_busy(values: Values) -> bool:
    return isinstance(values, Listed) and any(_word_of(value) == BUSY for value in values.values)


def _word_of(value: Value) -> str:
    """`cores` or `busy`, where the value is one of them, a part or a multiple of it; else nothing."""
    match = _WORD_FORM.fullmatch(str(value))
    return "" if match is None else match[1]


def _number(value: Value, here: Here) -> Value:
    match = _WORD_FORM.fullmatch(str(value))
    if match is None:
        return value
    whole, factor = here.cores if match[1] == CORES else here.busy, int(match[3] or 1)
    return max(1, whole // factor) if match[2] == "/" else min(MOST_BATCH, whole * factor)


def parse_value(axis: str, given: object) -> Value:
    """Parse one value of an axis. Raises UsageError if it is invalid."""
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise UsageError(f"{axis}: a value is text or a whole number, not {brief(given)}")
    if given in FRAMEWORK_WORDS and axis == "framework":
        return given
    word = _word_of(given)
    if (word == CORES and AXES[axis].type == "count") or (word == BUSY and axis == "batch"):
        return given
    return AXES[axis].parse(str(given))


def parse_range(axis: str, given: Mapping[str, object]) -> Range:
    """Parse a range of a count axis. Raises UsageError if it is invalid."""
    if AXES[axis].type != "count":
        raise UsageError(f"{axis}: takes no range; list its values")
    unknown = next((key for key in given if key not in RANGE_KEYS), None)
    if unknown is not None:
        raise UsageError(f"{shown(unknown)}: no such key of a range; {nearest(unknown, RANGE_KEYS)}")
    missing = next((key for key in ("from", "to") if key not in given), None)
    if missing is not None or ("step" in given) == ("times" in given):
        raise UsageError(
            f"{axis}: a range has from, to, and either step or times, as in {{from = 1, to = 8, times = 2}}"
        )
    start = _bound(axis, "from", given["from"])
    stop = None if given["to"] == CORES else _bound(axis, "to", given["to"])
    if stop is not None and stop < start:
        raise UsageError(f"{axis}: the range ends at {stop}, before it begins at {start}")
    if "step" in given:
        return Range(start=start, stop=stop, step=_whole(axis, "step", given["step"], least=1))
    if start < 1:
        raise UsageError(f"{axis}: a range with times must begin at 1 or above")
    return Range(start=start, stop=stop, times=_whole(axis, "times", given["times"], least=2))


def count(values: Values, here: Here) -> int:
    """Return an upper bound on the number of values here, without expanding ranges."""
    return values.count(here) if isinstance(values, Range) else len(resolve(values, here))


def resolve(values: Values, here: Here) -> tuple[Value, ...]:
    """Return the values on this machine, each once, in their order."""
    if isinstance(values, Range):
        return tuple(values.values(here))
    found: dict[Value, None] = {}
    for value in values.values:
        if value == INSTALLED:
            found |= dict.fromkeys(here.frameworks)
        elif value == EVERY_VERSION:
            found |= dict.fromkeys(here.versions)
        else:
            found[_number(value, here)] = None
    return tuple(found)


def _bound(axis: str, key: str, given: object) -> int:
    """Check that an end of a range is a value of the axis."""
    value = AXES[axis].parse(str(_whole(axis, key, given, least=0)))
    assert isinstance(value, int)
    return value


def _whole(axis: str, key: str, given: object, *, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= _MOST:
        also = f' or "{CORES}"' if key == "to" else ""
        raise UsageError(f"{axis}: {key} must be a whole number from {least}{also}, not {brief(given)}")
    return given


def brief(given: object) -> str:
    """Format a value for a message."""
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:60]}…"
