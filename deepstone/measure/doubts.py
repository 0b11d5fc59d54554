"""Doubts that follow from a run's own numbers. Each function checks for one doubt and describes it with numbers. Pure;
`measure.noise` has the doubts that come from the machine.

    samples        few_samples, interval_too_wide, trend, diverging_launches, too_short_to_time, host_bound
    contradictions above_peak, above_reach, phases_disagree, clocks_disagree: two numbers of one run that exclude each
                   other, so that one of them cannot be right
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from statistics import median
from typing import Final

from msgspec import Struct
from numpy.typing import ArrayLike

from deepstone import units
from deepstone.absent import Absent
from deepstone.measure.statistics import FEWEST_FOR_CONFIDENCE, Launch, Quantity, median_of
from deepstone.measure.steady_state import find_trend
from deepstone.results.doubt import Doubt
from deepstone.results.parallel import Account, Wire

# Doubts that follow from a record's own numbers: found when the record is made, and again when it is imported.
ABOVE_PEAK: Final = "above_peak"  # only if the record has the measured peak
DIVERGING: Final = "diverging_launches"
DERIVED: Final = ("trend", "interval_too_wide", "few_samples", "phases_disagree", DIVERGING)

MOST_DRIFT_SHARE: Final = 0.02
TREND_P_VALUE: Final = 0.01
LEAST_CLOCK_COSTS: Final = 1000
MOST_ENQUEUE_SHARE: Final = 0.9
MOST_WAITING_SHARE = 0.1
MOST_CLOCK_ERROR_SHARE: Final = 0.02
MOST_RESIDUAL_SHARE: Final = 0.1  # of exposed communication
LEAST_RESIDUAL_STEPS: Final = 0.01
LEAST_WIRE_SHARE = 0.9
FEWEST_SAMPLES: Final = 10
MOST_LAUNCH_SPREAD: Final = 3.0
LEAST_LAUNCH_SPREAD_SHARE: Final = 0.02
MOST_UNEXPLAINED_SHARE: Final = 0.05
MOST_PHASES_RATIO: Final = 1.25
MOST_CLAIMED_SHARE: Final = 1.02
LEAST_CLAIMED_SHARE: Final = 0.75
LONG_BLOCK_S: Final = 0.1
_MOST_DIGITS: Final = 10

# A reply wakes the controller some tenths of a millisecond after the block ended, never before its end.
_CLOCK_SLACK_S: Final = 1e-3
_CAUSES: Final = (
    "the step leaves out part of its work, its algorithm needs fewer operations than counted (Winograd, FFT), or"
)


def derived_doubts(
    launches: Sequence[Launch],
    step: Quantity,
    *,
    target_share: float,
    phases: Collection[Quantity],
    share_of_peak: tuple[float, str] | None,
    seed: int = 0,
) -> list[Doubt]:
    """`launches`: the samples after warm-up. `share_of_peak`: with the precision of the peak; None if it is absent.

    `seed` is that of the bootstrap within launches, on which `diverging_launches` rests.
    """
    found = [trend([sample for block in launch for sample in block]) for launch in launches]
    found.append(interval_too_wide(step.relative_half_width, target_share=target_share))
    found.append(few_samples(step.n))
    found.append(phases_disagree(step, phases))
    if share_of_peak is not None:
        found.append(above_peak(*share_of_peak))
    if len(launches) > 1:
        found.append(diverging_launches([median_of([launch], seed=seed) for launch in launches]))
    return [doubt for doubt in found if doubt is not None]


def interval_too_wide(relative_half_width: float, *, target_share: float) -> Doubt | None:
    """The budget ended before the interval of the median was as narrow as requested."""
    if relative_half_width <= target_share:
        return None
    said = f"has no interval, asked for {units.percent(target_share)}"
    if math.isfinite(relative_half_width):
        reached, asked = _told_apart(relative_half_width, target_share)
        said = f"is known to ± {reached}, asked for {asked}"
    return Doubt(
        code="interval_too_wide", detail=f"the median {said}: give the run a larger budget or a quieter machine"
    )


def _told_apart(reached: float, asked: float) -> tuple[str, str]:
    """Two shares in percent, with as many digits as it takes to see that they differ."""
    for significant in range(2, _MOST_DIGITS):
        both = (units.percent(reached, significant), units.percent(asked, significant))
        if both[0] != both[1]:
            return both
    return f"{100 * reached!r} %", f"{100 * asked!r} %"


def trend(step_s: ArrayLike) -> Doubt | None:
    """The steps became slower or faster during the run, significantly (p < 0.01) and by more than 2 %."""
    found = find_trend(step_s)
    if found is None or found.p_value >= TREND_P_VALUE or abs(found.drift_share) <= MOST_DRIFT_SHARE:
        return None
    way = "slower" if found.drift_share > 0 else "faster"
    return Doubt(
        code="trend",
        detail=f"steps became {units.percent(abs(found.drift_share))} {way} over the run (p = {found.p_value:.1g})",
    )


def too_short_to_time(sample_s: float, *, clock_cost_s: float) -> Doubt | None:
    """One timing sample is shorter than 1000 readings of the clock, so the clock distorts the result."""
    if sample_s >= LEAST_CLOCK_COSTS * clock_cost_s:
        return None
    return Doubt(
        code="too_short_to_time",
        detail=f"a sample takes {units.seconds(sample_s)} and reading the clock {units.seconds(clock_cost_s)}: "
        "use a larger batch",
    )


def replicas_differ(names: Sequence[str]) -> Doubt | None:
    """Processes that train one network have the same parameters after every step."""
    if not names:
        return None
    more = f" and {len(set(names)) - 1} more" if len(set(names)) > 1 else ""
    return Doubt(code="replicas_differ", detail=f"{names[0]}{more} differ between processes")


def emulated_nodes(nodes: int, *, share_machine: bool) -> Doubt | None:
    """Nodes with one boot id are one machine: they share its cores, memory and, mostly, its network."""
    if not share_machine:
        return None
    return Doubt(code="emulated_nodes", detail=f"the {nodes} nodes have one boot id: they are one machine")


def around_the_network(wire: Wire | Absent, nodes: int) -> Doubt | None:
    """Between nodes less was sent than the exchange needs, so it took another way."""
    if nodes == 1 or isinstance(wire, Absent) or wire.ratio >= LEAST_WIRE_SHARE:
        return None
    sent, needed = units.bytes_(int(wire.sent_bytes)), units.bytes_(int(wire.needed_bytes))
    return Doubt(
        code="around_the_network",
        detail=f"the network carried {sent} of {needed} that a step needs: the rest went through shared memory, say",
    )


def oversubscribed(threads: Sequence[int], cores: int) -> Doubt | None:
    """The processes of a node have more threads than cores, and hold each other up."""
    if sum(threads) <= cores:
        return None
    return Doubt(
        code="oversubscribed",
        detail=f"{len(threads)} processes with {sum(threads)} threads share {cores} cores: give threads=",
    )


def clock_unaligned(error_s: float, step: Quantity) -> Doubt | None:
    """A step of the job ends on one host and the next on another: the error of their clocks is in its time."""
    if error_s <= MOST_CLOCK_ERROR_SHARE * step.median:
        return None
    return Doubt(
        code="clock_unaligned",
        detail=f"the clocks of the ranks are compared to {units.seconds(error_s)}, and a step takes "
        f"{units.seconds(step.median)}: single steps of the job may be wrong by as much",
    )


def straggler(waiting: Sequence[Quantity] | Absent, step: Quantity) -> Doubt | None:
    """Some process surely waits for more than a tenth of every step: another one is slower."""
    if isinstance(waiting, Absent):
        return None
    longest = max(waiting, key=lambda each: each.median)
    if not longest.has_interval or longest.low <= MOST_WAITING_SHARE * step.median:
        return None
    slow = min(range(len(waiting)), key=lambda rank: waiting[rank].median)
    return Doubt(
        code="straggler",
        detail=f"others wait for rank {slow} for up to {units.seconds(longest.median)} of {units.seconds(step.median)}",
    )


def unexplained_communication(account: Account | Absent, exposed: Quantity, step: Quantity) -> Doubt | None:
    """The parts of the account surely leave out more than a tenth of exposed communication, or explain more than there
    is. Less than 1 % of a step is no finding, however little communication there is."""
    if isinstance(account, Absent) or not account.residual_s.has_interval:
        return None
    largest_s = max(abs(exposed.low), abs(exposed.high)) if exposed.has_interval else abs(exposed.median)
    most_s = max(MOST_RESIDUAL_SHARE * largest_s, LEAST_RESIDUAL_STEPS * step.median)
    residual = account.residual_s
    if residual.low <= most_s and residual.high >= -most_s:
        return None
    amount = (
        f"{units.seconds(abs(residual.median))} of the {units.seconds(account.total_s.median)} that it adds to a step"
    )
    if residual.median > 0:
        detail = f"no part of the trace explains {amount}: something slows plain steps that traced ones do not have"
    else:
        detail = f"the parts of the trace are {amount} too long: timestamps slow the traced steps"
    return Doubt(code="unexplained_communication", detail=detail)


def host_bound(*, enqueue_s: float, block_s: float) -> Doubt | None:
    """Enqueueing the block took over 90 % of its time: the GPU waited for the CPU."""
    if block_s <= 0 or enqueue_s <= MOST_ENQUEUE_SHARE * block_s:
        return None
    return Doubt(
        code="host_bound",
        detail=f"enqueueing took {units.percent(enqueue_s / block_s)} of the time, so the GPU waited for the CPU: "
        "use a larger batch or compile=reduce-overhead",
    )


def few_samples(samples: int) -> Doubt | None:
    """An interval from fewer than 10 samples is unreliable, and one sample has none."""
    if samples >= FEWEST_SAMPLES:
        return None
    counted = "1 sample" if samples == 1 else f"{samples} samples"
    return Doubt(code="few_samples", detail=f"{counted}; give the run a larger budget")


def diverging_launches(launches: Sequence[Quantity]) -> Doubt | None:
    """Two launches of the same job differ by more than 3 times what their own intervals explain, and by over 2 %.

    What two intervals explain is the root of the sum of their squared half widths.
    """
    diverging = [
        (slow.median / fast.median - 1, fast, slow)
        for fast, slow in itertools.combinations(sorted(launches, key=lambda launch: launch.median), 2)
        if slow.median - fast.median > MOST_LAUNCH_SPREAD * math.hypot(_half_width(fast), _half_width(slow))
        and slow.median > (1 + LEAST_LAUNCH_SPREAD_SHARE) * fast.median
    ]
    if not diverging:
        return None
    spread_share, fast, slow = max(diverging, key=lambda found: found[0])
    return Doubt(
        code="diverging_launches",
        detail=f"of {len(launches)} launches one took {units.seconds(fast.median)} a step and one "
        f"{units.seconds(slow.median)}: {units.percent(spread_share)} apart, "
        "more than the intervals within the launches explain",
    )


def profiler_overhead(traced_ratio: Quantity) -> Doubt | None:
    """A traced step takes over 5 % longer or shorter than the untraced one of its round, by the whole interval over the
    rounds. Too few rounds for a valid interval raise no doubt."""
    if traced_ratio.n < FEWEST_FOR_CONFIDENCE:
        return None
    if traced_ratio.low <= 1 + MOST_UNEXPLAINED_SHARE and traced_ratio.high >= 1 - MOST_UNEXPLAINED_SHARE:
        return None
    return Doubt(
        code="profiler_overhead",
        detail=f"a step that is looked into takes {units.digits(traced_ratio.median)} of the time of an untraced one "
        f"({units.digits(traced_ratio.low)} – {units.digits(traced_ratio.high)}): use a larger batch, "
        "beside which looking is cheap",
    )


def _half_width(launch: Quantity) -> float:
    """Return 0 for a launch without an interval: it cannot explain a difference."""
    return (launch.high - launch.low) / 2 if launch.has_interval else 0.0


class RoundTrip(Struct, frozen=True, kw_only=True):
    """One timed block by the clocks of both processes."""

    claimed_s: float
    """The timed steps by the worker's clock."""
    waited_s: float
    """From request to reply by the controller's clock."""
    lead_s: float = 0.0
    """Estimate for the untimed steps before them, as if they were as fast as the timed ones."""


