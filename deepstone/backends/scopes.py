"""Names of layers inside compiled programs: made so that frameworks take them, found again in the names they print."""

from __future__ import annotations

import re
from collections.abc import Iterable

UPDATE = "optimizer_update"  # the scope of the update

_PREFIX = "layer_"
_SCOPE = re.compile(_PREFIX + r"[A-Za-z0-9_]+")
_NUMBER = re.compile(r"_\d+$")  # what TensorFlow adds to a name that it has seen before


def scope_name(layer: str) -> str:
    """Letters, digits and underscores, and no two layers share one: what is neither letter nor digit is its code."""
    return _PREFIX + re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", layer)


class Scopes:
    """From names of operations back to the layers of one graph."""

    def __init__(self, layers: Iterable[str]) -> None:
        self._layers = {scope_name(layer): layer for layer in layers}

    def layer(self, operation: str) -> str | None:
        """The layer whose scope an operation's name carries; of several, one inside the other, the innermost."""
        found = self._found(operation)
        return None if found is None else found[0]

    def is_again(self, operation: str) -> bool:
        """Whether the scope was entered for the second time or later, as TensorFlow then numbers it."""
        found = self._found(operation)
        return found is not None and found[1]

    def _found(self, operation: str) -> tuple[str, bool] | None:
        for scope in reversed(_SCOPE.findall(operation)):
            if scope in self._layers:
                return self._layers[scope], False
            # An escaped name never ends with an underscore and digits, so what is cut off is never its own.
            first = _NUMBER.sub("", scope)
            if first in self._layers:
                return self._layers[first], True
        return None
