"""The axes in which two runs differ, and the speed ratio of two setups from stored records.

`machine` and `environment` (the versions that a framework was installed with) count as axes here.

    in rounds    round 1   b a        both in every round, each in a fresh process, in random order: what slows a
                 round 2   a b        whole round down cancels in its ratio. Student's t on the logs of the ratios.
                 round 3   b a
    apart        a … (any time) … b   bounds from the ends of both intervals. A process of its own can be faster or
                                      slower than the next one of the same setup, so without rounds or launches on
                                      both sides a difference must be larger before it counts.

Every statement that one setup is faster than another uses this module; nothing else divides medians.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.analysis.cases import WITHIN_PROCESS, Case, rate_of
from deepstone.analysis.facts import ENVIRONMENT, MACHINE, full_request, value_of, version_of
from deepstone.measure.ratios import LEAST_DIFFERENCE, Ratio, Verdict, verdict_of
from deepstone.measure.statistics import ratio_of_bounds, ratio_of_rounds
from deepstone.measure.training import DECIDE_THE_TRAINING, disagreement, same_training, start_alike
from deepstone.results.parts import Json
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.setups.axes import AXES

FEWEST_ROUNDS: Final = 2
# More than two processes of one setup differ: up to 8.5 % on a CPU, under 5 % on a GPU that throttles.
LEAST_APART: Final = {"cpu": 0.10, "gpu": 0.05}
WIDE: Final = 1.25  # a wider interval does not show that two setups are about equal
LEAST_DISTURBED: Final = 0.50  # if others used the machine during only one side

# Axes that are compared only if requested by name: they change what is measured, not how it runs.
_ONLY_BY_NAME: Final = frozenset({"phase", MACHINE, ENVIRONMENT})


class Differences(Struct, frozen=True, kw_only=True):
    """`axes`: requested differently. `follow`: left to the framework on both sides, and chosen differently by it."""

    axes: tuple[str, ...]
    follow: tuple[str, ...]


def differences(a: Record, b: Record) -> Differences:
    """Compare requested values; for `auto`, effective ones. `contrast_cases` decides whether a comparison is
    allowed."""
    request_a, request_b = full_request(a), full_request(b)
    axes: list[str] = []
    follow: list[str] = []
    for axis in _axes_of(a, b):
        if value_of(a, axis) != value_of(b, axis):
            (follow if request_a.get(axis) == request_b.get(axis) else axes).append(axis)
    other_machine = a.identity.machine_sha != b.identity.machine_sha
    axes += [MACHINE] if other_machine else []
    axes += [ENVIRONMENT] if "framework" not in (*axes, *follow) and _other_versions(a, b, other_machine) else []
    if "framework" in follow:  # auto chose another framework: that is the difference, and the rest follows from it
        follow.remove("framework")
        axes.insert(0, "framework")
    if not axes:  # the requests are equal, so nothing explains these differences
        return Differences(axes=tuple(follow), follow=())
    return Differences(axes=tuple(axes), follow=tuple(follow))


class Contrast(Struct, frozen=True, kw_only=True):
    """`speed_ratio`: speed of a over speed of b, in samples/s. `follow`: see `Differences`."""

    speed_ratio: Quantity
    verdict: Verdict
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

    def to_json(self) -> dict[str, Json]:
        return {
            "ratio": self.speed_ratio.to_json(),
            "verdict": self.verdict,
            "axes": list(self.axes),
            "follow": list(self.follow),
            "rounds": self.rounds,
            "measured_apart": self.apart,
            "how": self.how,
            "runs": list(self.runs),
            "doubts": list(self.doubts),
        }


def contrast_cases(a: Case, b: Case, differ_in: Collection[str] | None = None) -> Contrast | Absent:
    """Compare case a with case b; absent with the reason if they cannot be compared.

    `differ_in` names the axes that are compared: the sides must not differ in any other. Without it they may differ in
    every setting, but not in the phase, the machine or the versions.
    """
    for side in (a, b):
        if not side.good:
            return Absent(f"not measured: {side.why_not}")
    if a.record.graph_sha != b.record.graph_sha:
        return Absent(f"not the same network: {a.model} and {b.model}")
    found = differences(a.record, b.record)
    refusal = _refusal(a, b, found, differ_in) or other_training(a, b)
    if refusal:
        return Absent(refusal)
    return _in_rounds(a, b, found) or _apart(a, b, found)


def contrast_sides(a: Case, b: Case, *, never_in: Collection[str]) -> Contrast | Absent:
    """Compare by the rule for all ratios; the sides may differ in anything except `never_in`. Absent if refused."""
    allowed = set(differences(a.record, b.record).axes) - set(never_in)
    # The rule refuses to compare a case with itself. Here the sides are always two.
    found = contrast_cases(a, replace(b, key=f"the other {b.key}"), differ_in=allowed)
    if isinstance(found, Contrast) and not math.isfinite(found.speed_ratio.high):
        return Absent("an interval that reaches down to 0 images/s gives a ratio without an upper end")
    return found


def other_training(a: Case, b: Case) -> str:
    """Return why two measured cases are not the same training: a search refused one of them, or their own steps show
    it; empty if there is no sign of it."""
    for side in (a, b):
        if side.refused:
            return f"`deepstone tune` refused run {side.runs[0]} as other training than its default: {side.refused}"
    return not_the_same_training(a.good, b.good)


def not_the_same_training(a: Sequence[Record], b: Sequence[Record]) -> str:
    """Return why runs may not be compared, from the training in their records; empty if they may."""
    for record in (*a, *b):
        for doubt in record.doubts:
            if doubt.code in ("not_training", "replicas_differ"):
                return f"run {record.id} is not shown to train: {doubt.detail}"
    apart = training_apart(a, b)
    return f"runs {a[0].id} (A) and {b[0].id} (B) do not do the same training: {apart}" if apart else ""


def training_apart(a: Sequence[Record], b: Sequence[Record], names: tuple[str, str] = ("A", "B")) -> str:
    """Return how the first steps of two sides differ, by their first runs; empty if they need not be the same."""
    one, other = a[0], b[0]
    settings = [{axis: value_of(record, axis) for axis in DECIDE_THE_TRAINING} for record in (one, other)]
    if one.graph_sha != other.graph_sha or not same_training(*settings):
        return ""
    if isinstance(one.cost.flops, Absent) and not start_alike([record.training for record in (*a, *b)]):
        return ""  # a module of one's own, which may be random
    precisions = (str(value_of(one, "precision")), str(value_of(other, "precision")))
    return disagreement(one.training, other.training, precisions, names)


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
    """Return None unless at least two rounds ran both sides in turns."""
    of_a, of_b = a.by_round, b.by_round
    common = sorted(of_a.keys() & of_b.keys())
    if sum(not round.search for round in common) < FEWEST_ROUNDS:
        common = [round for round in common if round.search]  # single runs are all of round 1, and of no study
    if len(common) < FEWEST_ROUNDS or MACHINE in found.axes:
        return None
    used_a, used_b = [of_a[round] for round in common], [of_b[round] for round in common]
    if not _in_turns(used_a, used_b):
        return None
    searches = {round.search for round in common}
    speed_ratio = _as_searched(a, b, searches) or ratio_of_rounds(
        [(rate_of(one).median, rate_of(other).median) for one, other in zip(used_a, used_b, strict=True)]
    )
    return Contrast(
        speed_ratio=speed_ratio,
        verdict=verdict_of(Ratio.of_speeds(speed_ratio)),
        axes=found.axes,
        follow=found.follow,
        rounds=len(common),
        margin=LEAST_DIFFERENCE,
        how=f"{len(common)} rounds of fresh processes in random order, paired within a round{_whose(searches)}",
        runs=tuple(record.id for record in (*used_a, *used_b)),
        doubts=_doubts([*used_a, *used_b]),
    )


def _as_searched(a: Case, b: Case, searches: Collection[str]) -> Quantity | None:
    """Return the ratio that a search reports of its finals, which is corrected for the number of its finalists; None if
    the rounds are not those of one search, or neither side was its default."""
    if len(searches) != 1:
        return None
    (search,) = searches
    of_a, of_b = a.finals.get(search), b.finals.get(search)
    if of_a is None or of_b is None or of_a.is_default == of_b.is_default:
        return None
    gain = of_a.gain if of_b.is_default else of_b.gain
    if gain is None or not gain.has_interval:
        return None
    return gain if of_b.is_default else gain.inverse(1.0)


def _whose(searches: Collection[str]) -> str:
    """A reader may look for a study of these rounds."""
    if not any(searches):
        return ""
    which = "a search" if len(searches) == 1 else f"{len(searches)} searches"
    return f", in the finals of {which}" if all(searches) else ", some in the finals of a search"


def _in_turns(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Whether the sides alternated. If one ended before the other began, a change of the machine could fake a
    winner."""
    starts_a, starts_b = ([record.started_at for record in side] for side in (a, b))
    return min(starts_a) <= max(starts_b) and min(starts_b) <= max(starts_a)