def above_peak(share: float, precision: str) -> Doubt | None:
    """The step reached more FLOP/s than the fastest matrix product that was measured on the device."""
    if share <= 1:
        return None
    return Doubt(
        code="above_peak",
        detail=f"{units.percent(share)} of the measured {precision} peak: {_CAUSES} the peak was measured on a busy "
        "machine; `deepstone verify` checks the step, `deepstone doctor --peaks` measures the peak again",
    )


def above_reach(flops_per_s: float, reach_flops_per_s: float, precision: str, hardware: str) -> Doubt | None:
    """The step reached more FLOP/s than the hardware's specification allows; for devices without a measured peak."""
    if flops_per_s <= reach_flops_per_s:
        return None
    return Doubt(
        code="above_peak",
        detail=f"{units.count(flops_per_s, 'FLOP/s')} in {precision}, and {hardware} can reach "
        f"{units.count(reach_flops_per_s, 'FLOP/s')} at the very most: {_CAUSES} its time is wrong; "
        "`deepstone verify` checks the step",
    )


def phases_disagree(step: Quantity, phases: Collection[Quantity]) -> Doubt | None:
    """The phases of a step add up to over 25 % more or less than the step, by the whole of both intervals."""
    if not phases:
        return None
    low, high = sum(phase.low for phase in phases), sum(phase.high for phase in phases)
    if low <= MOST_PHASES_RATIO * step.high and high >= step.low / MOST_PHASES_RATIO:
        return None
    together_s = sum(phase.median for phase in phases)
    return Doubt(
        code="phases_disagree",
        detail=f"the phases take {units.seconds(together_s)} together and the step {units.seconds(step.median)}: "
        "they do not do the same work, or one of them was disturbed",
    )


