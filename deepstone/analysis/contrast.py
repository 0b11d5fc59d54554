"""How much faster one setup is than another, from records that are already there, and whether that may be said.

    in rounds    round 1   b a        both in every round, each in a fresh process, in random order: what slows a
                 round 2   a b        whole round down cancels in its ratio. Student's t on the logs of the ratios.
                 round 3   b a
    apart        a … (any time) … b   bounds from the ends of both intervals. A process of its own can be faster or
                                      slower than the next one of the same setup, so without rounds or launches on
                                      both sides a difference must be larger before it counts.

Everybody who says that one thing is faster than another asks here; nobody divides medians.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepstone.absent import Absent
from deepstone.analysis.cases import WITHIN_PROCESS, Case, cases, rate_of
from deepstone.analysis.differences import ENVIRONMENT, MACHINE, Differences, differences, value_of
from deepstone.measure.statistics import Quantity, ratio_of_rounds
from deepstone.records.schema import Record

A_FASTER, B_FASTER, NO_DIFFERENCE = "a faster", "b faster", "no difference shown"

LEAST_DIFFERENCE: Final = 0.02  # a winner must lie beyond this, as in `deepstone compare`
FEWEST_ROUNDS: Final = 2
# Beyond what two processes of one setup were seen to differ by: 8.5 % on a CPU, under 5 % on a GPU that throttles.
LEAST_APART: Final = {"cpu": 0.10, "gpu": 0.05}
WIDE: Final = 1.25  # an interval that reaches further does not show that two setups are about the same
LEAST_DISTURBED: Final = 0.50  # where others used the machine during one side alone

# What two runs may differ in only when asked for by name: it changes what is measured, not how it is run.
_ONLY_BY_NAME: Final = frozenset({"phase", MACHINE, ENVIRONMENT})


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """`ratio`: speed of a over speed of b, in images/s. `follow`: see `Differences`."""

    ratio: Quantity
    verdict: str
    axes: tuple[str, ...]
    follow: tuple[str, ...]
    rounds: int  # 0 when measured apart
    margin: float  # a winner had to lie beyond this
    how: str
    runs: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def apart(self) -> bool:
        return self.rounds == 0

    def to_json(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio.to_json(),
            "verdict": self.verdict,
            "axes": list(self.axes),
            "follow": list(self.follow),
            "rounds": self.rounds,
            "measured_apart": self.apart,
            "how": self.how,
            "runs": list(self.runs),
            "doubts": list(self.doubts),
        }


def contrast(a: Sequence[Record], b: Sequence[Record], differ_in: Collection[str] | None = None) -> Contrast | Absent:
    """All runs of setup a against all runs of setup b; absent with the reason where they cannot be compared.

    `differ_in` names the axes that are compared: the sides must not differ in any other. Without it they may differ in
    every setting, but not in the phase, the machine or the versions.
    """
    sides = [_one_case(side, name) for side, name in ((a, "the first"), (b, "the second"))]
    for side in sides:
        if isinstance(side, Absent):
            return side
    return contrast_cases(*(side for side in sides if isinstance(side, Case)), differ_in=differ_in)


def contrast_cases(a: Case, b: Case, differ_in: Collection[str] | None = None) -> Contrast | Absent:
    """The same for runs that are grouped already."""
    for side in (a, b):
        if not side.good:
            return Absent(f"not measured: {side.why_not}")
    if a.record["graph_sha"] != b.record["graph_sha"]:
        return Absent(f"not the same network: {a.model} and {b.model}")
    found = differences(a.record, b.record)
    refusal = _refusal(a, b, found, differ_in)
    if refusal:
        return Absent(refusal)
    return _in_rounds(a, b, found) or _apart(a, b, found)


def verdict_of(ratio: Quantity, margin: float = LEAST_DIFFERENCE) -> str:
    """Of a ratio of speeds: whose interval lies beyond the margin."""
    if ratio.low > 1 + margin:
        return A_FASTER
    if ratio.high < 1 / (1 + margin):
        return B_FASTER
    return NO_DIFFERENCE


def _one_case(records: Sequence[Record], name: str) -> Case | Absent:
    found = cases(records)
    if len(found) == 1:
        return found[0]
    return Absent(f"{name} side has no run" if not found else f"{name} side holds {len(found)} setups, not one")


def _refusal(a: Case, b: Case, found: Differences, differ_in: Collection[str] | None) -> str:
    if a.key == b.key:
        return "both sides are the same setup"
    excess = [axis for axis in found.axes if (axis in _ONLY_BY_NAME if differ_in is None else axis not in differ_in)]
    if not excess:
        return ""
    compared = "" if differ_in is None else f", and only {', '.join(sorted(differ_in))} is compared"
    return f"they differ in {', '.join(_in_words(a, b, axis) for axis in excess)}{compared}"


def _in_words(a: Case, b: Case, axis: str) -> str:
    if axis == MACHINE:
        return "the machine"
    if axis == ENVIRONMENT:
        return "the versions installed"
    return f"{axis} ({value_of(a.record, axis)}, {value_of(b.record, axis)})"


def _in_rounds(a: Case, b: Case, found: Differences) -> Contrast | None:
    """None unless at least two rounds ran both, and ran them in turns."""
    of_a, of_b = ({record["identity"]["repetition"]: record for record in side.good} for side in (a, b))
    common = sorted(of_a.keys() & of_b.keys())
    if len(common) < FEWEST_ROUNDS or MACHINE in found.axes:
        return None
    used_a, used_b = [of_a[number] for number in common], [of_b[number] for number in common]
    if not _in_turns(used_a, used_b):
        return None
    ratio = ratio_of_rounds(
        [(rate_of(one).median, rate_of(other).median) for one, other in zip(used_a, used_b, strict=True)]
    )
    return Contrast(
        ratio=ratio,
        verdict=verdict_of(ratio),
        axes=found.axes,
        follow=found.follow,
        rounds=len(common),
        margin=LEAST_DIFFERENCE,
        how=f"{len(common)} rounds of fresh processes in random order, paired within a round",
        **_rests_on([*used_a, *used_b]),
    )


def _in_turns(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Whether neither side was over before the other began: then a change of the machine would look like a winner."""
    starts_a, starts_b = ([record["started_at"] for record in side] for side in (a, b))
    return min(starts_a) <= max(starts_b) and min(starts_b) <= max(starts_a)