def _apart(a: Case, b: Case, found: Differences) -> Contrast | Absent:
    for side in (a, b):
        if side.is_thin and side.good[0].is_look:
            return Absent("measured apart, and one launch of a search tells too little")
        if side.is_thin:
            samples = rate_of(side.good[0]).n
            counted = "1 sample of one side tells" if samples == 1 else f"{samples} samples of one side tell"
            return Absent(f"measured apart, and {counted} too little")
    speed_a, speed_b = a.samples_per_s, b.samples_per_s
    assert isinstance(speed_a, Quantity)
    assert isinstance(speed_b, Quantity)
    speed_ratio = ratio_of_bounds(speed_a, speed_b).resting_on(min(len(a.good), len(b.good)))
    single = WITHIN_PROCESS in (a.interval, b.interval)
    margin = _least_apart(a, b) if single else LEAST_DIFFERENCE
    intervals = a.interval if a.interval == b.interval else f"{a.interval} and {b.interval}"
    return Contrast(
        speed_ratio=speed_ratio,
        verdict=verdict_of(Ratio.of_speeds(speed_ratio), margin),
        axes=found.axes,
        follow=found.follow,
        rounds=0,
        margin=margin,
        how=f"measured apart; bounds from the ends of both intervals ({intervals})",
        runs=tuple(record.id for record in (*a.good, *b.good)),
        doubts=_doubts([*a.good, *b.good]),
    )


def _least_apart(a: Case, b: Case) -> float:
    if a.is_disturbed or b.is_disturbed:
        return LEAST_DISTURBED
    kinds = {str(value_of(side.record, "device")).partition(":")[0] for side in (a, b)}
    return LEAST_APART["gpu"] if kinds == {"gpu"} else LEAST_APART["cpu"]


def _doubts(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(doubt.code for record in records for doubt in record.doubts))


def _axes_of(*records: Record) -> Iterable[str]:
    known = dict.fromkeys(AXES)
    for record in records:
        known |= dict.fromkeys(record.setup.requested)
    return known


def _other_versions(a: Record, b: Record, other_machine: bool) -> bool:
    """Two machines never have the same builds of all packages, so between machines only the framework's version
    counts."""
    if other_machine:
        return version_of(a) != version_of(b)
    return (a.identity.environment_sha, a.identity.mpi) != (b.identity.environment_sha, b.identity.mpi)
