"""Traced steps of a compiled network: maps operators and kernels to its calls, and so to the time of each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from deepstone.backends.base import StepAccount
from deepstone.backends.owners import Owner, Part, step_account
from deepstone.backends.torch.compiled import KernelCall, Layers, match_by_name, match_in_order, shown_name
from deepstone.backends.torch.device import LaunchedKernel, last_end_s
from deepstone.backends.torch.profile import Event, Interval, Recording
from deepstone.trace.timeline import Span

METHOD = "torch's profiler over steps of the network compiled once more, with kernels that tell their origin"
RULE = (
    "a fused kernel's time is shared among layers by the number of elements that their operations in it make; update "
    "includes forgetting the gradients; gaps are when no kernel ran"
)
NO_LAYER = "operations of no layer"

_PASSES: tuple[Part, Part] = ("forward", "backward")
Calls = Mapping[str, Sequence[KernelCall]]


def compiled_ownership(recording: Recording, calls: Calls) -> list[Interval[Layers]]:
    """Return the intervals in which the host ran operators of the compiled network; those of no layer have no owner."""
    found: list[Interval[Layers]] = []
    for step in [recording.lead, *recording.steps]:
        for phase in step.phases:
            if phase.label in _PASSES:
                ran = _outermost(recording.events, phase)
                program = calls[phase.label]
                for event, call in zip(ran, match_by_name([shown_name(e.name) for e in ran], program), strict=True):
                    layers = {} if call is None else program[call].layers
                    found.append(Interval(start_s=event.start_s, end_s=event.end_s, label=layers))
    return found


def owners_by_order(kernels: Sequence[LaunchedKernel], calls: Calls) -> list[Layers | None]:
    """Return the owners of kernels by their order on the device, if no operator of the host launched them.

    This applies to the kernels of a recorded CUDA graph: one call launches them all.
    """
    owners: list[Layers | None] = [None] * len(kernels)
    passes: dict[tuple[int, str], list[int]] = {}
    for number, kernel in enumerate(kernels):
        if kernel.phase in _PASSES:
            passes.setdefault((kernel.step, kernel.phase), []).append(number)
    for (_, phase), numbers in passes.items():
        matched = match_in_order([kernels[number].event.name for number in numbers], calls[phase])
        for number, layers in zip(numbers, matched, strict=True):
            owners[number] = layers
    return owners


def host_accounts(recording: Recording, ownership: Sequence[Interval[Layers]], calls: Calls) -> list[StepAccount]:
    """Account for steps on the CPU: a step is the host's activity from its first moment to its last."""
    expected = _expected(calls)
    accounts: list[StepAccount] = []
    for step in recording.steps:
        spans = [
            Span(start_s=phase.start_s, end_s=phase.end_s, owners={Owner(part=cast(Part, phase.label)): 1.0})
            for phase in step.phases
            if phase.label not in _PASSES
        ]
        for phase in (phase for phase in step.phases if phase.label in _PASSES):
            spans += [
                Span(start_s=ran.start_s, end_s=ran.end_s, owners=_owners(ran.label, phase.label))
                for ran in ownership
                if phase.start_s <= ran.start_s < phase.end_s
            ]
        accounts.append(step_account(spans, start_s=step.start_s, end_s=step.end_s, expected=expected))
    return accounts


def device_accounts(
    recording: Recording, kernels: Sequence[LaunchedKernel], owners: Sequence[Layers | None], calls: Calls
) -> list[StepAccount]:
    """Account for steps on a GPU: a step lasts from the end of the last kernel before it to the end of its own last
    kernel."""
    expected = _expected(calls)
    accounts: list[StepAccount] = []
    for number in range(1, len(recording.steps) + 1):
        spans = [
            Span(start_s=kernel.event.start_s, end_s=kernel.event.end_s, owners=_owners(layers or {}, kernel.phase))
            for kernel, layers in zip(kernels, owners, strict=True)
            if kernel.step == number
        ]
        start_s, end_s = last_end_s(kernels, number - 1), last_end_s(kernels, number)
        accounts.append(step_account(spans, start_s=start_s, end_s=end_s, expected=expected))
    return accounts


def _owners(layers: Layers, phase: str) -> dict[Owner, float]:
    if phase in ("data", "update"):
        return {Owner(part=phase): 1.0}
    if not layers:
        return {Owner(part="other", name=NO_LAYER): 1.0}
    return {Owner(part=cast(Part, phase), name=layer): float(elements) for layer, elements in layers.items()}


def _expected(calls: Calls) -> list[Owner]:
    """Return the layers to expect. A layer whose kernels were all too short to be recorded took no time, but is
    listed."""
    return [
        Owner(part=part, name=layer)
        for part in _PASSES
        for layer in sorted({layer for call in calls[part] for layer in call.layers})
    ]


def _outermost(events: Sequence[Event], phase: Interval[str]) -> list[Event]:
    """Return operators that do work and that no other such operator called."""
    found: list[Event] = []
    for event in events:
        if event.kind == "operator" and event.computes and phase.start_s <= event.start_s < phase.end_s:
            if found and event.start_s < found[-1].end_s:
                continue
            found.append(event)
    return found
