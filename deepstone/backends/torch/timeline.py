"""Steps of one process of a group that tell when each of their parts begins and ends. They are never timed as speed.

    overlap=on                            ready ├── bucket 0 ───┤      ends
                                                     ready ├── bucket 1 ───────┤
         ├ buffers ┼── forward ──┼──────── backward ─────────────┤ waits, unpacks ┼ update ┤
    overlap=off
         ├───────── forward ─────┼──────── backward ─────────────┼ pack ┼ reduce ┼ unpack ┼ update ┤

DistributedDataParallel tells of its buckets only to a communication hook, and a hook in Python changes a step. So these
steps have a wrapper of their own, made after all timed steps and dropped again. Its hook gives what torch's own
reduction does: the loss is divided by the number of processes, which costs nothing, where torch divides gradients while
it copies them. In the program `pack` the hook reduces nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deepstone.backends.base import TracedStep
from deepstone.backends.torch.compression import ReducesBucket
from deepstone.backends.torch.parallel import Replicas
from deepstone.backends.torch.training import StepPieces

_STEPS_TO_SETTLE: Final = 2  # buckets are arranged anew after the first one

Spans = list[tuple[str, float, float, int]]


class Timeline:
    """Makes the steps. All processes of the group make and use it together."""

    def __init__(self, pieces: StepPieces, network: nn.Module, replicas: Replicas, clock: Callable[[], float]) -> None:
        self._pieces = pieces
        self._network = network
        self._replicas = replicas
        self._clock = clock
        self._inner_begin_s = 0.0
        self._has_buffers = replicas.overlaps and any(True for _ in network.buffers())
        self._noting = network.register_forward_pre_hook(self._note_forward)
        self._wrapper: DistributedDataParallel | None = None
        self._hook: _BucketHook | None = None
        self._scale = 1.0
        if not replicas.overlaps:
            self.programs = ("train", "local")
            return
        self.programs = ("train", "local", "pack")
        compressing = replicas.compressing()
        if compressing is None:
            self._scale = 1 / replicas.communicator.world
        self._wrapper, self._hook = replicas.wrapped(), (hook := _BucketHook(compressing, clock))
        # Torch wants no other type beside `bucket` than its own, or none, and reads it as it stands.
        self._wrapper.register_comm_hook(None, lambda state, bucket: hook(bucket))
        step = self.step("train")
        for _ in range(_STEPS_TO_SETTLE):
            step()

    def close(self) -> None:
        self._noting.remove()
        self._wrapper = None  # its hooks at the parameters go with it

    def step(self, program: str) -> Callable[[], TracedStep]:
        pieces, clock, network = self._pieces, self._clock, self._network
        exchanges = program != "local"

        def step() -> TracedStep:
            if any(parameter.grad is not None for parameter in network.parameters()):  # left by a plain step
                pieces.forget()
            if self._hook is not None:
                self._hook.reduces = program == "train"
            spans: Spans = []
            begin_s = clock()
            parts = pieces.get_parts()
            spans.append(("data", begin_s, clock(), 0))
            for number, (samples, labels) in enumerate(parts, start=1):
                together = exchanges and number == len(parts)
                with nullcontext() if together else self._apart():
                    spans += self._compute(samples, labels, len(parts), exchanges=exchanges, together=together)
            if exchanges and self._wrapper is None:
                spans += self._reduce_packed()
            update_s = clock()
            pieces.update()
            pieces.forget()
            end_s = clock()
            spans.append(("update", update_s, end_s, 0))
            return TracedStep(begin_s, end_s, spans)

        return step

    def _apart(self) -> AbstractContextManager[None]:
        return nullcontext() if self._wrapper is None else self._wrapper.no_sync()

    def _compute(self, samples: Any, labels: Any, parts: int, *, exchanges: bool, together: bool) -> Spans:
        """Forward and backward. Backward's computing ends before the call does, which waits for the buckets.

        Buffers are sent before the first part of a step, gradients with the last one."""
        clock, pieces = self._clock, self._pieces
        model = self._network if self._wrapper is None else self._wrapper
        begin_s = clock()
        loss = pieces.loss_of(model, samples, labels) * (self._scale / parts)
        forward_s = clock()
        ends_s: list[float] = []
        loss.register_hook(lambda _: _at_end_of_backward(lambda: ends_s.append(clock())))  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType, reportUnknownArgumentType]
        pieces.backward(loss)
        returned_s = clock()
        spans: Spans = []
        if self._has_buffers and exchanges:
            spans.append(("buffers", begin_s, self._inner_begin_s, 0))
            begin_s = self._inner_begin_s
        spans += [("forward", begin_s, forward_s, 0), ("backward", forward_s, ends_s[0], 0)]
        if together and self._hook is not None:
            reduced = self._hook.taken()
            spans += reduced
            spans.append(("unpack", max(ends_s[0], *(end_s for _, _, end_s, _ in reduced), 0.0), returned_s, 0))
        return spans

    def _reduce_packed(self) -> Spans:
        """One buffer, in calls that return when they are done."""
        size = sum(p.numel() * p.element_size() for p in self._network.parameters() if p.requires_grad)
        spans: Spans = []
        begin_s = self._clock()

        def tell(kind: str) -> None:
            nonlocal begin_s
            end_s = self._clock()
            spans.append((kind, begin_s, end_s, size if kind == "reduce" else 0))
            begin_s = end_s

        self._replicas.reduce(tell)
        return spans

    def _note_forward(self, *_: Any) -> None:
        """Called when DistributedDataParallel has sent the buffers and forward itself begins."""
        self._inner_begin_s = self._clock()


class _BucketHook:
    """Reduces a bucket as torch itself would, or as it is compressed, and notes when."""

    def __init__(self, compressing: ReducesBucket | None, clock: Callable[[], float]) -> None:
        self.reduces = True
        self._reduce = compressing or _sum_bucket
        self._clock = clock
        self._spans: Spans = []

    def taken(self) -> Spans:
        """The buckets since the last call, in the order in which they were ready."""
        spans, self._spans = sorted(self._spans, key=lambda span: span[1]), []
        return spans

    def __call__(self, bucket: Any) -> torch.futures.Future[Tensor]:
        buffer: Tensor = bucket.buffer()
        if not self.reduces:
            done: Any = torch.futures.Future()  # pyright: ignore[reportUnknownVariableType]
            done.set_result(buffer)
            return done
        clock, spans, size = self._clock, self._spans, buffer.numel() * buffer.element_size()
        begin_s = clock()

        def ended(future: torch.futures.Future[Tensor]) -> Tensor:
            value = future.value()
            spans.append(("reduce", begin_s, clock(), size))
            return value

        return self._reduce(bucket).then(ended)


def _sum_bucket(bucket: Any) -> torch.futures.Future[Tensor]:
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _at_end_of_backward(call: Callable[[], None]) -> None:
    """To be called inside backward. What is queued first is called first, so before what the wrapper queues."""
    torch.autograd.Variable._execution_engine.queue_callback(call)  # pyright: ignore
