"""What `deepstone tune` found: the best setup, how far it is shown, that it is the same training, and why it is faster.

    looks[…]  every launch in its order; they led the search and prove nothing
    finals[…] fresh processes in random order, rounds fixed beforehand; `ratio` and `best` come from these alone
    same      whether the finalists compute the training that was asked for
    why[…]    the part of each changed axis in the gain

A setup is the axes that are not at their default, as in the words of a command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.results.parts import AtLeast0, Count, Number, OrAbsent, Part, Positive, RunId, SomeText, Table, Value
from deepstone.results.quantity import Quantity
from deepstone.results.sameness import Comparable
from deepstone.units import bytes_, digits, seconds

LookKind: TypeAlias = Literal["start", "search", "sentinel", "repeat", "final", "explain"]
LOOK_KINDS: Final[tuple[LookKind, ...]] = ("start", "search", "sentinel", "repeat", "final", "explain")
ObjectiveName: TypeAlias = Literal["throughput", "energy", "memory"]
_SOUGHT: Final[Mapping[ObjectiveName, str]] = {
    "throughput": "speed",
    "energy": "samples per joule",
    "memory": "memory",
}
SameLevel: TypeAlias = Literal["exact", "close", "any"]
Sameness: TypeAlias = Literal["same", "not the same", "not proven"]
OTHER_DATA: Final = "what other data change"
_FAR: Final = 10.0  # a share beyond which its number says nothing more
NOT_THE_SAME: Final = "not the same training: "  # how the reason of a look at a refused setup begins
NOT_SHOWN: Final = "it is not shown to be the same training"  # why a finalist has no ratio
ONLY_ORDER: Final = "exact allows another order of operations only"  # how a refusal begins that no test made
Answer: TypeAlias = Literal["better", "not separable", "nothing better"]


class TuneObjective(Part, frozen=True, kw_only=True):
    """What is sought: most samples per second, most samples per joule, or least memory. `slowdown`: the objective
    counts only among setups that are at most so many times slower than the fastest."""

    name: ObjectiveName
    slowdown: Number | None = None


class TuneLimit(Part, frozen=True, kw_only=True):
    """What a setup may use at most: bytes of memory, or watts."""

    name: Literal["memory", "power"]
    most: Number


class SpaceAxis(Part, frozen=True, kw_only=True):
    """An axis that was searched, and its values here, the default's first."""

    name: SomeText
    values: list[Value]


class FixedAxis(Part, frozen=True, kw_only=True):
    """An axis that was not searched, and why not."""

    name: SomeText
    why: SomeText


class Excluded(Part, frozen=True, kw_only=True):
    """How many combinations are no setups of the space, by reason."""

    reason: SomeText
    setups: Positive


class TuneSpace(Part, frozen=True, kw_only=True):
    """`setups`: how many can run here; where they are too many to list, `is_estimate`, and `excluded` counts those of a
    random part. `noise`: the standard deviation of the log of what is sought (speed, samples per joule, memory) between
    launches of one setup, as the search learned it."""

    setups: Count
    is_estimate: bool
    axes: list[SpaceAxis]
    fixed: list[FixedAxis]
    excluded: list[Excluded]
    noise: OrAbsent[AtLeast0]

    def in_words(self) -> str:
        """Describe as `about 43,150 setups of 15 axes`."""
        setups = f"{'about ' if self.is_estimate else ''}{self.setups:,} setup{'' if self.setups == 1 else 's'}"
        return f"{setups} of {len(self.axes)} {'axis' if len(self.axes) == 1 else 'axes'}"


class TunedSetup(Part, frozen=True, kw_only=True):
    """A setup and what the finals measured of it. `runs`: their records."""

    setup: Table[Value]
    samples_per_s: OrAbsent[Quantity]
    samples_per_j: OrAbsent[Quantity]
    peak_bytes: OrAbsent[Count]
    runs: list[RunId]


class Look(Part, frozen=True, kw_only=True):
    """One launch. `began_s`: seconds of the search when it began, those of earlier calls
    included. `run`: its record in the store; a look whose
    process failed has its outcome and reason in `samples_per_s`. `round`: of the finals or of the explanation.
    `first_step_s`: its first step, with what that compiled."""

    kind: LookKind
    setup: Table[Value]
    samples_per_s: OrAbsent[Number]
    samples_per_j: OrAbsent[Number]
    peak_bytes: OrAbsent[Count]
    outcome: SomeText
    began_s: AtLeast0
    took_s: AtLeast0
    first_step_s: AtLeast0 = 0.0
    run: RunId | None = None
    round: Positive | None = None


