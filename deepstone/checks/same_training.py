"""Is a tuned setup still the training that was asked for? Compares its first steps with those of the default.

    level    a setup may change                               test
    exact    the order of operations                          first steps; every layer against the float64 reference
    close    rounding too; state if the update survives       first steps
    any      anything                                         first steps, to say what was given up

First steps are twenty, on the same weights and batch: the first gradient, the losses, the updates (checks/closeness.py
has the tolerances). The default runs on three batches, which shows what other data change. If this does not fit into
the time, the batch is made smaller, then there are fewer steps; if that does not help, the answer is "not proven".

A candidate that is too far off may still be right, in a network that amplifies rounding. So the default runs once more
with rounded weights, and a candidate in another framework once more in the default's precision: rounding is judged by
itself, and the lowering without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.backends.registry import backend_of
from deepstone.checks.closeness import ALLOWED, Baseline, closeness, gradient_alone, rounding_share
from deepstone.checks.comparable import comparable
from deepstone.checks.first_steps import (
    FEWER_STEPS,
    MOST_VALUES,
    READ_AFTER,
    STEPS,
    FirstSteps,
    Start,
    run_first_gradient,
    run_first_steps,
)
from deepstone.checks.parallel import is_equivalent
from deepstone.errors import MissingError
from deepstone.graph.ops import BatchNorm
from deepstone.results.sameness import Comparable
from deepstone.results.tune import ONLY_ORDER, SameLevel, SameSetup, SameTraining
from deepstone.runner.conversation import JobFailed, Spares
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.runner.team import Talk, talking_to
from deepstone.setups.axes import AUTO, AXES
from deepstone.setups.tuning import Alters, Facts, NotTuned, meaning_of_auto
from deepstone.setups.world import Parts

BATCHES: Final = 3  # on which the default runs
_LEAST_BATCH: Final = 2  # batch norm needs more than one sample
_GOOD_BATCH: Final = 8  # gradients of fewer samples differ so much that much is allowed; rather fewer steps
_FIXED_SHARE: Final = 0.3  # of a step that does not become shorter with the batch
_MARGIN: Final = 0.7  # of the time left that a plan may fill: a machine is not always as fast
_SKIPS_UPDATES: Final = ("fp16-mixed",)
_NARROW_WEIGHTS: Final = ("bf16", "fp16")
# From fine to coarse: what products, and then weights, are rounded to.
_FINENESS: Final = ("fp64", "fp32", "tf32-conv", "tf32", "fp16-mixed", "bf16-mixed", "bf16", "fp16")
_GIVEN_UP: Final = {
    "tf32": "products in TF32",
    "tf32-conv": "convolutions in TF32",
    "bf16-mixed": "products and activations in bf16",
    "fp16-mixed": "products and activations in fp16, with a scaled loss",
    "bf16": "weights, products and activations in bf16",
    "fp32": "double precision",
}
_OTHER: Final = "it is other training: "
# Half a unit in the last place: what rounding to a format changes at most.
_ROUNDS_BY: Final = {"fp64": 2.0**-53, "tf32": 2.0**-11, "tf32-conv": 2.0**-11, "fp16-mixed": 2.0**-11}
_ROUNDS_BY_BF16: Final = 2.0**-9
_ORDER_ROUNDS_BY: Final = 2.0**-23  # sums in another order


def same_training(
    default: Job,
    candidates: Mapping[str, Job],
    level: SameLevel,
    *,
    deadline_s: float,
    spares: Spares | None = None,
    on_progress: OnProgress = no_progress,
) -> dict[str, SameSetup]:
    """Check each candidate, the most important first, until `deadline_s` on the clock of time.monotonic().

    A candidate that is not reached is not proven. Raises nothing for what a worker does. `spares`: workers that wait
    for a job.
    """
    check = _Check(
        default=_as_checked(default), level=level, deadline_s=deadline_s, spares=spares, on_progress=on_progress
    )
    names = {name: _as_checked(job) for name, job in candidates.items()}
    refused = {name: reason for name, job in names.items() if (reason := _other_training(check.default, job, level))}
    found = {name: _answer(check.default, names[name], refused.get(name, ""), is_refuted=True) for name in refused}
    left = {name: job for name, job in names.items() if name not in refused}
    found |= check.run(left) if left else {}
    return {name: replace(found[name], setup=_setup(candidates[name])) for name in candidates}


def summary(level: SameLevel, found: Sequence[SameSetup], best: SameSetup | None) -> SameTraining:
    """The answer of a search, whose best setup is `best`; None: the default itself, which gives up nothing."""
    return SameTraining(
        level=level,
        ok=best is None or best.ok,
        setups=list(found),
        given_up="" if best is None else best.given_up,
    )


def altered(default: Job, candidate: Job, also: Sequence[Alters] = ()) -> list[Alters]:
    """What the candidate's axes alter against those of the default, and what else is known to be altered."""
    has_norm = any(isinstance(layer.op, BatchNorm) for layer in default.model.graph.layers)
    facts = Facts(
        device="gpu" if str(candidate.request["device"]).startswith("gpu") else "cpu", has_batch_norm=has_norm
    )
    found: set[Alters] = set(also)
    for name, axis in AXES.items():
        if candidate.request[name] == default.request[name] or isinstance(axis.tuning, NotTuned):
            continue
        found.add(axis.tuning.alters(candidate.request[name], facts))
    if candidate.environment != default.environment:
        found.add("order")
        precisions = (_planned_precision(job, facts) for job in (candidate, default))
        if _is_coarser(*precisions):
            found.add("rounding")
    if not is_equivalent(candidate):
        found.add("state")
    order: tuple[Alters, ...] = ("order", "rounding", "state", "batch")
    return [each for each in order if each in found]


