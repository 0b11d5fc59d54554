"""The steps as one would write them by hand: forward, forward and backward, or the whole training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.base import ADAM_LEARNING_RATE, ADAMW_DECAY, LEARNING_RATE, MOMENTUM, Job, Unsupported
from deepstone.backends.torch.own_module import OwnModule
from deepstone.backends.torch.own_step import MakesOptimizer, own_optimizer
from deepstone.backends.torch.parallel import Replicas
from deepstone.backends.torch.settings import Settings


class Batch:
    """The synthetic batch, in the place that the axis `input` names; `get` is the data phase."""

    def __init__(self, samples: Tensor, labels: Tensor, settings: Settings) -> None:
        self._labels = labels
        self._samples = _Placing(samples, settings)
        self._resident = settings.input == "resident"
        if self._resident:
            self._placed, self._labels = self._samples.place(), labels.to(settings.device)
            self._placed.requires_grad_(settings.input_grad)
        elif settings.input == "pinned":
            self._samples, self._labels = _Placing(samples.pin_memory(), settings), labels.pin_memory()
        self._device = settings.device

    def get(self) -> tuple[Tensor, Tensor]:
        if self._resident:
            return self._placed, self._labels
        return self._samples.place(), self._labels.to(self._device, non_blocking=True)

    def forget_gradient(self) -> None:
        self._placed.grad = None


class OwnBatch:
    """Like Batch, for the tensors that a user's file names. Labels, if any, are one of the tensors."""

    def __init__(self, tensors: Mapping[str, Tensor], settings: Settings) -> None:
        pinned = settings.input == "pinned"
        self._given = {name: _Placing(t.pin_memory() if pinned else t, settings) for name, t in tensors.items()}
        self._resident: dict[str, Tensor] | None = None
        if settings.input == "resident":
            self._resident = {name: given.place() for name, given in self._given.items()}
            self._given.clear()
        if settings.input_grad:
            assert self._resident is not None, "a rule says so"
            wide = [tensor for tensor in self._resident.values() if tensor.is_floating_point()]
            if not wide:
                raise Unsupported("input_grad=on: no input of this model is of floating-point numbers")
            for tensor in wide:
                tensor.requires_grad_()

    def get(self) -> tuple[Any, Any]:
        if self._resident is not None:
            return self._resident, None
        return {name: given.place() for name, given in self._given.items()}, None

    def forget_gradient(self) -> None:
        for tensor in (self._resident or {}).values():
            tensor.grad = None


def batch_of(job: Job, network: nn.Module, settings: Settings) -> tuple[Batch | OwnBatch, MakesOptimizer | None]:
    """The job's batch, and how a user's file makes its optimizer, if it does."""
    steps = [module.step for module in network.modules() if isinstance(module, OwnModule)]
    if not steps or (step := steps[0]) is None:
        return Batch(torch.from_numpy(job.samples), torch.from_numpy(job.labels), settings), None
    share = 0 if job.group is None else job.group.share  # another part of the whole batch for each process
    seed, like_photographs = job.data_seed + share, job.like_photographs
    tensors = step.spec.batch(job.request["batch"], seed, like_photographs=like_photographs)
    return OwnBatch(tensors, settings), step.optimizer


class _Placing:
    """One tensor in host memory and its placement on the job's device."""

    def __init__(self, tensor: Tensor, settings: Settings) -> None:
        self._tensor = tensor
        self._options: dict[str, Any] = {"copy": True, "non_blocking": tensor.is_pinned()}
        if tensor.is_floating_point():
            self._options["dtype"] = settings.weights
        if tensor.dim() == 4:
            self._options["memory_format"] = torch.channels_last if settings.channels_last else torch.contiguous_format
        self._device = settings.device

    def place(self) -> Tensor:
        return self._tensor.to(self._device, **self._options)


@dataclass(frozen=True)
class StepPieces:
    """What a training step is made of, for who takes timestamps between them. `get_parts` gives samples and labels of
    each part of the batch; `forget` zeroes gradients."""

    get_parts: Callable[[], list[tuple[Any, Any]]]
    loss_of: Callable[[nn.Module, Any, Any], Tensor]
    backward: Callable[[Tensor], Any]
    update: Callable[[], Any]
    forget: Callable[[], None]