class Finalist(Part, frozen=True, kw_only=True):
    """One finalist. `ratio`: its objective over that of the default (speed, samples per joule, or memory saved), paired
    by round and corrected for the number of finalists. `rounds`: its samples in a second, round by round."""

    setup: Table[Value]
    samples_per_s: OrAbsent[Quantity]
    samples_per_j: OrAbsent[Quantity]
    peak_bytes: OrAbsent[Count]
    ratio: OrAbsent[Quantity]
    rounds: list[OrAbsent[Number]]
    runs: list[RunId]
    is_default: bool
    is_best: bool


def _share(share: float) -> str:
    if share > _FAR:
        return f"more than {100 * _FAR:,.0f} %"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"


class SameMeasure(Part, frozen=True, kw_only=True):
    """How far a setup's training is from that of the default, and how far it may be. `where`: the array that is
    furthest off; `within`: what the value is a share of."""

    value: Number
    tolerance: Number
    where: str | None = None
    within: str | None = None

    @property
    def ok(self) -> bool:
        return self.value <= self.tolerance

    def in_words(self, level: SameLevel = "close") -> str:
        """Describe as `3.1 % of what other data change (10 % allowed)`; one that failed also names its place. Where
        the level allows anything, there is no limit to name."""
        where = f" in {self.where}" if self.where and not self.ok else ""
        allowed = "" if level == "any" else f" ({_share(self.tolerance)} allowed)"
        return f"{_share(self.value)} of {self.within or OTHER_DATA}{where}{allowed}"


class SameSetup(Part, frozen=True, kw_only=True):
    """One finalist. `ok`: it is shown to be the same training, at the level that was asked for. If not, `why_not` says
    why, and `is_refuted` whether a test failed; otherwise it is not proven: time ran out, or a process failed.

    `alters`: the order of operations, their rounding, what training keeps (state), the batch. `given_up`: in words;
    empty where it is nothing. `layers`: the check of every layer against the float64 reference, where it was made.
    `batch` and `steps`: of the training that was compared; `reduced` says so in words where the time allowed fewer
    steps or a smaller batch than usual. `rounding`: how far the default is from itself if its weights are rounded as
    the setup rounds, as a share of what other data change; only where a test needed it."""

    setup: Table[Value]
    ok: bool
    gradient: OrAbsent[SameMeasure]
    loss: OrAbsent[SameMeasure]
    update: OrAbsent[SameMeasure]
    why_not: str
    is_refuted: bool = False
    alters: list[SomeText] = []
    given_up: str = ""
    layers: OrAbsent[Comparable] | None = None
    batch: Positive | None = None
    steps: Positive | None = None
    rounding: AtLeast0 | None = None
    reduced: str = ""

    def in_words(self, level: SameLevel = "close") -> str:
        """Describe how far it is from the default, or why it is not shown to be the same. `level`: as asked for."""
        if not self.ok:
            return f"{self.verdict}: {self.why_not}"
        parts, before = list[str](), None
        for name, each in (("gradients", self.gradient), ("updates", self.update), ("losses", self.loss)):
            if isinstance(each, Absent):
                continue
            is_alike = before is not None and (each.within, each.tolerance) == (before.within, before.tolerance)
            far = _share(each.value) if is_alike else each.in_words(level)
            parts.append(f"{name} {'' if parts else 'differ '}by {far}")
            before = each
        smaller = f"; for want of time a smaller check: {self.reduced}" if self.reduced else ""
        return (", ".join(parts) or "nothing was compared") + smaller

    @property
    def verdict(self) -> Sameness:
        if self.ok:
            return "same"
        return "not the same" if self.is_refuted else "not proven"

    @property
    def is_too_far(self) -> bool:
        """Whether a test says so; rounding may still excuse it."""
        measures = (self.gradient, self.update, self.loss)
        return any(not isinstance(each, Absent) and not each.ok for each in measures)

    @property
    def is_other_training(self) -> bool:
        """Whether it is refused as other training, and not only since exact allows less than it changes."""
        return self.is_refuted and not self.why_not.startswith(ONLY_ORDER)


class SameTraining(Part, frozen=True, kw_only=True):
    """`level`: what was asked for. `ok`: of the best setup. `given_up`: what the best setup gives up against the
    default, in words; empty where it is nothing."""

    level: SameLevel
    ok: bool
    setups: list[SameSetup]
    given_up: str


class AxisRatio(Part, frozen=True, kw_only=True):
    """A ratio of what is sought of two setups that differ in one axis; more is better, so for memory it is of what is
    saved. `estimated`: the model's, not measured."""

    ratio: Quantity
    estimated: bool


class Why(Part, frozen=True, kw_only=True):
    """One changed axis. `added`: the default with it over the default; `removed`: the best over the best without it;
    `contribution`: their mean in log space."""

    axis: SomeText
    default: Value
    best: Value
    contribution: Quantity
    added: OrAbsent[AxisRatio]
    removed: OrAbsent[AxisRatio]


