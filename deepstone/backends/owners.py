"""Finds the layer that a traced operation belongs to, by the layer names in programs, and divides a step's time.

Layer names are escaped so that frameworks accept them, and found again in the names that frameworks print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deepstone.backends.base import StepAccount
from deepstone.trace.timeline import Span, account

Part: TypeAlias = Literal["forward", "backward", "update", "data", "other"]

UPDATE = "optimizer_update"  # the scope of the update

_PREFIX = "layer_"
_SCOPE = re.compile(_PREFIX + r"[A-Za-z0-9_]+")
_NUMBER = re.compile(r"_\d+$")  # TensorFlow adds it to a repeated name
_BACKWARD = re.compile(r"transpose\(|rematted_computation|gradient_tape/")


def scope_name(layer: str) -> str:
    """Return a unique name of letters, digits and underscores: other characters are replaced by their code."""
    return _PREFIX + re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", layer)


class Scopes:
    """Maps names of operations to the layers of one graph."""

    def __init__(self, layers: Iterable[str]) -> None:
        self._layers = {scope_name(layer): layer for layer in layers}

    def layer(self, operation: str) -> str | None:
        """Return the layer whose scope is in an operation's name; of nested scopes, the innermost."""
        found = self._found(operation)
        return None if found is None else found[0]

    def is_again(self, operation: str) -> bool:
        """Whether the scope was entered again; TensorFlow then adds a number."""
        found = self._found(operation)
        return found is not None and found[1]

    def _found(self, operation: str) -> tuple[str, bool] | None:
        for scope in reversed(_SCOPE.findall(operation)):
            if scope in self._layers:
                return self._layers[scope], False
            # An escaped name never ends with an underscore and digits, so the cut never removes a part of it.
            first = _NUMBER.sub("", scope)
            if first in self._layers:
                return self._layers[first], True
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A layer's forward or backward pass, the update, the data, or another named part."""

    part: Part
    name: str = ""

    @property
    def is_layer(self) -> bool:
        return self.part in ("forward", "backward")


def step_account(
    spans: Iterable[Span[Owner]], *, start_s: float, end_s: float, expected: Iterable[Owner] = ()
) -> StepAccount:
    """Divide one step, from `start_s` to `end_s`. `expected` layers are included even without time."""
    found = account(spans, start_s=start_s, end_s=end_s)
    owned_s = dict.fromkeys(expected, 0.0) | found.owned_s
    return StepAccount(
        end_s - start_s,
        {(owner.name, owner.part): owned for owner, owned in owned_s.items() if owner.is_layer},
        data_s=owned_s.get(Owner(part="data"), 0.0),
        update_s=owned_s.get(Owner(part="update"), 0.0),
        gaps_s=found.idle_s,
        other={owner.name: owned for owner, owned in owned_s.items() if owner.part == "other"},
    )


def owner_of(operation: str, scopes: Scopes) -> Owner | None:
    """Return the owner of an operation from its name in the framework, or None if the name does not show it.

    JAX writes `transpose(jvp(layer))/…` in backward and `rematted_computation` for a forward that it repeats there;
    TensorFlow adds the prefix `gradient_tape/`, and numbers the scope of a layer that it repeats there.
    """
    if UPDATE in operation:
        return Owner(part="update")
    layer = scopes.layer(operation)
    if layer is None:
        return None
    backward = _BACKWARD.search(operation) is not None or scopes.is_again(operation)
    return Owner(part="backward" if backward else "forward", name=layer)
