"""What torch's CPU allocator gave out during a call, beyond what the call gave back: its workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from deepstone.absent import Absent


def workspace_bytes(call: Callable[[], Tensor]) -> int | Absent:
    """Of one call. Memory that a library takes by itself, past torch's allocator, is not seen."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        result = call()
    recorded = watched.profiler.kineto_results if watched.profiler is not None else None
    if recorded is None:
        return Absent("torch's profiler gave no account of memory")
    steps = [event.nbytes() for event in recorded.events() if event.name() == "[memory]"]  # pyright: ignore[reportAttributeAccessIssue]
    return max(0, peak_bytes(steps) - result.untyped_storage().nbytes())


def peak_bytes(steps: Iterable[int]) -> int:
    """The highest sum on the way; a step is what was taken, or, below 0, given back."""
    level = highest = 0
    for step in steps:
        level += step
        highest = max(highest, level)
    return highest
