"""Looking into a result that anyone may have written: what is not as it should be is refused, with its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from deepstone.absent import Absent
from deepstone.records.schema import is_absent
from deepstone.records.shape import Place, as_list, as_object, refuse, refuse_because
from deepstone.report.figure import Value
from deepstone.report.wording import LONGEST_SENTENCE, harmless

_LARGEST: Final = 1e30  # no time, byte or FLOP count is beyond it, and sums of such stay finite
_NOT_THERE: Final = "this result does not tell"


@dataclass(frozen=True, slots=True)
class Node:
    """An object within a result, and the way to it."""

    items: Mapping[str, object]
    where: Place = None

    @staticmethod
    def of(value: object, where: Place = None) -> Node:
        return Node(as_object(value, where), where)

    def has(self, key: str) -> bool:
        return key in self.items and not is_absent(self.items[key])

    def why_absent(self, key: str) -> str:
        return _reason(self.items[key]) if key in self.items else _NOT_THERE

    def sentence(self, key: str) -> str:
        """What tells how numbers were made: cut in the middle, it would say something else."""
        value = self._needed(key)
        if not isinstance(value, str):
            refuse((self.where, key), "text", value)
        return harmless(value, LONGEST_SENTENCE)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._needed(key) if default is None else self.items.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        if is_absent(value) and default is not None:
            return default
        if not isinstance(value, str):
            refuse((self.where, key), "text", value)
        return harmless(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of words; none when there is no list."""
        if not self.has(key):
            return ()
        place = (self.where, key)
        return tuple(_text(word, (place, at)) for at, word in enumerate(as_list(self.items[key], place)))

    def yes(self, key: str) -> bool:
        return self.items.get(key) is True

    def node(self, key: str) -> Node:
        return Node.of(self._needed(key), (self.where, key))

    def nodes(self, key: str) -> list[Node]:
        place = (self.where, key)
        return [Node.of(item, (place, at)) for at, item in enumerate(as_list(self._needed(key), place))]

    def named_nodes(self, key: str) -> dict[str, Node]:
        place = (self.where, key)
        return {harmless(name): Node.of(item, (place, name)) for name, item in self.node(key).items.items()}

    def number(self, key: str) -> float:
        return _number(self._needed(key), (self.where, key))

    def amount(self, key: str) -> float | Absent:
        """A number of at least 0, or why there is none."""
        if not self.has(key):
            return Absent(self.why_absent(key))
        value = self.number(key)
        if value < 0:
            refuse((self.where, key), "a number of at least 0", value)
        return value

    def value(self, key: str) -> Value | Absent:
        """A quantity {median, low, high, n}, a plain number, or why there is none."""
        if not self.has(key):
            return Absent(self.why_absent(key))
        if not isinstance(self.items[key], dict):
            return Value(middle=self.number(key))
        quantity = self.node(key)
        low, middle, high = (quantity.number(part) for part in ("low", "median", "high"))
        if not low <= middle <= high:
            refuse_because(quantity.where, "must have low ≤ median ≤ high")
        return Value(middle=middle, low=low, high=high, n=quantity.count("n"))

    def count(self, key: str) -> int | None:
        """A whole number of at least 0, or nothing where it does not say."""
        if not self.has(key):
            return None
        value = self.items[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            refuse((self.where, key), "a whole number of at least 0", value)
        return value

    def _needed(self, key: str) -> object:
        if key not in self.items:
            refuse_because((self.where, key), "is missing")
        return self.items[key]


def _number(value: object, where: Place) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        refuse(where, "a finite number", value)
    if abs(value) > _LARGEST:
        refuse(where, f"a number of at most {_LARGEST:g}", value)
    return float(value)


def _text(value: object, where: Place) -> str:
    if not isinstance(value, str):
        refuse(where, "text", value)
    return harmless(value)


def _reason(value: object) -> str:
    reason = cast(Mapping[str, object], value)["absent"] if is_absent(value) else ""
    return harmless(reason) if isinstance(reason, str) and reason else _NOT_THERE
