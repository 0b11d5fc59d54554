"""Checks that the timed program trains: what its own steps did to the loss and to the parameters.

    step 1 ─ ● ─ 2 steps ─ ● ─▶ blocks … ● ─ last block ─▶ ● ─ 2 steps ─ ●        ● a snapshot
                 early                       last span         late

A snapshot has the loss of the last step and some values of every array. The steps between two snapshots are requested
exactly like timed ones, so a worker cannot treat them differently. Where an array changes early and not late, more
steps follow, with a look at the gradients after each: a dead part of a network has gradients of zeros, a part that is
left out has none. The checks judge one process (did the values change, and as far as that many steps would change
them?) and two processes that should do the same training (did they change alike?). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.results.record import Training
from deepstone.units import percent

Values: TypeAlias = Mapping[str, NDArray[np.float64]]
AxisValues: TypeAlias = Mapping[str, str | int | float | bool]

EARLY_STEPS: Final = 2  # after the first step
LATE_STEPS: Final = 2  # after the last timed one
GRADIENT_LOOKS: Final = 8  # one may fall on a step in which a module leaves out a part by chance

# Weights of 8 or 11 bits lose small updates to rounding, and a loss scale that starts too large skips updates.
_ROUNDS_UPDATES_AWAY: Final = ("bf16", "fp16")
_SKIPS_FIRST_UPDATES: Final = ("fp16-mixed",)
# A loss this small has no gradient, so constant parameters have converged.
_LEARNT: Final = 1e-3
_STEPS_FOR_A_LOSS_TO_MOVE: Final = 20
# Steps in one direction add up. Then, if a timed step goes less than this share of a later one, it was not run.
# (Momentum of 0.9 makes neighbouring spans at the start differ by 1.7 times.)
_ONE_DIRECTION: Final = 0.8
_LEAST_RATE: Final = 0.4

# Setups that agree in these axes start from the same weights, use the same batch and make the same update.
# With batch norm, each process and each part of a batch has statistics of its own; checks/parallel.py compares those.
DECIDE_THE_TRAINING: Final = (
    *("batch", "phase", "seed", "optimizer", "dropout"),
    *("processes", "accumulate", "compression", "scheme", "pipeline", "microbatches"),
)
_SAME_VALUE: Final = {"momentum-fused": "momentum", "auto": 1}  # processes=auto is one

# How far apart two processes with the same training may be. Measured: the loss of three steps differs by up to 0.2 % in
# float32 (resnet110) and 0.3 % with bf16-mixed, and the size of two updates by 1 % and 0.2 %.
_LOSS_APART: Final = {"full": 0.02, "mixed": 0.05, "low": 0.15}
_LOSS_APART_AT_LEAST: Final = 0.002
# Samples are noise, which a deep network with batch norm tells apart by tiny differences. Narrow products lose them, so
# its loss falls more slowly at first: in two steps by 0.16 to 0.5 of the fall in float32 (bf16-mixed; inception-v3,
# resnet50, resnet110), with TF32 by 0.88 of it (inception-v3).
_SIGNIFICAND_BITS: Final = {
    "fp64": 52,
    "tf32": 10,
    "tf32-conv": 10,
    "fp16": 10,
    "fp16-mixed": 10,
    "bf16": 7,
    "bf16-mixed": 7,
}
_FULL_BITS: Final = 23
_CHANGE_APART: Final = {"full": 1.5, "mixed": 1.5, "low": 2.5}
_HAS_LEARNT, _HAS_NOT = 0.5, 0.9  # remaining share of the first loss
_HARDLY_HAS: Final = 0.98  # of a side with narrower products, which may learn noise far more slowly
# Of the arrays that one process changes, the share that the other may leave alone: an update may be lost in rounding.
_MOST_UNMOVED: Final = 0.1
SAME_START: Final = 0.005  # of the first loss; bf16-mixed changes it by 0.3 %
_LEAST_SHARE_OF_CHANGE: Final = 1e-3  # of all arrays; below it, an array may change by rounding alone
# Momentum and Adam move other arrays by up to so many times more for the size of their gradients than plain SGD does.
_MOST_APART_IN_RATE: Final = 100.0
_RESOLUTION: Final = float(np.finfo(np.float32).eps)


class Snapshot(Struct, frozen=True, kw_only=True):
    """`values`: parameters in phase=train, gradients in phase=gradient, none in phase=forward."""

    steps: int  # done so far
    loss: float
    values: Values = field(default_factory=dict[str, NDArray[np.float64]])


class Span(Struct, frozen=True, kw_only=True):
    """The change of the values over some steps."""

    steps: int
    change: Values

    @property
    def norm(self) -> float:
        return math.sqrt(sum(float(change @ change) for change in self.change.values()))

    @property
    def rate(self) -> float:
        return self.norm / max(self.steps, 1)

    def along(self, other: Span) -> float:
        """Return the cosine between the two directions; 0 if one has no length."""
        common = self.change.keys() & other.change.keys()
        product = sum(float(self.change[name] @ other.change[name]) for name in common)
        return product / (self.norm * other.norm) if self.norm and other.norm else 0.0


def span(before: Snapshot, after: Snapshot) -> Span:
    change = {name: after.values[name] - before.values[name] for name in after.values if name in before.values}
    return Span(steps=after.steps - before.steps, change=change)


class Evidence(Struct, kw_only=True):
    """All snapshots of one process, in order; the last ones are missing if it ended early."""

    phase: str
    precision: str
    has_parameters: bool = True  # as far as is known: a user's own module may have none
    first: Snapshot | None = None
    early: Snapshot | None = None
    before_last: Snapshot | None = None
    late: Snapshot | None = None
    after: Snapshot | None = None
    late_gradients: list[Values] = field(default_factory=list[Values])  # see `standing_still`; the first is of `after`
    losses: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])  # by steps done

    @property
    def early_span(self) -> Span:
        """Return the change of the parameters in the early steps, or in phase=gradient the gradients."""
        if self.first is None or self.early is None:
            return Span(steps=0, change={})
        return span(self.first, self.early) if self.phase == "train" else Span(steps=1, change=self.early.values)

    @property
    def training(self) -> Training | Absent:
        """Return the part that a later comparison of records needs: the losses, and how far parameters moved."""
        finite = [(steps, loss) for steps, loss in self.losses if math.isfinite(loss)]
        if len(finite) < len(self.losses) or not finite:
            return Absent("the run ended before it was looked at, or its loss became no number")
        early = self.early_span
        if not early.change or not math.isfinite(early.norm):
            return Training(losses=finite)
        moved = sum(bool(change.any()) for change in early.change.values())
        return Training(losses=finite, early_change=early.norm, arrays=len(early.change), moved=moved)


def fault(evidence: Evidence) -> str:
    """Return why this process may not have trained as many steps as were timed; empty if there is no sign of it."""
    snapshots = [
        snapshot for snapshot in (evidence.first, evidence.early, evidence.late, evidence.after) if snapshot is not None
    ]
    if (
        evidence.phase == "forward"
        or len(snapshots) < 4
        or not all(math.isfinite(snapshot.loss) for snapshot in snapshots)
    ):
        return ""
    first, early, late, after = snapshots
    if evidence.phase == "gradient":
        found = _gradient_fault(snapshots, has_parameters=evidence.has_parameters)
        return found or _partly_stopped(evidence, late, after)
    if not first.values:
        return ""
    return (
        _stood_still(evidence, first, early, late, after)
        or _loss_stood_still(evidence.losses, evidence.precision)
        or _other_number_of_steps(evidence, late, after)
        or _partly_stopped(evidence, late, after)
    )


def standing_still(evidence: Evidence) -> list[str]:
    """Return the arrays that the early steps changed (without update: had a gradient of) and that the last timed block
    and the steps after it leave exactly alone, while others still change. Only their gradients can tell why."""
    first, early, late, after = evidence.first, evidence.early, evidence.late, evidence.after
    if first is None or early is None or late is None or after is None:
        return []
    before = evidence.before_last or late
    if evidence.phase == "train":
        changed = {name for name, change in evidence.early_span.change.items() if change.any()}
        since = span(before, after).change
        still = {name for name in changed if name in since and not since[name].any()}
    else:
        changed = first.values.keys() & early.values.keys()
        still = changed - before.values.keys() - late.values.keys() - after.values.keys()
    return sorted(still) if len(still) < len(changed) else []


def without_gradient(evidence: Evidence) -> list[str]:
    """Return those of them that no look at the gradients found a gradient of; none where the framework tells of no
    gradients at all, as one whose step is one program does in phase=train."""
    looks = evidence.late_gradients
    return [name for name in standing_still(evidence) if looks and all(look and name not in look for look in looks)]


def _partly_stopped(evidence: Evidence, late: Snapshot, after: Snapshot) -> str:
    if names := without_gradient(evidence):
        did = "which the first ones changed" if evidence.phase == "train" else "as the first ones did"
        return f"the last steps compute no gradient of {_some_of(names)}, {did}"
    if names := _not_updated(evidence, late, after):
        since = (evidence.before_last or late).steps
        return (
            f"the last {after.steps - since} steps did not change {_some_of(names)}, which the first ones changed, "
            "though the gradients are large enough"
        )
    return ""


def _not_updated(evidence: Evidence, late: Snapshot, after: Snapshot) -> list[str]:
    """Return arrays that stand still though their gradients would move them. By how much, the other arrays tell."""
    if evidence.phase != "train" or evidence.precision in _ROUNDS_UPDATES_AWAY or not evidence.late_gradients:
        return []
    gradients, moved = evidence.late_gradients[0], span(late, after)
    rates = [
        np.abs(change[there] / gradients[name][there]) / moved.steps
        for name, change in moved.change.items()
        if name in gradients and (there := (change != 0) & (gradients[name] != 0)).any()
    ]
    if not rates:
        return []
    rate = float(np.median(np.concatenate(rates))) / _MOST_APART_IN_RATE
    return [
        name
        for name in standing_still(evidence)
        if name in gradients and (rate * np.abs(gradients[name]) > _RESOLUTION * np.abs(after.values[name])).any()
    ]


def _some_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more arrays"


def _gradient_fault(snapshots: Sequence[Snapshot], *, has_parameters: bool) -> str:
    for snapshot in snapshots:
        if has_parameters and not snapshot.values:
            return f"after {snapshot.steps} steps of forward and backward there are no gradients"
        if snapshot.values and not any(values.any() for values in snapshot.values.values()) and snapshot.loss > _LEARNT:
            return f"after {snapshot.steps} steps of forward and backward all gradients are zero"
    return ""


def _stood_still(evidence: Evidence, first: Snapshot, early: Snapshot, late: Snapshot, after: Snapshot) -> str:
    if evidence.precision in _ROUNDS_UPDATES_AWAY and span(first, after).norm > 0:
        return ""
    if evidence.precision not in _SKIPS_FIRST_UPDATES and first.loss > _LEARNT and span(first, early).norm == 0:
        return f"{early.steps - first.steps} steps of the timed program, before it was timed, changed no parameter"
    if late.loss > _LEARNT and span(late, after).norm == 0:
        return f"{after.steps - late.steps} steps of the timed program, after it was timed, changed no parameter"
    return ""


def _loss_stood_still(losses: Sequence[tuple[int, float]], precision: str) -> str:
    (first_step, first), (last_step, _) = losses[0], losses[-1]
    steps = last_step - first_step
    if steps < _STEPS_FOR_A_LOSS_TO_MOVE or precision in (*_ROUNDS_UPDATES_AWAY, *_SKIPS_FIRST_UPDATES):
        return ""
    if first > _LEARNT and all(loss == first for _, loss in losses):
        return f"the loss is {first:.6g} after the first step and the same after {steps} further steps"
    return ""


def fault_in_record(training: Training, *, phase: str, precision: str) -> str:
    """As `fault`, from a record, which has only part of the evidence."""
    if phase != "train" or not training.losses:
        return ""
    losses = sorted(training.losses)
    rounds_or_skips = precision in (*_ROUNDS_UPDATES_AWAY, *_SKIPS_FIRST_UPDATES)
    if training.moved == 0 and losses[0][1] > _LEARNT and not rounds_or_skips:
        return "the first steps of the timed program changed no parameter"
    return _loss_stood_still(losses, precision)


def _other_number_of_steps(evidence: Evidence, late: Snapshot, after: Snapshot) -> str:
    """Compare the last timed span with the span after it, if both have the same direction."""
    before = evidence.before_last
    if before is None or evidence.precision in _ROUNDS_UPDATES_AWAY or late.loss <= _LEARNT:
        return ""
    timed, checked = span(before, late), span(late, after)
    if timed.norm == 0:
        return f"{timed.steps} timed steps changed no parameter"
    if timed.along(checked) < _ONE_DIRECTION or checked.rate == 0:
        return ""
    share = timed.rate / checked.rate
    if share >= _LEAST_RATE:
        return ""
    equivalent = share * timed.steps
    return f"{timed.steps} timed steps changed the parameters only as far as {equivalent:.1f} steps of the program go"


def same_training(a: AxisValues, b: AxisValues) -> bool:
    """Whether two requests for one network ask for the same training; dropout is random."""
    settings = [[_SAME_VALUE.get(str(each[axis]), each[axis]) for axis in DECIDE_THE_TRAINING] for each in (a, b)]
    return settings[0] == settings[1] and a["dropout"] == "off"


def disagreement(
    a: Training | Absent | None,
    b: Training | Absent | None,
    precisions: tuple[str, str],
    names: tuple[str, str] = ("A", "B"),
) -> str:
    """Return why two processes did different training, from their records; empty if there is no sign of it. Call it
    only if `same_training` is true. `names`: of both, in words."""
    if not isinstance(a, Training) or not isinstance(b, Training):
        return ""
    kind = max(map(_kind, precisions), key=list(_LOSS_APART).index)
    of_a, of_b = dict(a.losses), dict(b.losses)
    # Differences are relative to the first loss: the third may have fallen to a part of it.
    allowed = max(_LOSS_APART[kind] * max(abs(of_a.get(1, 0.0)), abs(of_b.get(1, 0.0))), _LOSS_APART_AT_LEAST)
    for steps in (1, 1 + EARLY_STEPS):
        if steps in of_a and steps in of_b and _apart(of_a, of_b, steps, precisions) > allowed:
            one, other = (f"{losses[steps]:.6g} in {name}" for losses, name in zip((of_a, of_b), names, strict=True))
            return f"the loss of step {steps} is {one} and {other}"
    if any(precision in _SKIPS_FIRST_UPDATES for precision in precisions) or kind == "low":
        return ""
    return (
        _changes_apart(a, b, _CHANGE_APART[kind], names)
        or _left_alone(a, b, names)
        or _trajectories_apart(of_a, of_b, precisions, names)
    )


def start_alike(trainings: Sequence[Training | Absent | None]) -> bool:
    """Whether the first losses of all are known and equal, as far as precisions allow. A module of one's own that is
    random starts differently each time."""
    starts = [dict(each.losses).get(1) for each in trainings if isinstance(each, Training)]
    known = [start for start in starts if start is not None]
    if len(known) < len(trainings) or not known:
        return False
    least, most = min(known), max(known)
    return most - least <= SAME_START * max(abs(most), abs(least))


def _kind(precision: str) -> str:
    if precision in _ROUNDS_UPDATES_AWAY:
        return "low"
    return "mixed" if precision.endswith("-mixed") else "full"


def _apart(a: Mapping[int, float], b: Mapping[int, float], steps: int, precisions: tuple[str, str]) -> float:
    """How far apart two losses are. After the first step, the side with narrower products may be anywhere on the way of
    the other one; whether it moves at all, its parameters tell."""
    bits = _bits(precisions)
    if steps == 1 or bits[0] == bits[1] or 1 not in a or 1 not in b:
        return abs(a[steps] - b[steps])
    wide, narrow = (a, b) if bits[0] > bits[1] else (b, a)
    low, high = sorted((wide[1], wide[steps]))
    return max(low - narrow[steps], narrow[steps] - high, 0.0)


def _bits(precisions: tuple[str, str]) -> tuple[int, int]:
    a, b = (_SIGNIFICAND_BITS.get(precision, _FULL_BITS) for precision in precisions)
    return a, b


def _changes_apart(a: Training, b: Training, most: float, names: tuple[str, str]) -> str:
    one, other = a.early_change, b.early_change
    if one is None or other is None or a.arrays != b.arrays:
        return ""
    if one <= most * other and other <= most * one:
        return ""
    sizes = f"{one:.3g} in {names[0]} and {other:.3g} in {names[1]}"
    return f"the size of the early updates (of the gradients, without update) is {sizes}"


def _left_alone(a: Training, b: Training, names: tuple[str, str]) -> str:
    """Detect that the first steps of one process leave arrays alone which those of the other change. Without update,
    these are gradients, and those left alone are zero."""
    if a.moved is None or b.moved is None or a.arrays != b.arrays:
        return ""
    most = max(a.moved, b.moved)
    if abs(a.moved - b.moved) <= max(1, _MOST_UNMOVED * most):
        return ""
    return f"of {a.arrays} arrays, the early steps changed {a.moved} in {names[0]} and {b.moved} in {names[1]}"


def _trajectories_apart(
    a: Mapping[int, float], b: Mapping[int, float], precisions: tuple[str, str], names: tuple[str, str]
) -> str:
    """Detect that one side learnt and the other did not in as many steps. Finer checks fail: losses oscillate."""
    common = min(max(a), max(b))
    if common < _STEPS_FOR_A_LOSS_TO_MOVE:
        return ""
    bits = _bits(precisions)
    for one, other, (learnt, did_not), (of_one, of_other) in ((a, b, names, bits), (b, a, names[::-1], bits[::-1])):
        # The other side's losses are of other steps: use its next one, in its favour.
        reached = min(steps for steps in other if steps >= common)
        best, worse = _remaining_loss(one, common), _remaining_loss(other, reached)
        if best < _HAS_LEARNT and worse > (_HARDLY_HAS if of_other < of_one else _HAS_NOT):
            return (
                f"{common} steps leave {percent(best)} of the first loss in {learnt}, and {reached} steps leave "
                f"{percent(worse)} in {did_not}"
            )
    return ""


def _remaining_loss(losses: Mapping[int, float], most: int) -> float:
    return min(loss for steps, loss in losses.items() if steps <= most) / max(losses[min(losses)], _LEARNT)


def untouched_array(a: Evidence, b: Evidence) -> str:
    """Name an array that the early steps of only one process changed or computed a gradient of."""
    precisions = (a.precision, b.precision)
    if any(_kind(precision) == "low" or precision in _SKIPS_FIRST_UPDATES for precision in precisions):
        return ""
    for one, other, name in ((a.early_span, b.early_span, "B"), (b.early_span, a.early_span, "A")):
        for array, change in one.change.items():
            counts = float(np.linalg.norm(change)) > _LEAST_SHARE_OF_CHANGE * one.norm
            if counts and array not in other.change:
                return f"{name} has no gradient of {array}"
            if counts and not other.change[array].any():
                return f"{name} does not update {array}"
    return ""