def _planned_precision(job: Job, facts: Facts) -> str:
    """As asked for, or what `auto` is known to be in its framework: on a GPU JAX takes TF32 for more than torch."""
    asked = str(job.request["precision"])
    return asked if asked != AUTO else str(meaning_of_auto(job.environment.framework, facts).get("precision", AUTO))


def _as_checked(job: Job) -> Job:
    """Dropout is random, so it is off. The image's gradient and where the batch lies do not matter."""
    defaults = {name: AXES[name].default for name in ("dropout", "input", "input_grad")}
    return replace(job, request={**job.request, **defaults})


def _other_training(default: Job, candidate: Job, level: SameLevel) -> str:
    """Why no test is needed to say that it is other training, or nothing."""
    if default.model.graph.sha != candidate.model.graph.sha:
        return f"{_OTHER}another network"
    for name in ("phase", "seed", "batch"):
        if default.request[name] != candidate.request[name]:
            return f"{_OTHER}{name}={candidate.request[name]} instead of {default.request[name]}"
    alters = altered(default, candidate)
    if "batch" in alters and level != "any":
        parts = Parts.of(candidate.request).count
        return f"{_OTHER}batch norm takes its statistics from each of {parts} parts of the batch"
    if level == "exact" and (beyond := [each for each in alters if each != "order"]):
        return f"{ONLY_ORDER}, and this alters {' and '.join(beyond)}"
    return ""


def _setup(job: Job) -> dict[str, str | int]:
    return {name: value for name, value in job.request.items() if value != AXES[name].default}


class _Started(Struct, frozen=True, kw_only=True):
    """A job's steps, and what its worker has in effect."""

    steps: Sequence[FirstSteps]
    precision: str
    start_s: float


class _Times(Struct, frozen=True, kw_only=True):
    """What a run takes beside its steps (building the network, compiling, reading values); what a step takes at least,
    and for each of its samples."""

    around_s: float
    least_s: float
    sample_s: float

    def batch_of(self, step_s: float) -> float:
        return (step_s - self.least_s) / self.sample_s


class _OutOfTime(Exception):
    pass


