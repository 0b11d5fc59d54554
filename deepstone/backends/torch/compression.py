"""Gradients made smaller before they are sent. What a lossy one leaves out is added to the next step's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from deepstone.backends.torch.communicator import Communicator

ReducesBucket: TypeAlias = Callable[[Any], "torch.futures.Future[Tensor]"]

_BITS_PER_BYTE = 8
# DistributedDataParallel makes its buckets anew after the first step, so what is kept by bucket must begin after it.
_FIRST_COMPRESSED_STEP = 2


class OneBit:
    """Signs and one scale (the mean size) for each array; the rest is kept for the next time."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._left: dict[int, Tensor] = {}

    def mean(self, flat: Tensor, key: int = 0) -> Tensor:
        """Of all ranks' arrays, as far as signs tell it. `key` says which array this is, from step to step."""
        wanted = flat + self._left[key] if key in self._left else flat.clone()
        scale = wanted.abs().mean()
        signs = wanted >= 0
        self._left[key] = wanted - _signed(signs, scale)
        packed, scales = _pack(signs), scale.reshape(1)
        found = zip(self._communicator.gather(packed), self._communicator.gather(scales), strict=True)
        total = torch.zeros_like(flat)
        for bits, each in found:
            total += _signed(_unpack(bits, flat.numel()), each)
        return total / self._communicator.world


class PowerSgd:
    """Each matrix as the product of two vectors, by one step of the power method; vectors are sent as they are."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._left: dict[int, Tensor] = {}
        self._right: dict[int, Tensor] = {}

    def mean_(self, gradients: Sequence[Tensor]) -> None:
        """Replace the gradients by the mean over ranks of what the products tell."""
        for key, gradient in enumerate(gradients):
            if gradient.dim() < 2:
                self._communicator.sum(gradient)
                gradient /= self._communicator.world
            else:
                gradient.copy_(self._of_matrix(key, gradient).view_as(gradient))

    def _of_matrix(self, key: int, gradient: Tensor) -> Tensor:
        matrix = gradient.reshape(gradient.shape[0], -1)
        wanted = matrix + self._left[key] if key in self._left else matrix
        if key not in self._right:  # the same on every rank
            generator = torch.Generator(device="cpu").manual_seed(key)
            start = torch.randn(matrix.shape[1], 1, generator=generator, dtype=torch.float64)
            self._right[key] = start.to(matrix)
        column = wanted @ self._right[key]
        self._communicator.sum(column)
        column /= column.norm().clamp_min(torch.finfo(column.dtype).tiny)
        row = (wanted.T @ column).contiguous()
        self._communicator.sum(row)
        row /= self._communicator.world
        self._right[key] = row
        product = column @ row.T
        self._left[key] = wanted - product
        return product


def compress_buckets(model: DistributedDataParallel, compression: str, communicator: Communicator) -> None:
    """Have DistributedDataParallel compress each bucket."""
    reduce = compressing(compression, communicator)
    if reduce is not None:
        # Torch wants no other type beside `bucket` than its own, or none, and reads it as it stands.
        model.register_comm_hook(None, lambda state, bucket: reduce(bucket))


def compressing(compression: str, communicator: Communicator) -> ReducesBucket | None:
    """What reduces a compressed bucket, by torch's own hooks where it has one. It keeps what is left out, so every
    DistributedDataParallel needs one of its own."""
    if compression == "fp16":
        return lambda bucket: default_hooks.fp16_compress_hook(cast(Any, None), bucket)
    if compression == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=_FIRST_COMPRESSED_STEP)
        return InTurns(lambda bucket: powerSGD_hook.powerSGD_hook(state, bucket))
    if compression == "onebit":
        left_out = OneBit(communicator)
        return lambda bucket: _onebit(left_out, bucket)
    return None


class InTurns:
    """Reduces a bucket when those before it are done, beside backward.

    Torch's PowerSGD sends three times for a bucket, each time when the last one arrived. With several buckets under
    way, what is sent next would depend on what arrives first, which differs from rank to rank; gloo then takes the
    parts of one bucket for those of another. DistributedDataParallel hands out buckets in the same order everywhere.
    """

    def __init__(self, reduce: ReducesBucket) -> None:
        self._reduce = reduce
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compression")

    def __call__(self, bucket: Any) -> torch.futures.Future[Tensor]:
        done: Any = torch.futures.Future()  # pyright: ignore[reportUnknownVariableType]
        self._thread.submit(self._finish, bucket, done)
        return done

    def _finish(self, bucket: Any, done: Any) -> None:
        try:
            with torch.no_grad():  # of this thread, unlike that of backward
                done.set_result(self._reduce(bucket).wait())
        except Exception as error:  # noqa: BLE001 - backward raises it
            done.set_exception(error)


def _onebit(state: OneBit, bucket: Any) -> torch.futures.Future[Tensor]:
    # Buckets of the first step are other ones: their number tells them apart, and their length.
    key = bucket.index() * 2**40 + bucket.buffer().numel()
    done: Any = torch.futures.Future()  # pyright: ignore[reportUnknownVariableType]
    done.set_result(state.mean(bucket.buffer(), key))
    return done


def _signed(signs: Tensor, scale: Tensor) -> Tensor:
    return torch.where(signs, scale, -scale)


def _pack(signs: Tensor) -> Tensor:
    """Eight signs to a byte."""
    short = -signs.numel() % _BITS_PER_BYTE
    rows = torch.nn.functional.pad(signs.to(torch.uint8), (0, short)).view(-1, _BITS_PER_BYTE)
    return (rows << torch.arange(_BITS_PER_BYTE, dtype=torch.uint8)).sum(dim=1, dtype=torch.uint8)


def _unpack(packed: Tensor, count: int) -> Tensor:
    bits = (packed.unsqueeze(1) >> torch.arange(_BITS_PER_BYTE, dtype=torch.uint8)) & 1
    return bits.view(-1)[:count].bool()