def clocks_disagree(trips: Sequence[RoundTrip]) -> Doubt | None:
    """Blocks took longer by the worker's clock than the controller waited for them, or far less.

    A reply itself costs some milliseconds, so only a block of 0.1 s or more can be too short. The median block decides,
    since a busy machine may delay any single reply.
    """
    too_long = [trip for trip in trips if trip.claimed_s > MOST_CLAIMED_SHARE * trip.waited_s + _CLOCK_SLACK_S]
    long = [trip for trip in trips if trip.waited_s >= LONG_BLOCK_S]
    share = median((trip.claimed_s + trip.lead_s) / trip.waited_s for trip in long) if long else 1.0
    if not too_long and share >= LEAST_CLAIMED_SHARE:
        return None
    blocks = too_long or long
    claimed_s, waited_s = sum(trip.claimed_s for trip in blocks), sum(trip.waited_s for trip in blocks)
    claimed_s += 0.0 if too_long else sum(trip.lead_s for trip in blocks)
    return Doubt(
        code="clocks_disagree",
        detail=f"{len(blocks)} blocks took {units.seconds(claimed_s)} by the worker's clock, and Deepstone waited "
        f"{units.seconds(waited_s)} for them: one of the clocks is wrong, the blocks are not timed as a whole, or a "
        "busy machine held up the replies",
    )
