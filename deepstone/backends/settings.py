"""Settings of a step that all current backends take from a request unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepstone.backends.base import Unsupported
from deepstone.graph.graph import Graph
from deepstone.graph.space_to_depth import why_not
from deepstone.setups.rules import broken_rule
from deepstone.setups.world import World


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSettings:
    """A backend's own settings extend these."""

    phase: str
    optimizer: str
    dropout: bool
    input_grad: bool
    checkpointing: bool
    input: str
    seed: int
    accumulate: int
    space_to_depth: bool

    @property
    def training(self) -> bool:
        """Whether batch norm updates its statistics and dropout drops: always, except in evaluation."""
        return self.phase != "forward"


def step_settings(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of StepSettings, for a backend's own settings."""
    return {
        "phase": str(request["phase"]),
        "optimizer": str(request["optimizer"]),
        "dropout": request["dropout"] == "on",
        "input_grad": request["input_grad"] == "on",
        "checkpointing": request["checkpointing"] == "on",
        "input": str(request["input"]),
        "seed": int(request["seed"]),
        "accumulate": int(request["accumulate"]),
        "space_to_depth": request["space_to_depth"] == "on",
    }


def refuse_nothing_to_rewrite(graph: Graph, settings: StepSettings) -> None:
    reason = why_not(graph) if settings.space_to_depth else ""
    if reason:
        raise Unsupported(reason)


def refuse_broken_rules(request: Mapping[str, Any], device: str) -> None:
    """Rules are checked once more with the device that `auto` became. They are about the batch of the whole job."""
    whole = int(request["batch"]) * World.of(request).data_ranks
    reason = broken_rule({**request, "device": device, "batch": whole})
    if reason:
        raise Unsupported(reason)
