"""The arrays of a job: the batch, and what a step leaves for the next one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.values import place


class Batch:
    """The synthetic batch where the axis `input` says it lies; `get` is the data phase."""

    def __init__(self, images: Any, labels: Any, settings: Settings) -> None:
        ordered = settings.order.images(images)
        self._device = settings.device
        self._resident = settings.input == "resident"
        if self._resident:
            self._images, self._labels = place(ordered, settings.weights, settings), place(labels, np.int32, settings)
            return
        self._images, self._labels = np.array(ordered, settings.wide, order="C"), np.array(labels, np.int32)
        if settings.input == "pinned":
            pinned = SingleDeviceSharding(settings.device, memory_kind="pinned_host")
            self._images, self._labels = jax.device_put((self._images, self._labels), pinned)

    def get(self) -> tuple[Any, Any]:
        if self._resident:
            return self._images, self._labels
        # Without `may_alias` the CPU's client would look at our memory instead of copying it.
        return jax.device_put((self._images, self._labels), self._device, may_alias=False)


class State:
    """What is carried from step to step, and what is read back after one."""

    def __init__(self, parameters: list[Any], buffers: list[Any], settings: Settings) -> None:
        self.parameters = parameters
        self.buffers = buffers
        self.slots: Any = None  # what the optimizer remembers
        self.key: Any = jax.device_put(jax.random.key(settings.seed), settings.device) if settings.dropout else None
        self.gradients: list[Any] = []
        self.image_gradient: Any = None
        self.loss: Any = None

    def wait(self) -> None:
        jax.block_until_ready((self.parameters, self.buffers, self.slots, self.key, self.gradients, self.loss))


def advanced(key: Any) -> tuple[Any, Any]:
    """The key for the next step and that for this one; without dropout there are none."""
    return (None, None) if key is None else tuple(jax.random.split(key))
