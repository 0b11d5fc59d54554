"""How much of a whole step rounding alone decides: the reference once more, with every weight moved by its last bits.

A deep network can be so sensitive that float64 does not settle its loss. What rounding decides is no sign of an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepstone.checks.agreement import Distance
from deepstone.checks.whole_step import ReferenceSteps, loss_errors, reference_steps
from deepstone.graph.graph import Graph
from deepstone.runner.launch import Tell

ROOM = 16.0  # times what the moved weights do: which choices rounding turns is chance
MOST_ROOM = 1e-3  # a loss that may be off by more tells nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """By how much the loss of each step moves, relative to the first, when every weight moves by its last bits."""

    moved: tuple[float, ...]

    def tolerances(self, least: float) -> list[float]:
        return [max(least, ROOM * moved) for moved in self.moved]

    @property
    def steps_that_tell(self) -> int:
        """How many steps, from the first on, have a loss that rounding does not decide."""
        decided = (number for number, moved in enumerate(self.moved) if ROOM * moved > MOST_ROOM)
        return next(decided, len(self.moved))

    def told(self) -> str:
        """Why not all is compared as sharply as elsewhere."""
        tell, steps = self.steps_that_tell, len(self.moved)
        moves = "every weight moved by its last bits moves the reference's own"
        if tell == steps:
            return f"{moves} loss by {max(self.moved):.0e}, and {ROOM:.0f} times that is allowed"
        which = "the loss" if steps == 1 else f"the loss from step {tell + 1} on"
        return f"{which} is not compared: {moves} by {self.moved[tell]:.0e}"

    def worst_of(self, errors: Sequence[float], least: float, layer: str) -> Distance | None:
        """The step furthest beyond what rounding does, among those that tell something."""
        compared = [
            Distance(layer=layer, what=f"loss of step {number}", relative_error=error, tolerance=tolerance)
            for number, (error, tolerance) in enumerate(zip(errors, self.tolerances(least), strict=True), 1)
        ][: self.steps_that_tell]
        return max(compared, key=lambda distance: distance.badness, default=None)


def find_sensitivity(
    graph: Graph, expected: ReferenceSteps, *, batch: int, seed: int, phase: str, tell: Tell
) -> Sensitivity:
    moved = reference_steps(graph, batch=batch, seed=seed, phase=phase, tell=tell, moved=True)
    return Sensitivity(moved=tuple(loss_errors(moved.losses, expected)))