class _Check:
    def __init__(
        self, *, default: Job, level: SameLevel, deadline_s: float, spares: Spares | None, on_progress: OnProgress
    ) -> None:
        self.default = default
        self._spares = spares
        self._level: SameLevel = level
        self._deadline_s = deadline_s
        self._on_progress = on_progress
        self._batch = default.batch
        self._steps_each = STEPS
        # Of the default, by how far its weights are changed; None: it does not repeat itself.
        self._rounded: dict[float, FirstSteps | None] = {}
        self._rounded_gradient: FirstSteps | None = None  # its first, if sums had another order

    def run(self, candidates: Mapping[str, Job]) -> dict[str, SameSetup]:
        self._on_progress("the default on three batches", 0.0)
        try:
            of_default = self._run_default([self.default, *candidates.values()])
            baseline = Baseline(batches=of_default.steps)
            if not baseline.is_finite:
                raise JobFailed("diverged", "the default's own numbers are not finite", stage="losses")
        except (JobFailed, MissingError, _OutOfTime) as failure:
            why = _words(failure, "the default")
            return {name: _answer(self.default, job, why) for name, job in candidates.items()}
        found: dict[str, SameSetup] = {}
        for number, (name, job) in enumerate(candidates.items(), start=1):
            self._on_progress(name, number / (len(candidates) + 1))
            try:
                found[name] = self._judged(job, baseline, of_default.precision)
            except (JobFailed, MissingError, _OutOfTime) as failure:
                found[name] = _answer(self.default, job, _words(failure, "it"))
        if self._level != "exact":
            return found
        return {name: self._with_layers(same, candidates[name]) if same.ok else same for name, same in found.items()}

    def _talking_to(self, job: Job) -> AbstractContextManager[Talk]:
        return talking_to(job, timeout_s=self._left_s(), spares=self._spares)

    def _run_default(self, jobs: Sequence[Job]) -> _Started:
        seed = int(self.default.request["seed"])
        begin_s = time.monotonic()
        with self._talking_to(self.default) as talk:
            precision = self._start(talk, self.default)
            start_s = time.monotonic() - begin_s
            roundings = self._roundings(precision, jobs[1:])
            self._plan(talk, jobs, start_s, roundings=len(roundings))
            seeds = range(seed, seed + BATCHES)
            steps = [self._steps(talk, precision, self._start_of(self.default, data_seed=each)) for each in seeds]
            with suppress(_OutOfTime):
                baseline = Baseline(batches=steps)
                for rounds_by in roundings:
                    self._rounded[rounds_by] = self._perturbed(talk, precision, baseline, rounds_by)
                if roundings and any(map(self._is_of_another_framework, jobs)):
                    start = self._start_of(self.default, perturbation=_ORDER_ROUNDS_BY)
                    self._rounded_gradient = run_first_gradient(talk, start)
        return _Started(steps=steps, precision=precision, start_s=start_s)

    def _roundings(self, precision: str, candidates: Sequence[Job]) -> list[float]:
        """What the default's weights are rounded to while its process is there: narrow numbers are often too far off to
        be judged without it, and another process for it takes longer."""
        asked = {str(job.request["precision"]) for job in candidates}
        return sorted({_rounds_by(each) for each in asked - {precision, str(self.default.request["precision"])}})

    def _is_of_another_framework(self, job: Job) -> bool:
        return job.environment.framework != self.default.environment.framework

    def _starts_s(self, job: Job, start_s: float) -> float:
        """What the processes take to start that judge a candidate: in another framework and precision there are two."""
        own, default = (
            backend_of(each.framework, each.version).startup_s for each in (job.environment, self.default.environment)
        )
        rounds = job.request["precision"] != self.default.request["precision"]
        slower = own / default if default else 1.0
        return start_s * slower * (2 if rounds and self._is_of_another_framework(job) else 1)

    def _perturbed(self, talk: Talk, precision: str, baseline: Baseline, rounds_by: float) -> FirstSteps | None:
        """The default with rounded weights; None if the plain default does not repeat itself."""
        again = run_first_gradient(talk, self._start_of(self.default))
        if not gradient_alone(baseline, again).ok:
            return None
        return self._steps(talk, precision, self._start_of(self.default, perturbation=rounds_by))

    def _start(self, talk: Talk, job: Job) -> str:
        """Prepare the job as it is measured, and return its effective precision."""
        if reason := job.broken_rule:
            raise JobFailed("unsupported", reason, stage="plan")
        talk.hello()
        prepared = talk.prepare()
        if reason := prepared.contradiction(job.request):
            raise JobFailed("unsupported", reason, stage="prepare")
        return prepared.value("precision")

    def _plan(self, talk: Talk, jobs: Sequence[Job], start_s: float, *, roundings: int) -> None:
        """Choose the largest batch, and the most steps, with which as many jobs as possible fit into the time left."""
        times = self._times(talk)
        parts = [Parts.of(job.request).count for job in jobs]
        starts_s = [self._starts_s(job, start_s) for job in jobs[1:]]
        left_s = self._left_s()
        for others in range(len(jobs) - 1, 0, -1):  # those that do not fit are not reached
            runs = BATCHES + 2 * roundings + others  # to change the weights takes as long as some steps
            for_steps_s = _MARGIN * left_s - sum(starts_s[:others]) - times.around_s * runs
            fitting = fitting_plan(
                self.default.batch,
                parts,
                most_at=lambda steps, time_s=for_steps_s / runs: times.batch_of(time_s / steps),
            )
            if fitting is not None:
                self._batch, self._steps_each = fitting
                return
        runs = BATCHES + 2 * roundings + 1
        steps_s = FEWER_STEPS[-1] * (times.least_s + times.sample_s * _LEAST_BATCH)
        needed_s = (starts_s[0] + (times.around_s + steps_s) * runs) / _MARGIN
        why = f"it needs about {needed_s:.0f} s, and {left_s:.0f} s are left; give a larger --budget"
        raise JobFailed("timeout", why, stage="plan")

    def _times(self, talk: Talk) -> _Times:
        begin_s = time.monotonic()
        self._start_of(self.default).build(talk)
        built_s = time.monotonic() - begin_s
        first_s, step_s = _seconds(lambda: talk.losses(1)), _seconds(lambda: talk.losses(1))
        reads_s = (2 + len(READ_AFTER)) * _seconds(lambda: talk.sample("parameters", most=MOST_VALUES))
        around_s = built_s + max(0.0, first_s - step_s) + reads_s
        # An update takes as long for a smaller batch.
        least_s = _FIXED_SHARE * step_s
        return _Times(around_s=around_s, least_s=least_s, sample_s=(step_s - least_s) / self.default.batch)

    @property
    def _reduced(self) -> str:
        """How the plan is smaller than usual; empty where it is not."""
        usual = ((self._steps_each, STEPS, "steps"), (self._batch, self.default.batch, "samples in a batch"))
        return ", ".join(f"{planned} {what} instead of {full}" for planned, full, what in usual if planned < full)

    def _start_of(self, job: Job, *, data_seed: int | None = None, perturbation: float = 0.0) -> Start:
        return Start(
            phase=str(job.request["phase"]),
            data_seed=int(job.request["seed"]) if data_seed is None else data_seed,
            changed={} if self._batch == job.batch else {"batch": self._batch},
            perturbation=perturbation,
            steps=self._steps_each,
        )

    def _steps(self, talk: Talk, precision: str, start: Start) -> FirstSteps:
        self._left_s()
        return run_first_steps(talk, start, may_skip=precision in _SKIPS_UPDATES)

    def _judged(self, job: Job, baseline: Baseline, default_precision: str) -> SameSetup:
        with self._talking_to(job) as talk:
            precision = self._start(talk, job)
            steps = self._steps(talk, precision, self._start_of(job))
        narrow = precision in _NARROW_WEIGHTS and default_precision not in _NARROW_WEIGHTS
        rounds = precision != default_precision and not narrow
        measured = closeness(baseline, steps, narrow_state=narrow)
        answer = SameSetup(
            setup={},
            ok=measured.ok and steps.is_finite,
            gradient=measured.gradient,
            loss=measured.loss,
            update=measured.update,
            why_not="" if measured.ok else "; ".join(measured.failed()),
            alters=list(altered(self.default, job, ("rounding",) if rounds else ())),
            given_up=_given_up(default_precision, precision, job),
            batch=self._batch,
            steps=len(steps.losses),
            reduced=self._reduced,
        )
        if self._level == "exact" and precision != default_precision:
            why = f"exact allows another order of operations only: {default_precision} became {precision}"
            return replace(answer, ok=False, is_refuted=True, why_not=why)
        if not steps.is_finite:
            return replace(answer, is_refuted=True, why_not="its numbers are not finite")
        if not answer.ok:
            try:
                answer = self._despite_rounding(answer, job, steps, baseline, (default_precision, precision))
            except (JobFailed, MissingError, _OutOfTime) as failure:
                unknown = f"whether rounding alone does that is not known: {_words(failure, 'the default')}"
                return replace(answer, why_not=f"{answer.why_not}; {unknown}")
        return answer

    def _despite_rounding(
        self, answer: SameSetup, job: Job, steps: FirstSteps, baseline: Baseline, precisions: tuple[str, str]
    ) -> SameSetup:
        """Judge a candidate that is too far off by what rounding alone does to this network. `precisions`: that of the
        default, and its own."""
        default_precision, precision = precisions
        changes_precision = precision != default_precision
        rounds_by = _rounds_by(precision) if changes_precision else _ORDER_ROUNDS_BY
        rounded = self._rounded_default(baseline, rounds_by)
        if rounded is None:
            why = f"the default does not repeat itself from launch to launch ({answer.why_not})"
            return replace(answer, why_not=why)
        measured = closeness(baseline, steps, narrow_state=precision in _NARROW_WEIGHTS, rounded=rounded)
        share = rounding_share(baseline, rounded)
        answer = replace(
            answer,
            ok=measured.ok,
            gradient=measured.gradient,
            loss=measured.loss,
            update=measured.update,
            why_not="; ".join(measured.failed()),
            is_refuted=not measured.ok,
            rounding=share,
        )
        if not answer.ok:
            return answer
        if changes_precision and share > ALLOWED:
            noise = f"gradients, in which rounding is {100 * share:.0f} % of what other data change"
            answer = replace(answer, given_up=", ".join(filter(None, (answer.given_up, noise))))
        if changes_precision and job.environment.framework != self.default.environment.framework:
            return self._in_precision_of_default(answer, job, baseline, default_precision)
        return answer

    def _rounded_default(self, baseline: Baseline, rounds_by: float) -> FirstSteps | None:
        """The default with rounded weights; None if the plain default does not repeat itself."""
        if rounds_by not in self._rounded:
            self._on_progress("the default with rounded weights", 0.5)
            with self._talking_to(self.default) as talk:
                precision = self._start(talk, self.default)
                self._rounded[rounds_by] = self._perturbed(talk, precision, baseline, rounds_by)
        return self._rounded[rounds_by]

    def _in_precision_of_default(
        self, answer: SameSetup, job: Job, baseline: Baseline, default_precision: str
    ) -> SameSetup:
        """Where rounding hides it, a wrong lowering shows in the default's precision."""
        as_default = replace(job, request={**job.request, "precision": default_precision})
        rounded = self._rounded_gradient or self._rounded_default(baseline, _ORDER_ROUNDS_BY)
        if reason := as_default.broken_rule:
            raise JobFailed("unsupported", reason, stage="plan")
        with self._talking_to(as_default) as talk:
            talk.hello()  # no `prepare`: this setup is not measured, and compiling its step twice takes long
            found = gradient_alone(baseline, run_first_gradient(talk, self._start_of(as_default)), rounded)
        if found.ok:
            return answer
        why = f"in {default_precision}, where rounding hides less: {'; '.join(found.failed())}"
        return replace(answer, ok=False, is_refuted=True, why_not=why)

    def _with_layers(self, answer: SameSetup, job: Job) -> SameSetup:
        """Under exact every layer is checked too."""
        if job.model.graph.opaque:
            return replace(answer, layers=Absent("a module of your own has no reference"))
        layers = self._layers(job)
        if isinstance(layers, Absent) or layers.failure:
            why = layers.reason if isinstance(layers, Absent) else str(layers.failure)
            return replace(answer, ok=False, layers=Absent(why), why_not=f"its layers were not all checked: {why}")
        if not layers.ok:
            return replace(answer, ok=False, is_refuted=True, layers=layers, why_not=layers.why_not())
        return replace(answer, layers=layers)

    def _layers(self, job: Job) -> Comparable | Absent:
        def progress(stage: str, share: float) -> None:
            self._left_s()
            self._on_progress(stage, share)

        try:
            return comparable({"it": job}, timeout_s=self._left_s(), on_progress=progress)["it"]
        except _OutOfTime:
            return Absent("the time ran out")
        except MissingError as error:
            return Absent(str(error))

    def _left_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise _OutOfTime
        return left_s