class Steps:
    """Functions that run one step each, without extra work of ours."""

    def __init__(
        self,
        model: nn.Module,
        batch: Batch | OwnBatch,
        settings: Settings,
        *,
        make_optimizer: MakesOptimizer | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self.last_loss: Tensor | None = None
        self._model = model if replicas is None else replicas.model
        self._replicas = replicas
        self._batch = batch
        self._settings = settings
        self._a_parameter = next(model.parameters(), None)
        parameters = list(model.parameters())
        self._optimizer = optimizer_of(parameters, settings, make_optimizer) if settings.phase == "train" else None
        scales = settings.autocast is torch.float16 and settings.phase != "forward"
        self._scaler = torch.amp.GradScaler(settings.device.type) if scales else None  # pyright: ignore[reportPrivateImportUsage]

    def loss(self) -> float:
        assert self.last_loss is not None
        return float(self.last_loss.item())

    def function(self, program: str = "") -> Callable[[], None]:
        """The step of the job's phase; in a group, of the phase `train`, one of its programs."""
        if self._replicas is not None or self._settings.accumulate > 1:
            return self._train_in_parts_function(program or "train")
        if self._settings.phase == "forward":
            return self._forward_function()
        if self._settings.phase == "gradient":
            return self._gradient_function()
        return self._train_function()

    def _forward_function(self) -> Callable[[], None]:
        model, get, casting = self._model, self._batch.get, self._settings.casting()

        def step() -> None:
            with torch.inference_mode(), casting:
                samples, labels = get()
                self.last_loss = model(samples, labels)

        return step

    def _gradient_function(self) -> Callable[[], None]:
        model, get, loss_of, backward = self._model, self._batch.get, self._loss_function(), self._backward_function()
        forget = self._forget_function()

        def step() -> None:
            forget()
            samples, labels = get()
            self.last_loss = loss = loss_of(model, samples, labels)
            backward(loss)

        return step

    def _train_function(self) -> Callable[[], None]:
        model, get, loss_of, backward = self._model, self._batch.get, self._loss_function(), self._backward_function()
        forget, update = self._forget_function(), self._update_function()

        def step() -> None:
            forget()
            samples, labels = get()
            self.last_loss = loss = loss_of(model, samples, labels)
            backward(loss)
            update()

        return step

    def optimizer_bytes(self, parameter: Tensor) -> int:
        """Return the bytes of the optimizer's state for a parameter, after a first step."""
        state = {} if self._optimizer is None else self._optimizer.state.get(parameter, {})
        tensors = [value for value in state.values() if isinstance(value, Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def _train_in_parts_function(self, program: str) -> Callable[[], None]:
        """One process among several, or one that adds up the gradients of parts of its batch."""
        compute, finish = self._computing_function(program), self._reducing_function(program)
        forget, update = self._forget_function(), self._update_function()

        def step() -> None:
            forget()
            compute()
            finish()
            update()

        return step

    def _computing_function(self, program: str) -> Callable[[], None]:
        """Forward and backward of all parts. Only with the last one may processes begin to exchange gradients."""
        model, get, loss_of, backward = self._model, self._batch.get, self._loss_function(), self._backward_function()
        parts, replicas = self._settings.accumulate, self._replicas
        apart = nullcontext if replicas is None else replicas.apart
        together = nullcontext if program == "train" else apart

        def compute_all() -> None:
            samples, labels = get()
            with together():
                self.last_loss = loss = loss_of(model, samples, labels)
                backward(loss)

        def compute_parts() -> None:
            samples, labels = get()
            total: Tensor | None = None
            pairs = zip(split(samples, parts), split(labels, parts), strict=True)
            for number, (some, their_labels) in enumerate(pairs, start=1):
                with together() if number == parts else apart():
                    loss = loss_of(model, some, their_labels) / parts
                    backward(loss)
                total = loss.detach() if total is None else total + loss.detach()
            self.last_loss = total

        return compute_all if parts == 1 else compute_parts

    def _reducing_function(self, program: str) -> Callable[[], None]:
        if self._replicas is None or program == "local":
            return lambda: None
        return self._replicas.meet if program == "meet" else self._replicas.reduce

    def pieces(self) -> StepPieces:
        parts, get = self._settings.accumulate, self._batch.get

        def get_parts() -> list[tuple[Any, Any]]:
            samples, labels = get()
            return list(zip(split(samples, parts), split(labels, parts), strict=True))

        return StepPieces(
            get_parts=(lambda: [get()]) if parts == 1 else get_parts,
            loss_of=self._loss_function(),
            backward=self._backward_function(),
            update=self._update_function(),
            forget=self._forget_function(),
        )

    def restore(self) -> None:
        """Take parameters, buffers and the optimizer's state from rank 0."""
        assert self._replicas is not None
        self._replicas.restore(self._optimizer)

    def step_in_phases(self, set_timestamp: Callable[[int], None], model: nn.Module | None = None) -> None:
        """Run the same step with a timestamp at the end of data, forward, backward and update; `model` replaces our
        own.

        Zeroing gradients is part of the last phase here, while the plain step begins with it: in a loop it is the same.
        """
        phase, model = self._settings.phase, self._model if model is None else model
        if phase == "forward":
            with torch.inference_mode(), self._settings.casting():
                samples, labels = self._batch.get()
                set_timestamp(0)
                self.last_loss = model(samples, labels)
            set_timestamp(1)
            return
        forget = self._forget_function()
        if self._a_parameter is not None and self._a_parameter.grad is not None:  # left by a plain step before this one
            forget()
        samples, labels = self._batch.get()
        set_timestamp(0)
        with nullcontext() if self._replicas is None else self._replicas.apart():
            self.last_loss = loss = self._loss_function()(model, samples, labels)
            set_timestamp(1)
            self._backward_function()(loss)
        if phase == "gradient":
            forget()
            set_timestamp(2)
            return
        set_timestamp(2)
        self._update_function()()
        forget()
        set_timestamp(3)

    def _loss_function(self) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
        if self._settings.autocast is None:
            return _plain_loss
        casting = self._settings.casting()

        def loss(model: nn.Module, samples: Tensor, labels: Tensor) -> Tensor:
            with casting:
                return model(samples, labels)

        return loss

    def _backward_function(self) -> Callable[[Tensor], Any]:
        scaler = self._scaler
        return Tensor.backward if scaler is None else lambda loss: scaler.scale(loss).backward()

    def _update_function(self) -> Callable[[], Any]:
        optimizer, scaler = self._optimizer, self._scaler
        assert optimizer is not None
        if scaler is None:
            return optimizer.step

        def update() -> None:
            scaler.step(optimizer)
            scaler.update()

        return update

    def _forget_function(self) -> Callable[[], None]:
        """Return a function that zeroes gradients by dropping them, as torch does by default."""
        forget = self._model.zero_grad if self._optimizer is None else self._optimizer.zero_grad
        if not self._settings.input_grad:
            return forget

        def forget_all() -> None:
            forget()
            self._batch.forget_gradient()

        return forget_all


def split(given: Any, parts: int) -> list[Any]:
    """Split a batch, or the named tensors of one, into equal parts."""
    if given is None:
        return [None] * parts
    if isinstance(given, Tensor):
        return list(given.chunk(parts))
    by_name = {name: tensor.chunk(parts) for name, tensor in given.items()}
    return [{name: chunks[part] for name, chunks in by_name.items()} for part in range(parts)]


def _plain_loss(model: nn.Module, samples: Tensor, labels: Tensor) -> Tensor:
    return model(samples, labels)


def _fused_momentum(parameters: list[nn.Parameter], *, scales_loss: bool) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, fused=True)
    if scales_loss:
        # The first step makes buffers without values, and fills them unless the scaled loss overflows, as it does at
        # first: later steps would add up whatever was in memory. From zeros, a step gives what the first one does.
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def optimizer_of(
    parameters: list[nn.Parameter], settings: Settings, make_own: MakesOptimizer | None = None
) -> torch.optim.Optimizer:
    match settings.optimizer:
        case "own":
            return own_optimizer(make_own, parameters)
        case "momentum":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
        case "momentum-fused":
            return _fused_momentum(parameters, scales_loss=settings.autocast is torch.float16)
        case "sgd":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=ADAM_LEARNING_RATE, weight_decay=ADAMW_DECAY)
        case _:
            return torch.optim.Adam(parameters, lr=ADAM_LEARNING_RATE)
