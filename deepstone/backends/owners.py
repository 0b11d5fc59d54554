"""Whom a traced operation belongs to, and what a step's time becomes once every operation has an owner."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deepstone.backends.base import StepAccount
from deepstone.backends.scopes import UPDATE, Scopes
from deepstone.backends.traced import Traced
from deepstone.measure.timeline import Span, account

_BACKWARD = re.compile(r"transpose\(|rematted_computation|gradient_tape/")

Part: TypeAlias = Literal["forward", "backward", "update", "data", "other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A layer's forward or backward pass, the update, the data, or something else that has a name."""

    part: Part
    name: str = ""

    @property
    def is_layer(self) -> bool:
        return self.part in ("forward", "backward")


def span_of_data(event: Traced) -> Span[Owner]:
    """An event in which the batch was copied."""
    return Span(start_s=event.start_s, end_s=event.end_s, owners={Owner(part="data"): 1.0})


def step_account(
    spans: Iterable[Span[Owner]], *, start_s: float, end_s: float, expected: Iterable[Owner] = ()
) -> StepAccount:
    """One step, from `start_s` to `end_s`. Layers that are `expected` are there even if no time fell to them."""
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
    """Who an operation belongs to by the name that its framework gave it, or None where that says nothing.

    JAX writes `transpose(jvp(layer))/…` in backward and `rematted_computation` where forward is run again there;
    TensorFlow puts `gradient_tape/` in front, and numbers the scope of a layer that it runs again there.
    """
    if UPDATE in operation:
        return Owner(part="update")
    layer = scopes.layer(operation)
    if layer is None:
        return None
    backward = _BACKWARD.search(operation) is not None or scopes.is_again(operation)
    return Owner(part="backward" if backward else "forward", name=layer)