class AxisEffect(Part, frozen=True, kw_only=True):
    """An axis that the best setup leaves as it is: the best of its other values over the value it has."""

    axis: SomeText
    value: Value
    ratio: OrAbsent[Quantity]


class LostTime(Part, frozen=True, kw_only=True):
    """Seconds of a step that a kind of layers takes beyond its bound. `layer`: the one of them that loses most."""

    what: SomeText
    lost_s: Number
    taken_s: Number | None = None
    layer: str = ""
    layer_lost_s: Number | None = None

    def in_words(self) -> str:
        """Describe as `batch norms 7.1 ms of 13.7 ms (norm1 0.9 ms)`."""
        taken = f" of {seconds(self.taken_s)}" if self.taken_s is not None and self.layer else ""
        worst = f" ({self.layer} {seconds(self.layer_lost_s)})" if self.layer_lost_s is not None else ""
        return f"{self.what} {seconds(self.lost_s)}{taken}{worst}"


class Bound(Part, frozen=True, kw_only=True):
    """What keeps the best setup from being faster. `layers`: the finding with the times of all its layers."""

    roofline_share: OrAbsent[Number]
    power_limit_share: OrAbsent[Number]
    most_lost: OrAbsent[list[LostTime]]
    layers: RunId | None = None


class BatchFree(Part, frozen=True, kw_only=True):
    """The winner where the batch is free too. It is other training: `updates_per_epoch_ratio` times as many updates for
    as many samples; whether it converges as well was not measured."""

    batch: Positive
    best: TunedSetup
    ratio: OrAbsent[Quantity]
    updates_per_epoch_ratio: Number


class TuneBudget(Part, frozen=True, kw_only=True):
    """Seconds. `spent_s`: of all calls together, if the search was resumed; `calls`: how many there were."""

    asked_s: AtLeast0
    spent_s: AtLeast0
    calls: Positive
    launches: Count


