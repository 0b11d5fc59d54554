"""Reasons to trust a result less, from a closed list."""

from __future__ import annotations

from typing import Final

from msgspec.structs import force_setattr

from deepstone.results.parts import AT, Part, SomeText

DOUBT_CODES: Final = {
    "cpu_steal": "the hypervisor gave this machine's CPU time to others while it measured",
    "other_load": "other processes used much of the CPU while it measured",
    "background_load": "other processes used a little of the CPU while it measured",
    "gpu_shared": "other processes used the GPU while it measured",
    "cpu_quota": "the control group's CPU quota stopped the worker again and again while it measured",
    "involuntary_switches": "the worker was often taken off its core while it measured",
    "clock_drop": "the core or device clock fell while it measured",
    "throttling": "the device slowed itself down for heat or power",
    "interval_too_wide": "the budget ended before the interval was as narrow as asked",
    "trend": "the samples rise or fall with time, so no single number describes them",
    "too_short_to_time": "a step is so short that the clock's own cost shows",
    "host_bound": "the device waited for the host, so the number tells about the host",
    "few_samples": "so few samples that the interval itself is uncertain",
    "diverging_launches": "the launches differ by more than the samples within each of them",
    "above_peak": "more operations in a second than the device can do: it leaves out work or was mistimed",
    "phases_disagree": "the step takes far more or less time than its phases together",
    "clocks_disagree": "the worker's clock and the controller's disagree about how long the same steps took",
    "not_training": "the steps that were timed are not shown to train the network",
    "replicas_differ": "the processes did not keep the same parameters, so they did not train one network",
    "around_the_network": "the network carried less than the exchange needs, so the number says little about it",
    "emulated_nodes": "the nodes share one machine, so this is not the speed of several machines",
    "clock_unaligned": "the clocks of the hosts are not known well enough for times between them",
    "oversubscribed": "the processes have more threads together than the machine has cores",
    "straggler": "one process is slower than the others, which wait for it in every step",
    "unexplained_communication": "the parts of the communication's account do not add up to what it adds to a step",
    "profiler_overhead": "the profiler changed the step, so its parts do not add up to the untraced step",
}
_EARLIER_CODES: Final = {"changed_by_looking": "profiler_overhead"}


class Doubt(Part, frozen=True, kw_only=True):
    """`code` is one of DOUBT_CODES. `changed_by_looking` in an early result becomes `profiler_overhead`."""

    code: str
    detail: SomeText

    def __post_init__(self) -> None:
        if self.code in _EARLIER_CODES:
            force_setattr(self, "code", _EARLIER_CODES[self.code])
        elif self.code not in DOUBT_CODES:
            raise ValueError(f"must be one of {', '.join(DOUBT_CODES)}, not {self.code[:40]!r}{AT}.code`")
