"""The steps as one would write them by hand: forward, forward and backward, or the whole training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM
from deepstone.backends.torch.settings import Settings


class Batch:
    """The synthetic batch where the axis `input` says it lies; `get` is the data phase."""

    def __init__(self, samples: Tensor, labels: Tensor, settings: Settings) -> None:
        self._device = settings.device
        self._memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
        self._dtype = settings.weights
        self._resident = settings.input == "resident"
        if self._resident:
            self._samples, self._labels = (
                self._placed(samples).requires_grad_(settings.input_grad),
                labels.to(self._device),
            )
        elif settings.input == "pinned":
            self._samples, self._labels = samples.pin_memory(), labels.pin_memory()
        else:
            self._samples, self._labels = samples, labels

    def _placed(self, images: Tensor) -> Tensor:
        return images.to(
            self._device,
            dtype=self._dtype,
            memory_format=self._memory_format,
            copy=True,
            non_blocking=self._samples_are_pinned,
        )

    @property
    def _samples_are_pinned(self) -> bool:
        return not self._resident and self._samples.is_pinned()

    def get(self) -> tuple[Tensor, Tensor]:
        if self._resident:
            return self._samples, self._labels
        return self._placed(self._samples), self._labels.to(self._device, non_blocking=True)

    def forget_gradient(self) -> None:
        self._samples.grad = None


class Steps:
    """Functions that run one step each, with no work of ours beside the framework's."""

    def __init__(self, model: nn.Module, batch: Batch, settings: Settings) -> None:
        self.last_loss: Tensor | None = None
        self._model = model
        self._batch = batch
        self._settings = settings
        self._a_parameter = next(model.parameters(), None)
        self._optimizer = _optimizer(model, settings) if settings.phase == "train" else None
        scales = settings.autocast is torch.float16 and settings.phase != "forward"
        self._scaler = torch.amp.GradScaler(settings.device.type) if scales else None  # pyright: ignore[reportPrivateImportUsage]

    def function(self) -> Callable[[], None]:
        """The step of the job's phase."""
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

    def step_in_phases(self, mark: Callable[[int], None], model: nn.Module | None = None) -> None:
        """The same step with a mark at the end of data, forward, backward and update; `model` stands in for our own.

        Zeroing gradients is part of the last phase here, where the plain step begins with it: in a loop it is the same.
        """
        phase, model = self._settings.phase, self._model if model is None else model
        if phase == "forward":
            with torch.inference_mode(), self._settings.casting():
                samples, labels = self._batch.get()
                mark(0)
                self.last_loss = model(samples, labels)
            mark(1)
            return
        forget = self._forget_function()
        if self._a_parameter is not None and self._a_parameter.grad is not None:  # left by a plain step before this one
            forget()
        samples, labels = self._batch.get()
        mark(0)
        self.last_loss = loss = self._loss_function()(model, samples, labels)
        mark(1)
        self._backward_function()(loss)
        if phase == "gradient":
            forget()
            mark(2)
            return
        mark(2)
        self._update_function()()
        forget()
        mark(3)

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
        """Zero gradients, by forgetting them, as torch does by default."""
        forget = self._model.zero_grad if self._optimizer is None else self._optimizer.zero_grad
        if not self._settings.input_grad:
            return forget

        def forget_all() -> None:
            forget()
            self._batch.forget_gradient()

        return forget_all


def _plain_loss(model: nn.Module, samples: Tensor, labels: Tensor) -> Tensor:
    return model(samples, labels)


def _optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    match settings.optimizer:
        case "momentum":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
        case "momentum-fused":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, fused=True)
        case "sgd":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE)
        case _:
            return torch.optim.Adam(parameters, lr=ADAM_LEARNING_RATE)
