"""Reads a message field by field and collects its errors, so that a user sees all of them at once, in one line.

Every field must be read or explicitly ignored: any other field is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

from deepstone.errors import GraphError, nearest, shown
from deepstone.models.caffe.text import Kind, Message, Scalar, Value

_Read = TypeVar("_Read")

_LARGEST = 2**31 - 1
_TRUTHS = {"true": True, "True": True, "t": True, "1": True, "false": False, "False": False, "f": False, "0": False}
_MOST_SHOWN = 25
OTHERWISE = "write the network as a torch module and measure FILE.py:FUNCTION"
_MOST_KEPT = 1000


class FileErrors:
    """The errors in a file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: set[tuple[int, str]] = set()
        self._types: dict[tuple[str, str], list[int]] = {}

    @property
    def enough(self) -> bool:
        """Whether there are more errors than are shown."""
        return len(self._lines) >= _MOST_KEPT

    def add(self, line: int, what: str) -> None:
        if not self.enough:
            self._lines.add((line, what))

    def add_type(self, line: int, name: str, remedy: str = "") -> None:
        """A layer type that we do not have, and what to do about it if that is known."""
        self._types.setdefault((name, remedy), []).append(line)

    def raise_if_any(self) -> None:
        errors = [f"line {line}: {what}" for line, what in sorted(self._lines)]
        if self._types:
            types = [f"{shown(name)} ({_lines(lines)})" for (name, _), lines in self._types.items()]
            errors.insert(0, f"layer types that Deepstone does not have: {', '.join(_first(types))}")
            by_remedy: dict[str, list[str]] = {}
            for name, remedy in self._types:
                by_remedy.setdefault(remedy or OTHERWISE, []).append(shown(name))
            errors += [f"{', '.join(_first(names))}: {remedy}" for remedy, names in by_remedy.items()]
        if errors:
            separator = ", " if len(errors) == 1 and not self._types else ": "
            raise GraphError(f"{self.file}{separator}{'; '.join(_first(errors))}")