def _seconds(act: Callable[[], object]) -> float:
    begin_s = time.monotonic()
    act()
    return time.monotonic() - begin_s


def fitting_plan(batch: int, parts: Sequence[int], *, most_at: Callable[[int], float]) -> tuple[int, int] | None:
    """A batch, and how many steps: the most steps with a good batch, else with any. `most_at`: the largest batch with
    which so many steps fit into the time."""
    plans = [(fitting_batch(batch, parts, most=most_at(steps)), steps) for steps in FEWER_STEPS]
    fitting = [(size, steps) for size, steps in plans if size is not None]
    good = [(size, steps) for size, steps in fitting if size >= _GOOD_BATCH]
    return next(iter([*good, *fitting]), None)


def fitting_batch(batch: int, parts: Sequence[int], *, most: float) -> int | None:
    """Halve a batch until it is at most `most`; None if it then cannot be divided into each of these numbers of parts,
    or has too few samples for batch norm."""
    while batch > most:
        smaller = batch // 2
        if batch % 2 or smaller < _LEAST_BATCH or any(smaller % count for count in parts):
            return None
        batch = smaller
    return batch


def _answer(default: Job, job: Job, why_not: str, *, is_refuted: bool = False) -> SameSetup:
    nothing = Absent(why_not)
    return SameSetup(
        setup={},
        ok=False,
        gradient=nothing,
        loss=nothing,
        update=nothing,
        why_not=why_not,
        is_refuted=is_refuted,
        alters=list(altered(default, job)),
        given_up=_given_up(str(default.request["precision"]), str(job.request["precision"]), job),
    )


def _words(failure: Exception, who: str) -> str:
    if isinstance(failure, JobFailed) and failure.stage == "plan":
        return failure.reason
    if isinstance(failure, _OutOfTime) or (isinstance(failure, JobFailed) and failure.outcome == "timeout"):
        return "the time for this check ran out; give a larger --budget"
    if isinstance(failure, JobFailed):
        return f"{who} failed in the check: {failure.outcome}: {failure.reason}"
    return str(failure)


def _given_up(default_precision: str, precision: str, job: Job) -> str:
    lost: list[str] = []
    if _is_coarser(precision, default_precision):
        lost.append(_GIVEN_UP.get(precision, precision))
    compression = str(job.request["compression"])
    if compression != AXES["compression"].default:
        lost.append(f"gradients sent with {compression}")
    return ", ".join(lost)


def _rounds_by(precision: str) -> float:
    return _ROUNDS_BY_BF16 if precision.startswith("bf16") else _ROUNDS_BY.get(precision, _ORDER_ROUNDS_BY)


def _is_coarser(precision: str, other: str) -> bool:
    if precision not in _FINENESS:
        return False
    known = other if other in _FINENESS else "fp32"  # auto: not started, so it is not known
    return _FINENESS.index(precision) > _FINENESS.index(known)