def _apart(a: Case, b: Case, found: Differences) -> Contrast | Absent:
    for side in (a, b):
        if side.is_thin:
            return Absent(f"measured apart, and {rate_of(side.good[0]).n} samples of one side tell too little")
    speed_a, speed_b = a.images_per_s, b.images_per_s
    assert isinstance(speed_a, Quantity)
    assert isinstance(speed_b, Quantity)
    ratio = Quantity(
        median=speed_a.median / speed_b.median,
        low=speed_a.low / speed_b.high,
        high=speed_a.high / speed_b.low,
        n=min(len(a.good), len(b.good)),
    )
    single = WITHIN_PROCESS in (a.interval, b.interval)
    margin = _least_apart(a, b) if single else LEAST_DIFFERENCE
    intervals = a.interval if a.interval == b.interval else f"{a.interval} and {b.interval}"
    return Contrast(
        ratio=ratio,
        verdict=verdict_of(ratio, margin),
        axes=found.axes,
        follow=found.follow,
        rounds=0,
        margin=margin,
        how=f"measured apart; bounds from the ends of both intervals ({intervals})",
        **_rests_on([*a.good, *b.good]),
    )


def _least_apart(a: Case, b: Case) -> float:
    if a.is_disturbed or b.is_disturbed:
        return LEAST_DISTURBED
    kinds = {str(value_of(side.record, "device")).partition(":")[0] for side in (a, b)}
    return LEAST_APART["gpu"] if kinds == {"gpu"} else LEAST_APART["cpu"]


def _rests_on(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "runs": tuple(record["id"] for record in records),
        "doubts": tuple(dict.fromkeys(doubt["code"] for record in records for doubt in record["doubts"])),
    }