class TuneLog(Part, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """A search as far as it is, rewritten after every look: a call that was killed goes on with it. `order`: the
    finalists by number, round by round, fixed when the finals begin; the default is number 0. `layers`: the finding
    with the times of the best setup's layers."""

    schema: Literal[1] = 1
    kind: Literal["tune-log"] = "tune-log"
    name: SomeText
    model: str
    command: list[str]
    started_at: str
    finished_at: OrAbsent[str]
    budget_s: AtLeast0
    spent_s: AtLeast0
    calls: Positive
    looks: list[Look]
    same: list[SameSetup] = []
    finalists: list[dict[str, Value]] = []
    order: list[list[int]] = []
    layers: RunId | None = None


class Tuned(Part, frozen=True, kw_only=True):
    """`ratio`: the objective of the best over that of the default; of memory, the default's over that of the best, so
    that more is better for every objective. All ratios here are of the objective. `together`: what the parts of all
    axes do not explain. `also_within`: setups of the finals that are within 2 % of the best and change more axes.
    `not_decided`: axes about which the looks allow no statement. `doubts`: those of the finals' runs, in words.
    `rounds`: of the finals, those that were measured to the end; `planned_rounds`: as many as were to be."""

    KIND: ClassVar = "tune"

    objective: TuneObjective
    limits: list[TuneLimit]
    budget: TuneBudget
    space: TuneSpace
    answer: Answer
    default: TunedSetup
    best: TunedSetup
    ratio: OrAbsent[Quantity]
    finals: list[Finalist]
    rounds: Count
    same: OrAbsent[SameTraining]
    given_up: str
    why: list[Why]
    together: OrAbsent[Quantity]
    also_within: list[Table[Value]]
    no_effect: list[AxisEffect]
    not_decided: list[str]
    bound: OrAbsent[Bound]
    batch_free: OrAbsent[BatchFree]
    looks: list[Look]
    doubts: list[str] = []
    planned_rounds: Count | None = None  # early findings lack it

    @property
    def rounds_in_words(self) -> str:
        """How many rounds the finals had: those that were measured to the end."""
        if self.planned_rounds is None or self.planned_rounds == self.rounds:
            return f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        return f"{self.rounds} of {self.planned_rounds} rounds (the time was over)"

    def gain_in_words(self, ratio: Quantity) -> str:
        """Say a ratio of what is sought as `2.34x (2.24 – 2.45) the default`, or of memory as `0.5x (0.49 – 0.51) the
        memory of the default`."""
        return f"{_times(self.as_told(ratio))} the {'' if self.is_of_speed else f'{self.sought} of the '}default"

    def as_told(self, ratio: Quantity) -> Quantity:
        """A ratio of what is sought as a reader meets it everywhere. Inside, more is better; but memory is to be small,
        and whoever reads a ratio of memory expects less of it to be below 1."""
        return ratio.inverse(1.0) if self.objective.name == "memory" else ratio

    def number_as_told(self, ratio: float) -> float:
        """The same of a number without an interval."""
        return 1 / ratio if self.objective.name == "memory" else ratio

    @property
    def sought(self) -> str:
        """What every ratio is a ratio of, in words."""
        return _SOUGHT[self.objective.name]

    @property
    def is_of_speed(self) -> bool:
        return self.objective.name == "throughput"

    @property
    def is_better(self) -> bool:
        """Whether a setup is shown to be better than the default. If that does not run within the limits, any setup
        that does is better, and `ratio` is absent."""
        return self.answer == "better"

    @property
    def has_free_batch(self) -> bool:
        """Whether the batch was searched too; the best setup is then the best at the default's batch."""
        return any(axis.name == "batch" for axis in self.space.axes)

    def is_at_asked_batch(self, setup: Mapping[str, Value]) -> bool:
        return setup.get("batch") == self.default.setup.get("batch")

    @property
    def is_default_beyond_limits(self) -> bool:
        return bool(self.broken_limit)

    @property
    def nothing_within_limits(self) -> str:
        """In words, if neither the default nor anything else is shown to run within the limits; else empty."""
        if self.is_better or not self.broken_limit:
            return ""
        return f"nothing was found within the limits, and the default is beyond them too: {self.broken_limit}"

    @property
    def nothing_to_search(self) -> str:
        """In words, if the default is the only setup of the space; else empty."""
        return "there was nothing to search: the space has one setup" if self.space.setups == 1 else ""

    @property
    def has_speeds(self) -> bool:
        """Whether any launch was measured."""
        return any(not isinstance(look.samples_per_s, Absent) for look in self.looks)

    @property
    def why_none(self) -> str:
        """In words, if the answer names no setup, not even the default, because that breaks a limit or did not run;
        else empty."""
        speed = self.default.samples_per_s
        if self.is_better or self.nothing_within_limits or not isinstance(speed, Absent):
            return self.nothing_within_limits
        return f"the default could not be measured, and nothing else is shown to be better: {speed.reason}"

    @property
    def broken_limit(self) -> str:
        """The limit that the default breaks, in words; empty if there is none."""
        return broken_limit(self.limits, self.default)


def broken_limit(limits: Iterable[TuneLimit], measured: Look | TunedSetup) -> str:
    """Which limit it breaks, in words; empty if none, or if it failed. What cannot be read keeps no limit.
    Power is what the meters saw: samples per second over samples per joule."""
    peak, speed, energy = measured.peak_bytes, measured.samples_per_s, measured.samples_per_j
    if isinstance(speed, Absent):
        return ""
    for limit in limits:
        if limit.name == "memory":
            allowed = f"{bytes_(int(limit.most))} allowed"
            if isinstance(peak, Absent):
                return f"its memory is not known ({peak.reason}), {allowed}"
            if peak > limit.most:
                return f"{bytes_(peak)} of memory, {allowed}"
        else:
            allowed = f"{limit.most:g} W allowed"
            if isinstance(energy, Absent):
                return f"its power is not known ({energy.reason}), {allowed}"
            if (power_w := _middle(speed) / _middle(energy)) > limit.most:
                return f"{power_w:.0f} W, {allowed}"
    return ""


def _middle(measured: Quantity | float) -> float:
    return measured.median if isinstance(measured, Quantity) else measured


def _times(ratio: Quantity) -> str:
    return f"{digits(ratio.median)}x ({ratio.span_in_words(digits)})"


def refused_runs(searches: Iterable[Tuned | TuneLog]) -> dict[str, str]:
    """The runs that searches refused as other training than their default, each with the reason: by the steps of the
    run itself, or by a check of its setup. A setup is checked at the batch that was asked for."""
    found: dict[str, str] = {}
    for search in searches:
        same = search.same.setups if isinstance(search.same, SameTraining) else search.same
        checked = [] if isinstance(same, Absent) else same
        reasons = {at_any_batch(each.setup): each.why_not for each in checked if each.is_other_training}
        for look in search.looks:
            speed, reason = look.samples_per_s, reasons.get(at_any_batch(look.setup), "")
            if isinstance(speed, Absent) and speed.reason.startswith(NOT_THE_SAME):
                reason = speed.reason.removeprefix(NOT_THE_SAME)
            if reason and look.run is not None:
                found[look.run] = reason
    return found


def at_any_batch(setup: Mapping[str, Value]) -> frozenset[tuple[str, Value]]:
    return frozenset((axis, value) for axis, value in setup.items() if axis != "batch")
