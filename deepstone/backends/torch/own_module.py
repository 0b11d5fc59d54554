"""A user's own `torch.nn.Module`: made by the named function, and run unchanged as one layer of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from deepstone.backends.base import Unsupported
from deepstone.backends.torch.own_dropout import turn_off_inner, turn_off_layers
from deepstone.backends.torch.own_step import OwnStep, read_step
from deepstone.errors import UsageError
from deepstone.graph import ops
from deepstone.graph.graph import Graph
from deepstone.models.program import call_to_stay, explaining
from deepstone.models.reading import read_file, sha256_of

INPUT_SHAPE: Final = "INPUT_SHAPE"  # what a file may say of the images its module takes
_USUAL_SHAPE: Final = (3, 224, 224)
_TRIAL_BATCH: Final = 2  # batch norm in training needs more than one


class OwnModule(nn.Module):
    """Runs the module on the inputs of a step, and turns its dropout off if the job requests it.

    `step` describes its inputs and loss; without it the module takes images, and its first output counts.
    """

    def __init__(self, inner: nn.Module, *, dropout: bool, step: OwnStep | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.step = step
        self._dropout = dropout
        self._run: Callable[[nn.Module, Any], Tensor] = _first_output if step is None else step.runner(inner)
        if not dropout:
            turn_off_inner(inner)

    def forward(self, given: Any) -> Tensor:
        return self._run(self.inner, given)

    def train(self, mode: bool = True) -> OwnModule:
        super().train(mode)
        if not self._dropout:
            turn_off_layers(self.inner)
        return self


def _first_output(inner: nn.Module, images: Tensor) -> Tensor:
    output = inner(images)
    return output[0] if isinstance(output, (tuple, list)) else output


def own_module(op: ops.Module | ops.ModuleLoss, *, dropout: bool) -> OwnModule:
    """Return the graph's module, with its own initial values."""
    path = Path(op.path)
    content = read_file(path)
    if sha256_of(content) != op.sha256:
        raise Unsupported(f"{path} is not the file that this job was planned with; it was changed since")
    inner, program = call_to_stay(path, content, op.function)
    if not isinstance(inner, nn.Module):
        raise Unsupported(f"{path}: {op.function} returned {type(inner).__name__}, not a torch.nn.Module")
    return OwnModule(inner, dropout=dropout, step=read_step(path, vars(program)))


def describe(path: Path, function: str) -> dict[str, Any]:
    """Describe the module for the controller's plan. Raises UsageError with one line if the file makes nothing that can
    run."""
    content = read_file(path)
    made, program = call_to_stay(path, content, function)
    if isinstance(made, Graph):
        return {"graph": made.to_json(), "sha256": sha256_of(content)}
    if not isinstance(made, nn.Module):
        raise UsageError(
            f"{path}: {function} returned {type(made).__name__}; it must return a torch.nn.Module or a Graph"
        )
    parameters = list(made.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise UsageError(f"{path}: the module that {function} returned has nothing to train")
    known = {
        "sha256": sha256_of(content),
        "weights": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    }
    step = read_step(path, vars(program))
    if step is not None:
        step.check(made, path, function)
        return {
            **known,
            "values": step.spec.values,
            "inputs": step.spec.words,
            "unit": step.unit,
            "units_per_sample": step.units_per_sample,
            "own_optimizer": step.optimizer is not None,
        }
    shape = _input_shape(path, getattr(made, INPUT_SHAPE.lower(), vars(program).get(INPUT_SHAPE)))
    return {**known, "input_shape": list(shape), "features": _features(made, shape, path, function)}


def _input_shape(path: Path, told: object) -> tuple[int, int, int]:
    if told is None:
        return _USUAL_SHAPE
    sides = tuple(cast(Sequence[object], told)) if isinstance(told, (tuple, list)) else ()
    whole = [side for side in sides if isinstance(side, int) and not isinstance(side, bool) and side > 0]
    if len(sides) != 3 or len(whole) != 3:
        raise UsageError(f"{path}: its input shape must be (channels, height, width), not {told!r}")
    return whole[0], whole[1], whole[2]


def _features(module: nn.Module, shape: tuple[int, int, int], path: Path, function: str) -> int:
    """Return the count of outputs per image, from one run as in training."""
    images = torch.zeros(_TRIAL_BATCH, *shape)
    size = "x".join(map(str, images.shape))
    try:
        with torch.no_grad(), explaining(path, function):
            output: object = OwnModule(module.train(), dropout=True)(images)
    except UsageError as error:
        told = "" if shape != _USUAL_SHAPE else f"; write {INPUT_SHAPE} = (C, H, W) in the file if it takes others"
        raise UsageError(f"{error} (on images {size}{told})") from error
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise UsageError(f"{path}: {function}'s module gives {type(output).__name__}; it must give a tensor of logits")
    if output.dim() != 2 or output.shape[0] != _TRIAL_BATCH:
        given = "x".join(map(str, output.shape)) or "a single number"
        raise UsageError(
            f"{path}: {function}'s module gives {given} for images {size}; it must give logits, {_TRIAL_BATCH}xCLASSES"
        )
    return output.shape[1]
