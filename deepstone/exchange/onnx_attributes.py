"""The attributes of one ONNX node, each asked for by name and type. What nobody asked for is refused by name."""

from __future__ import annotations

import math

from deepstone.exchange.onnx_file import Attribute, Constant, Node, readable
from deepstone.graph.ops import Pair


class Refused(ValueError):
    """Why a node has no layer here; the reader adds its name."""


class Attributes:
    def __init__(self, node: Node) -> None:
        self._left: dict[str, Attribute] = dict(node.attributes)

    def whole(self, name: str, default: int) -> int:
        value = self._left.pop(name, default)
        if not isinstance(value, int):
            raise Refused(f"{name} is not a whole number")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._left.pop(name, default)
        if not isinstance(value, float) or not math.isfinite(value):
            raise Refused(f"{name} is not a finite number")
        return value

    def word(self, name: str, default: str) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str):
            raise Refused(f"{name} is not text")
        return value

    def wholes(self, name: str) -> tuple[int, ...] | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise Refused(f"{name} is not a list of whole numbers")
        found = tuple(each for each in value if isinstance(each, int))
        if len(found) != len(value):
            raise Refused(f"{name} is not a list of whole numbers")
        return found

    def pair(self, name: str, default: Pair | None = None) -> Pair:
        found = self.wholes(name)
        if found is None and default is not None:
            return default
        if found is None or len(found) != 2:
            raise Refused(f"{name} must be 2 whole numbers, one per side of an image; it {_has(found)}")
        return found[0], found[1]

    def array(self, name: str) -> Constant | None:
        value = self._left.pop(name, None)
        if value is not None and not isinstance(value, Constant):
            raise Refused(f"{name} is not an array")
        return value

    def only(self, name: str, *allowed: int | float, default: int | float) -> None:
        """An attribute that has a layer here with these values alone."""
        value = self._left.pop(name, default)
        if value not in allowed:
            raise Refused(f"{name}={readable(str(value))} has no layer here; only {' or '.join(map(str, allowed))} has")

    def ignore(self, *names: str) -> None:
        for name in names:
            self._left.pop(name, None)

    def finish(self) -> None:
        if self._left:
            unknown = ", ".join(sorted(readable(name) for name in self._left))
            raise Refused(f"has attributes that are not known here: {unknown}")


def _has(found: tuple[int, ...] | None) -> str:
    return "is missing" if found is None else f"has {len(found)}"
