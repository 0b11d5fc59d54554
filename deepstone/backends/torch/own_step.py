"""A step of a user's module with its own inputs: from a batch to the loss.

INPUTS ──▶ batch ──▶ module(**what forward names) ──▶ outputs ──▶ loss(outputs, batch), or the loss among outputs
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor, nn

from deepstone.backends.base import Unsupported
from deepstone.backends.torch.own_inputs import INPUTS, UNIT, InputSpec, read_spec, read_unit
from deepstone.errors import UsageError
from deepstone.models.program import explaining

LOSS: Final = "loss"
OPTIMIZER: Final = "optimizer"
_TRIAL_BATCH: Final = 2  # batch norm in training needs more than one

Batch: TypeAlias = Mapping[str, Tensor]
Loss: TypeAlias = Callable[[Any, Batch], Tensor]
MakesOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter]], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnStep:
    """The file's definition of its module's step."""

    spec: InputSpec
    loss: Loss | None  # None: the module gives it
    optimizer: MakesOptimizer | None
    unit: str  # what a sample is made of; empty where the file does not say
    units_per_sample: int

    def runner(self, module: nn.Module) -> Callable[[nn.Module, Batch], Tensor]:
        """Return the function from a batch to the loss. It finds the inputs of forward once, not in each step."""
        taken, constants, own_loss = self._taken(module), dict(self.spec.constants), self.loss

        def run(inner: nn.Module, batch: Batch) -> Tensor:
            outputs = inner(**{name: batch[name] for name in taken}, **constants)
            return _loss_among(outputs) if own_loss is None else own_loss(outputs, batch)

        return run

    def _taken(self, module: nn.Module) -> tuple[str, ...]:
        """Return the tensors that forward names; the others are for the loss."""
        parameters = inspect.signature(module.forward).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        names = [each.name for each in self.spec.tensors]
        return tuple(name for name in names if name in parameters or (takes_any and self.loss is None))

    def check(self, module: nn.Module, path: Path, function: str) -> None:
        """Raise UsageError with one line if the module cannot run a training step."""
        self._check_names(module, path, function)
        batch = self.spec.hardest_batch(_TRIAL_BATCH)
        try:
            with explaining(path, function):
                loss = cast(object, self.runner(module)(module.train(), batch))
        except UsageError as error:
            raise UsageError(
                f"{error} (on {self.spec.words}, batch {_TRIAL_BATCH}{_remedy(error.__cause__)})"
            ) from error
        giver = f"{path}: {LOSS}" if self.loss else f"{path}: the module that {function} returned"
        if not isinstance(loss, Tensor) or not loss.is_floating_point():
            raise UsageError(f"{giver} gives {type(loss).__name__}; a loss is a tensor of one floating-point number")
        if loss.numel() != 1:
            shape = "×".join(map(str, loss.shape))
            raise UsageError(f"{giver} gives {shape} numbers; a loss is one number: take its mean() or sum()")
        if not loss.requires_grad:
            raise UsageError(f"{giver} gives a loss without gradient; do not detach() what the module gave")
        if not torch.isfinite(loss).item():
            raise UsageError(
                f"{giver} gives the loss {loss.item()} for a batch of random inputs; check its logarithms, divisions "
                f"and masks, or give an input a fixed value in {INPUTS}"
            )

    def _check_names(self, module: nn.Module, path: Path, function: str) -> None:
        names, taken = [each.name for each in self.spec.tensors], self._taken(module)
        forward = f"{type(module).__name__}.forward{_arguments(module)}"
        if not taken:
            raise UsageError(
                f"{path}: {INPUTS} names {', '.join(names)}, and {forward} takes none of them; name them alike"
            )
        left = [name for name in names if name not in taken]
        if left and self.loss is None:
            raise UsageError(
                f"{path}: {INPUTS} names {', '.join(left)}, which {forward} does not take; if only the loss needs it, "
                f"write a function {LOSS}(outputs, batch)"
            )


def read_step(path: Path, names: Mapping[str, object]) -> OwnStep | None:
    """Parse the file's names; None if it has no INPUTS, and its module maps images to classes."""
    if INPUTS not in names:
        return None
    spec = read_spec(path, names[INPUTS])
    unit, per_sample = read_unit(path, names.get(UNIT), spec)
    functions = {name: names.get(name) for name in (LOSS, OPTIMIZER)}
    for name, found in functions.items():
        if found is not None and not callable(found):
            raise UsageError(f"{path}: {name} is {type(found).__name__}; it must be a function, or have another name")
    return OwnStep(
        spec=spec,
        loss=cast("Loss | None", functions[LOSS]),
        optimizer=cast("MakesOptimizer | None", functions[OPTIMIZER]),
        unit=unit,
        units_per_sample=per_sample,
    )


def own_optimizer(make: MakesOptimizer | None, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of the file's function. Raises Unsupported if it returns none."""
    if make is None:
        raise Unsupported(f"optimizer=own: the model's file has no function {OPTIMIZER}(parameters)")
    made = make([parameter for parameter in parameters if parameter.requires_grad])
    if not isinstance(made, torch.optim.Optimizer):
        raise Unsupported(f"{OPTIMIZER}(parameters) returned {type(made).__name__}, not a torch.optim.Optimizer")
    return made


def _loss_among(outputs: Any) -> Tensor:
    """Return the loss that a module computes itself: its only output, or the one called `loss`."""
    if isinstance(outputs, Mapping):
        found: object = cast(Mapping[str, object], outputs).get(LOSS)
    elif isinstance(outputs, (tuple, list)) and not hasattr(outputs, LOSS):
        found = outputs[0] if outputs else None
    else:
        found = outputs if isinstance(outputs, Tensor) else getattr(outputs, LOSS, None)
    if not isinstance(found, Tensor) or found.dim() > 1 or not found.is_floating_point():
        raise TypeError(f"no loss among its outputs ({_kinds(outputs)}); write a function {LOSS}(outputs, batch)")
    return found


def _kinds(outputs: Any) -> str:
    if isinstance(outputs, Tensor):
        return f"a tensor {'×'.join(map(str, outputs.shape)) or 'of one number'}"
    if isinstance(outputs, Mapping):
        return ", ".join(map(str, cast(Mapping[object, object], outputs)))
    return type(outputs).__name__


def _arguments(module: nn.Module) -> str:
    parameters = [name for name in inspect.signature(module.forward).parameters if name != "self"]
    shown = parameters[:6] + (["…"] if len(parameters) > 6 else [])
    return f"({', '.join(shown)})"


def _remedy(cause: BaseException | None) -> str:
    text = str(cause)
    if isinstance(cause, IndexError) and "index out of range" in text:
        return "; a vocabulary in INPUTS is larger than an embedding has rows"
    if "Target" in text and "out of bounds" in text:
        return "; a vocabulary in INPUTS is larger than the number of classes"
    return ""
