"""Whole steps: the reference's losses and gradients, a framework's distance from them, and the effect of rounding.

A deep network can be so sensitive that rounding in float64 changes its loss. So the reference runs again with every
weight changed in its last bits: a difference of that size is not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from deepstone.checks.agreement import norm, relative_error
from deepstone.graph import reference
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.results.sameness import Distance
from deepstone.runner.measurement import OnProgress

STEPS = 5
GRADIENT_TOLERANCE = 1e-9  # in float64
LOSS_TOLERANCE = 1e-8  # in float64, after STEPS steps
PERTURBATION = 64 * float(np.finfo(np.float64).eps)  # about the effect of summing in another order
MARGIN = 16.0  # times the effect of the perturbation: which choices rounding flips is random
LARGEST_TOLERANCE = 1e-3  # a loss with a larger one is not compared
_LEAST_SHARE = 1e-6  # a tensor's error is relative to at least this share of the largest gradient's norm
_LEAST_LOSS = 1e-3  # relative errors of smaller losses mean nothing


class ReferenceSteps(Struct, frozen=True, kw_only=True):
    """The result in float64 NumPy: the loss of each step, and the gradients of the first by `layer/parameter`."""

    losses: list[float]
    gradients: Mapping[str, NDArray[Any]]


def reference_steps(
    graph: Graph, *, batch: int, seed: int, phase: str, on_progress: OnProgress, perturbed: bool = False
) -> ReferenceSteps:
    """Run one evaluation for phase=forward, one step for gradient, STEPS of them for train.

    `perturbed`: change every weight in its last bits in float64, up or down.
    """
    samples, labels = synthetic_batch(graph, batch, seed)
    parameters: Mapping[str, reference.Given] = initial_parameters(graph, seed, generic=True)
    if perturbed:
        parameters = _perturbed(parameters, seed)
    on_progress("float64 reference", 0.0)
    if phase == "forward":
        outputs = reference.forward_all(graph, parameters, samples, labels, training=False)
        return ReferenceSteps(losses=[float(sum(outputs[layer.name].value for layer in graph.losses))], gradients={})
    losses: list[float] = []
    gradients: dict[str, NDArray[np.float64]] = {}
    velocities: Mapping[str, reference.Given] | None = None
    for number in range(STEPS if phase == "train" else 1):
        result = reference.step(graph, parameters, samples, labels)
        losses.append(result.loss)
        gradients = gradients or _flat(result.parameter_gradients)
        parameters, velocities = reference.sgd_momentum_update(parameters, result.parameter_gradients, velocities)
        on_progress("float64 reference", (number + 1) / STEPS)
    return ReferenceSteps(losses=losses, gradients=gradients)


def worst_gradient(given: Mapping[str, NDArray[Any]], expected: ReferenceSteps, tolerance: float) -> Distance:
    """Return the gradient that is furthest from the reference."""
    floor = _LEAST_SHARE * max(norm(array) for array in expected.gradients.values())
    errors = {name: relative_error(given.get(name), array, floor=floor) for name, array in expected.gradients.items()}
    name = max(errors, key=lambda name: errors[name])
    layer, _, parameter = name.rpartition("/")
    return Distance.of(layer=layer, what=f"gradient of {parameter}", relative_error=errors[name], tolerance=tolerance)


def worst_loss(given: list[float], expected: ReferenceSteps, tolerance: float, layer: str) -> Distance:
    """Return the step whose loss is furthest from the reference, relative to the first loss."""
    errors = loss_errors(given, expected)
    number = errors.index(max(errors))
    what = f"loss of step {number + 1}" if len(errors) > 1 else "loss"
    return Distance.of(layer=layer, what=what, relative_error=float(errors[number]), tolerance=tolerance)


def loss_errors(given: list[float], expected: ReferenceSteps) -> list[float]:
    """Return the error of each step, relative to the first loss."""
    scale = max(abs(expected.losses[0]), _LEAST_LOSS)
    return [relative_error(np.array(a), np.array(b), floor=scale) for a, b in zip(given, expected.losses, strict=True)]


def _perturbed(parameters: Mapping[str, reference.Given], seed: int) -> dict[str, reference.Given]:
    random = np.random.default_rng(seed)

    def perturb(values: NDArray[Any]) -> NDArray[np.float64]:
        signs = random.integers(0, 2, size=values.shape) * 2 - 1
        return values.astype(np.float64) * (1 + PERTURBATION * signs)

    return {
        layer: {name: perturb(np.asarray(values)) for name, values in arrays.items()}
        for layer, arrays in parameters.items()
    }


def _flat(gradients: reference.LayerArrays) -> dict[str, NDArray[np.float64]]:
    return {f"{layer}/{name}": array for layer, arrays in gradients.items() for name, array in arrays.items()}


class Sensitivity(Struct, frozen=True, kw_only=True):
    """How much the loss of each step changes, relative to the first, if every weight changes in its last bits."""

    moved: tuple[float, ...]

    def tolerances(self, least: float) -> list[float]:
        return [max(least, MARGIN * moved) for moved in self.moved]

    @property
    def comparable_steps(self) -> int:
        """Return how many of the first steps have a loss that rounding does not dominate."""
        decided = (number for number, moved in enumerate(self.moved) if MARGIN * moved > LARGEST_TOLERANCE)
        return next(decided, len(self.moved))

    def description(self) -> str:
        """Describe why some losses are compared less strictly or not at all."""
        clear, steps = self.comparable_steps, len(self.moved)
        moves = "every weight moved by its last bits moves the reference's own"
        if clear == steps:
            return f"{moves} loss by {max(self.moved):.0e}, and {MARGIN:.0f} times that is allowed"
        which = "the loss" if steps == 1 else f"the loss from step {clear + 1} on"
        return f"{which} is not compared: {moves} by {self.moved[clear]:.0e}"

    def worst_of(self, errors: Sequence[float], least: float, layer: str) -> Distance | None:
        """Return the worst of the comparable steps, relative to the effect of rounding."""
        compared = [
            Distance.of(layer=layer, what=f"loss of step {number}", relative_error=error, tolerance=tolerance)
            for number, (error, tolerance) in enumerate(zip(errors, self.tolerances(least), strict=True), 1)
        ][: self.comparable_steps]
        return max(compared, key=lambda distance: distance.badness, default=None)


def find_sensitivity(
    graph: Graph, expected: ReferenceSteps, *, batch: int, seed: int, phase: str, on_progress: OnProgress
) -> Sensitivity:
    moved = reference_steps(graph, batch=batch, seed=seed, phase=phase, on_progress=on_progress, perturbed=True)
    return Sensitivity(moved=tuple(loss_errors(moved.losses, expected)))