class Fields:
    """One message. `where` precedes a field's name in errors, as in `layer 'conv1': convolution_param.`"""

    def __init__(self, message: Message, where: str, errors: FileErrors) -> None:
        self.line = message.line
        self.errors = errors
        self._where = where
        self._values = message.fields
        self._read_names: set[str] = set()
        self._inner: dict[str, list[Fields]] = {}
        self._apart: set[str] = set()

    def has(self, name: str) -> bool:
        self._read_names.add(name)
        return name in self._values

    def error(self, what: str, line: int | None = None) -> None:
        self.errors.add(line or self.line, f"{self._where}{what}")

    def set_place(self, where: str) -> None:
        self._where = where

    def ignore(self, *names: str) -> None:
        """Ignore fields that have no effect here."""
        self._read_names.update(names)

    def line_of(self, name: str) -> int:
        return self._values[name][0].line if name in self._values else self.line

    def texts(self, name: str) -> list[str]:
        return [value.text for value in self._scalars(name, Kind.STRING)]

    def text(self, name: str) -> str:
        return self._one(name, self.texts(name), "")

    def word(self, name: str) -> str:
        return self._one(name, [value.text for value in self._scalars(name, Kind.WORD)], "")

    def wholes(self, name: str, *, least: int = 0) -> list[int]:
        return [self._whole(name, value, least) for value in self._scalars(name, Kind.NUMBER)]

    def whole(self, name: str, default: int, *, least: int = 0) -> int:
        return self._one(name, self.wholes(name, least=least), default)

    def numbers(self, name: str) -> list[float]:
        return [self._number(name, value) for value in self._scalars(name, Kind.NUMBER)]

    def number(self, name: str, default: float) -> float:
        return self._one(name, self.numbers(name), default)

    def decimal(self, name: str, default: str) -> Decimal:
        """Return the exact decimal value, so that 1 - 0.9 is 0.1."""
        text = self._one(name, [value.text for value in self._scalars(name, Kind.NUMBER)], default).rstrip("fF")
        if not re.fullmatch(r"-?[0-9.]{1,40}([eE][+-]?[0-9]{1,2})?", text):
            self.error(f"{name} must be a decimal number, not {text[:20]}", self.line_of(name))
            return Decimal(default)
        return Decimal(text)

    def truths(self, name: str) -> list[bool]:
        found: list[bool] = []
        for value in self._scalars(name, Kind.WORD, Kind.NUMBER):
            if value.text in _TRUTHS:
                found.append(_TRUTHS[value.text])
            else:
                self.error(f"{name} must be true or false, not {shown(value.text)}", value.line)
        return found

    def truth(self, name: str, default: bool) -> bool:
        return self._one(name, self.truths(name), default)

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of an enumeration's words; their numbers, from 0 in this order, mean the same."""
        found: list[str] = []
        for value in self._scalars(name, Kind.WORD, Kind.NUMBER):
            if value.text in choices:
                found.append(value.text)
            elif value.text.isdecimal() and value.text.isascii() and int(value.text[:9]) < len(choices):
                found.append(choices[int(value.text)])
            else:
                self.error(f"{name} must be one of {', '.join(choices)}, not {shown(value.text)}", value.line)
        return self._one(name, found, default)

    def messages(self, name: str, *, apart: bool = False) -> list[Fields]:
        """`apart`: the caller also refuses their unread fields."""
        if apart:
            self._apart.add(name)
        if name not in self._inner:
            self._inner[name] = [self._entered(name, value) for value in self._all(name) if isinstance(value, Message)]
            for value in self._all(name):
                if isinstance(value, Scalar):
                    self.error(f"{name} must be a message, as in {name} {{ … }}", value.line)
        return self._inner[name]

    def message(self, name: str) -> Fields:
        """Return the message, or an empty one, in which every field has its default."""
        found = self.messages(name)
        return self._one(name, found, self._entered(name, Message(line=self.line)))

    def _entered(self, name: str, message: Message) -> Fields:
        return Fields(message, f"{self._where}{name}.", self.errors)

    def refuse_leftovers(self, known_elsewhere: Mapping[str, str] | None = None) -> None:
        """Add an error for every unread field, in this message and in those that were read from it."""
        for name, values in self._values.items():
            if name in self._read_names or self.errors.enough:
                continue
            why = (known_elsewhere or {}).get(name) or f"no such field; {nearest(name, self._read_names)}"
            self.error(f"{name}: {why}", values[0].line)
        for name, inner in self._inner.items():
            for fields in inner if name not in self._apart else ():
                fields.refuse_leftovers()

    def _one(self, name: str, values: Sequence[_Read], default: _Read) -> _Read:
        given = self._values.get(name, [])
        if len(given) > 1:
            self.error(f"{name} is given {len(given)} times", given[1].line)
        return values[0] if values else default

    def _all(self, name: str) -> list[Value]:
        self._read_names.add(name)
        return self._values.get(name, [])

    def _scalars(self, name: str, *kinds: Kind) -> list[Scalar]:
        found: list[Scalar] = []
        for value in self._all(name):
            infinite = isinstance(value, Scalar) and value.kind is Kind.WORD and value.text.lower() in ("inf", "nan")
            if isinstance(value, Scalar) and (value.kind in kinds or (infinite and Kind.NUMBER in kinds)):
                found.append(value)
            else:
                what = value.kind.value if isinstance(value, Scalar) else "a message"
                self.error(f"{name} must be {' or '.join(kind.value for kind in kinds)}, not {what}", value.line)
        return found

    def _whole(self, name: str, value: Scalar, least: int) -> int:
        text = value.text.removeprefix("-")
        base = 16 if text[:2] in ("0x", "0X") else 8 if re.fullmatch("0[0-7]+", text) else 10
        digits = text[2:] if base == 16 else text
        if re.fullmatch(r"[0-9A-Fa-f]{1,12}" if base == 16 else r"[0-9]{1,12}", digits):
            number = int(digits, base) * (-1 if value.text.startswith("-") else 1)
            if least <= number <= _LARGEST:
                return number
        short = value.text if len(value.text) < 20 else f"{value.text[:19]}…"
        self.error(f"{name} must be a whole number from {least} to {_LARGEST}, not {short}", value.line)
        return max(least, 1)

    def _number(self, name: str, value: Scalar) -> float:
        text = value.text.lower()
        sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
        if digits.startswith("0x"):
            number = float(int(digits[2:22], 16))
        else:
            number = float(digits if digits in ("inf", "infinity", "nan") else digits.rstrip("f"))
        if not math.isfinite(number):
            self.error(f"{name} must be a finite number, not {value.text[:20]}", value.line)
            return 1.0
        return sign * number


def _lines(lines: Sequence[int]) -> str:
    word = "line" if len(lines) == 1 else "lines"
    return f"{word} {', '.join(_first([str(line) for line in lines]))}"


def _first(items: Sequence[str]) -> list[str]:
    """Return as many as are shown."""
    left = len(items) - _MOST_SHOWN
    return [*items[:_MOST_SHOWN], *([f"and {left} more"] if left > 0 else [])]
