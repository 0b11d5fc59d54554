"""Tunes a workload: searches, checks that the finalists train the same, decides in finals, explains.

    budget   ├──────── search: a half ────────┤─ same: a tenth ─┤─ finals: a quarter ─┤─ explanation: the rest ─┤
    log      written after every look; a call that was killed goes on with it

What a part does not need, the next one has (tuner/shares.py). No launch may take longer than what is left, so the end
comes when it was asked for, with what is known by then. A winner that rounds, and whose check ran out of time, is
checked once more before the explanation. If it is still not proven, it is not the best setup.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.checks.same_training import same_training
from deepstone.durable import signals_blocked
from deepstone.errors import StoreError, UsageError
from deepstone.results.findings import Finding
from deepstone.results.record import Draft, Record
from deepstone.results.tune import NOT_THE_SAME, Bound, Look, LookKind, Tuned, TuneLog
from deepstone.runner.assemble import now
from deepstone.setups.tuning import DeviceKind
from deepstone.setups.world import World
from deepstone.store.store import Store
from deepstone.tuner.answer import Found, answer_of
from deepstone.tuner.bound import bound_of, roofline_share
from deepstone.tuner.doubts import (
    beaten_without,
    compiled_unevenly,
    doubts_of_runs,
    failed_finalists,
    finalists_that_compile,
    kin_of_refused,
    other_machine_state,
    refused_launches,
    too_short,
    uneven_rounds,
    with_doubt_of_limits,
)
from deepstone.tuner.explain import Explainer
from deepstone.tuner.finals import Contest, Judged, judge, plan_finals
from deepstone.tuner.looks import Looks
from deepstone.tuner.proof import Proof, SameCheck, StageProgress
from deepstone.tuner.quick_starts import NO_QUICK_STARTS, quick_starts
from deepstone.tuner.search import Search, Seen
from deepstone.tuner.shares import LEAST_TIMEOUT_S, Shares
from deepstone.tuner.space import Point, Space
from deepstone.tuner.starts import best_in_store, starts_of
from deepstone.tuner.wanted import Wanted
from deepstone.tuner.workload import Looked, Workload, other_training

_CHECKED: Final = 4  # finalists that are checked, at most
_STEPS_OF_LAYERS: Final = 30  # plain ones and timestamped ones
_LAYERS_S: Final = 5.0
_TIMED_S: Final = {"cpu": 1.5, "gpu": 3.0}
_NOISE_SD: Final = {"cpu": 0.05, "gpu": 0.004}  # as expected before the first look
_ENERGY_S: Final = {"search": 3.0, "final": 10.0}  # windows of the meters; they move slowly
_ALSO_ENERGY_S: Final = {"cpu": 0.0, "gpu": 2.0}  # where it is not sought: a launch takes far longer on a GPU


def timed_s_on(device: DeviceKind) -> float:
    """Seconds of timed steps in a look."""
    return _TIMED_S[device]


class Progress(StageProgress, Protocol):
    def looked(self, look: Look, tuner: Tuner) -> None: ...


@dataclass(kw_only=True)
class Tuner:
    """`log`: what earlier calls of the same command found."""

    workload: Workload
    wanted: Wanted
    store: Store
    log: TuneLog
    progress: Progress
    before_look: Callable[[Point], None] = lambda _point: None
    check: SameCheck = same_training
    clock: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)
    _drafts: dict[Point, Draft] = field(default_factory=dict[Point, Draft])
    search: Search = field(init=False)
    proof: Proof = field(init=False)

    def __post_init__(self) -> None:
        space, self._began_s = self.workload.space, self.clock()
        stored = best_in_store(self.store, space, self.workload.model, self.workload.machine.sha)
        self.search = Search(
            landscape=space,
            starts=starts_of(space, stored, self.workload.advised),
            noise_sd=_NOISE_SD[space.facts.device],
            expected_s=lambda point: self.workload.expected_s(point, self.timed_s),
            near=(lambda _point: ()) if space.is_listed else space.neighbours,
            slowdown=self.wanted.objective.slowdown,
            at_batch=space.at_asked_batch if space.has_free_batch else None,
            can_run=lambda point: space.why_not(point) is None,
            is_refused=lambda point: self.proof.is_refused(point),
            keeps_programs=space.facts.device == "gpu",
            slow_to_start=space.slow_to_start,
            quicker=space.quicker,
        )
        self._quick_starts = NO_QUICK_STARTS
        self._earlier_s = self.log.spent_s
        for look in self.log.looks:
            point = space.point_of(look.setup)
            if point is not None and look.kind not in ("final", "explain"):
                self.search.tell(self._seen(look, point))
        self.proof = Proof(workload=self.workload, level=self.wanted.level, progress=self.progress, compare=self.check)
        self.proof.restore(self.log.same)
        self._restore_reference()

    def _restore_reference(self) -> None:
        """The first steps of the default, with which those of every other setup are compared."""
        for look in self.log.looks:
            is_default = self._space.point_of(look.setup) == self._space.default
            if is_default and look.run is not None and not isinstance(look.samples_per_s, Absent):
                # If it was deleted meanwhile, the next look at the default takes its place.
                with suppress(StoreError, UsageError):
                    self._drafts[self._space.default] = self.store.get(look.run)
                return

    @property
    def timed_s(self) -> float:
        return self.wanted.timed_s or timed_s_on(self.workload.space.facts.device)

    @property
    def spent_s(self) -> float:
        return self._earlier_s + self.clock() - self._began_s

    @property
    def left_s(self) -> float:
        return self.wanted.budget_s - self.spent_s

    def tune(self) -> Tuned:
        """Raises MissingError, StoreError; a setup that fails is only a look without a speed."""
        with quick_starts(self._space.facts.device, self._space.facts.cores) as self._quick_starts:
            self.proof.quick_starts = self._quick_starts
            return self._tune()

    def _tune(self) -> Tuned:
        self._search()
        contest = self._finals()
        self._prove_winner(contest)
        judged = self._judged(contest)
        self._explain(judged, only_new=True)
        self._time_layers(judged.best)
        self._explain(judged)
        return self._answer(contest)

    def finish(self) -> None:
        """Call it when the answer is stored: the same search then begins anew, and until then it goes on."""
        self._write(replace(self.log, finished_at=now(), spent_s=self.spent_s))

    @property
    def best_so_far(self) -> tuple[Point, float] | None:
        """The best point by the looks at it, and its value over that of the default."""
        means: dict[Point, list[float]] = {}
        for seen in self.search.seen:
            if seen.value is not None:
                means.setdefault(seen.point, []).append(seen.value)
        if not means or self._space.default not in means:
            return None
        expected = {point: math.fsum(values) / len(values) for point, values in means.items()}
        best = max(expected, key=lambda point: expected[point])
        return best, math.exp(expected[best] - expected[self._space.default])

    @property
    def _space(self) -> Space:
        return self.workload.space

    @property
    def _looks(self) -> Looks:
        return Looks(space=self._space, wanted=self.wanted, all=self.log.looks)

    @property
    def _shares(self) -> Shares:
        return Shares(budget_s=self.wanted.budget_s, device=self._space.facts.device)

    @property
    def _check_s(self) -> float:
        default_step_s = self._step_s(self._space.default)
        return self._shares.check_s(launches_s=self.search.least_check_s(), default_step_s=default_step_s)

    # The search

    def _search(self) -> None:
        if self.log.finalists:
            return
        while self.spent_s < self._shares.search_s or self._is_default_ahead:
            if self._space.count == 1 and self.search.good:
                return  # there is nothing to compare it with
            # Where launches are long for the budget, the search has its time all the same: short finals can still say
            # that nothing is decided, and no looks can say nothing at all.
            shares = 1 if self.search.is_starting else self.search.winners
            least_s = min(self.search.least_finals_s(), shares * self._shares.finals_s)
            ask = self.search.next(self.left_s - least_s - self._check_s)
            if ask is None and not self._has_rivals:
                ask = self.search.next(self.left_s)  # a look without finals tells more than none
            if ask is None:
                return
            self._search_look(ask.kind, ask.point)

    @property
    def _has_rivals(self) -> bool:
        """Whether anything but the default has run, be it beyond the limits."""
        default = self._space.default
        return any(
            point != default and not isinstance(look.samples_per_s, Absent) for look, point in self._looks.points()
        )

    @property
    def _is_default_ahead(self) -> bool:
        """Whether no look was faster than the default: then another one is worth more than finals of slower setups."""
        best = self.best_so_far
        return best is not None and best[0] == self._space.default

    def _search_look(self, kind: LookKind, point: Point) -> None:
        look = self._look(kind, point)
        self.search.tell(self._seen(look, point))
        self.progress.looked(look, self)

    def _timeout_s(self) -> float:
        longest_s = self._shares.longest_look_s(is_first=not self.search.seen)
        return max(LEAST_TIMEOUT_S, min(self.wanted.timeout_s, longest_s, self._shares.end_s - self.spent_s))

    def _look(self, kind: LookKind, point: Point, round: int | None = None) -> Look:
        space = self._space
        self.before_look(point)
        title = " ".join(f"{name}={value}" for name, value in space.given(point).items()) or "default"
        self.progress.begin(f"{kind}: {title}")
        began_s = self.spent_s
        energy_s = (
            _ENERGY_S["final" if kind == "final" else "search"]
            if self.wanted.needs_energy
            else _ALSO_ENERGY_S[space.facts.device]
        )
        timeout_s = self._timeout_s()
        found = self.workload.look(
            point,
            timed_s=self.timed_s,
            timeout_s=timeout_s,
            slowest_step_s=self._slowest_step_s(point),
            energy_s=energy_s,
            repetition=1 + sum(space.point_of(look.setup) == point for look in self.log.looks),
            standby=self._quick_starts.standby,
            compile_cache=self._quick_starts.compile_cache(kind),
            on_progress=self.progress.advance,
        )
        if found.outcome == "timeout" and not found.is_too_slow and timeout_s < self.wanted.timeout_s:
            found = replace(found, reason=self._over_budget(point, timeout_s))
        with signals_blocked():  # a run that is stored is also in the log
            record = self.store.add(found.draft)
            look = self._as_look(kind, point, found, began_s, str(record.id), round)
            self._write(replace(self.log, looks=[*self.log.looks, look], spent_s=self.spent_s))
        return look

    def _slowest_step_s(self, point: Point) -> float:
        default = self._space.default
        step_s = self._step_s(default)
        if not step_s or self.wanted.objective.name != "throughput":
            return math.inf
        batch, asked = (int(self._space.request(each)["batch"]) for each in (point, default))
        return self._shares.slowest_step_s(step_s * batch / asked)

    def _step_s(self, point: Point) -> float:
        """As the first look at it says; 0 if there was none."""
        draft = self._drafts.get(point)
        return 0.0 if draft is None or isinstance(draft.summary, Absent) else draft.summary.step_s.median

    def _over_budget(self, point: Point, timeout_s: float) -> str:
        """Why a launch was ended though --timeout allows more, and which budget would do."""
        took_s = max(timeout_s, self.workload.expected_s(point, self.timed_s))
        return (
            f"a launch may take {timeout_s:.3g} s of this budget, and this one takes longer; give a larger budget, as "
            f"--budget {self._shares.enough_s(took_s):.0f}s"
        )

    def _as_look(
        self, kind: LookKind, point: Point, found: Looked, began_s: float, run: str, round: int | None
    ) -> Look:
        reason = found.reason
        if found.samples_per_s is not None:
            self._drafts.setdefault(point, found.draft)
            reference = self._drafts.get(self._space.default)
            reason = other_training(reference, found.draft) if reference is not None else ""
            if reason and point == self._space.default and self.workload.model.graph.opaque:
                raise UsageError(
                    f"{self.workload.reference}: it trains differently in every launch, so no setup can be compared "
                    f"with another: {reason}; seed its random numbers where it is made"
                )
        speed = found.samples_per_s
        told = f"{found.outcome}: {reason}" if found.outcome != "ok" else f"{NOT_THE_SAME}{reason}"
        return Look(
            kind=kind,
            setup=self._space.given(point),
            samples_per_s=Absent(told) if reason or speed is None else speed,
            samples_per_j=found.samples_per_j,
            peak_bytes=found.peak_bytes,
            outcome=found.outcome,
            began_s=began_s,
            took_s=found.took_s,
            first_step_s=found.first_step_s,
            run=run,
            round=round,
        )

    def _seen(self, look: Look, point: Point) -> Seen:
        speed = look.samples_per_s
        return Seen(
            kind=look.kind,
            point=point,
            value=self.wanted.value(look),
            took_s=look.took_s,
            log_speed=None if isinstance(speed, Absent) else math.log(speed),
            first_step_s=look.first_step_s,
            never_stepped=look.outcome == "timeout" and not look.first_step_s,
        )

    # The finals

    def _finals(self) -> Contest:
        contest = self._planned_finals()
        points = contest.points
        if contest.rounds and not self.log.order:
            finalists = [self._space.given(point) for point in points]
            order = [[points.index(point) for point in each] for each in contest.order]
            self._write(replace(self.log, finalists=finalists, order=order))
            looked = len({seen.point for seen in self.search.seen})
            self.progress.say(f"finals: the default and {len(points) - 1} of {looked} setups, {contest.rounds} rounds")
        default = self._space.default
        for number, order in enumerate(contest.order, start=1):
            for point in order:
                while not self._looks.is_settled(point, number):
                    takes_s = self.search.cost_s(point) + (self.search.compile_s(point) if number == 1 else 0.0)
                    if self.spent_s + 0.5 * takes_s > self._shares.end_s:
                        return contest
                    look = self._look("final", point, number)
                    self.progress.looked(look, self)
                    if self._looks.is_cut_off(look):
                        return contest
            if self._looks.is_out(default) and self._looks.ran_in_search(default):
                return contest  # without it no round has a ratio
        return contest

    def _planned_finals(self) -> Contest:
        space = self._space
        if self.log.order:
            points = tuple(point for setup in self.log.finalists if (point := space.point_of(setup)) is not None)
            return Contest(points=points, order=tuple(tuple(points[n] for n in each) for each in self.log.order))
        self._look_around_the_best()
        finalists = self._proven_or_open()
        return plan_finals(
            space.default,
            finalists,
            noise=self.search.noise,
            time_s=self._shares.all_finals_s(self.left_s),
            cost_s=self.search.cost_s,
            compile_s=self.search.compile_s,
            seed=len(self.log.looks),
            fewest=2 if space.has_free_batch else 1,
        )

    def _proven_or_open(self) -> list[Point]:
        """The best points that are not shown to be other training. If all of them are, or where the batch is free all
        at the one asked for or all at others, the next best, as long as the time suffices for a check and short
        finals."""
        while True:
            candidates = self._candidates()
            finalists = self._not_refused(candidates)
            at_batch = self._space.is_at_asked_batch
            lost = {at_batch(point) for point in candidates} - {at_batch(point) for point in finalists}
            enough_s = self.search.least_finals_s() + self._check_s
            if not lost or self.left_s < enough_s:
                return finalists
            refused = next(point for point in candidates if at_batch(point) in lost)
            self._look_without_a_change(refused, self.left_s - enough_s)

    def _look_around_the_best(self) -> None:
        """At what is left of the best setup without each of its changes, at the batch that was asked for. The
        explanation needs these looks anyway; before the finals they show a change that does not help."""
        if not self.search.good:
            return
        self.search.fit()
        enough_s = self.search.least_finals_s() + self._check_s
        time_s = min(self._shares.explain_s, self.left_s - enough_s)
        for point in self.search.best(1):
            there = self._space.at_asked_batch(point)
            self._look_without_a_change(there if self.proof.can_run(there) else point, time_s)

    def _look_without_a_change(self, point: Point, time_s: float) -> None:
        """One change of a point makes it other training; the search may not have looked at what is left without it."""
        end_s, seen = self.spent_s + time_s, {each.point for each in self.search.seen}
        for simpler in self._space.simpler(point):
            is_new = simpler not in seen and not self.proof.is_refused(simpler)
            if is_new and self.spent_s + self.search.cost_s(simpler) <= end_s:
                self._search_look("search", simpler)

    def _candidates(self) -> list[Point]:
        """The best points. Where the batch is free, the best at the one asked for comes first, then the best at any,
        and the same at the one asked for."""
        space = self._space
        best = self.search.finalists(_CHECKED, space.simpler, self.proof.is_refused)
        if not best or not space.has_free_batch:
            return best
        at_batch = self.search.finalists(
            _CHECKED, space.simpler, lambda point: self.proof.is_refused(point) or not space.is_at_asked_batch(point)
        )
        there = space.at_asked_batch(best[0])
        failed = {seen.point for seen in self.search.seen if seen.value is None}
        if self.proof.can_run(there) and there not in failed and not self.proof.is_refused(there):
            at_batch = sorted({*at_batch, there}, key=lambda point: -float(self.search.model.predict([point]).mean[0]))
        wanted = [*at_batch[:1], best[0], *at_batch[1:2], *best[1:], *at_batch[2:]]
        return [point for point in dict.fromkeys(wanted) if point != space.default][:_CHECKED]

    def _not_refused(self, candidates: Sequence[Point]) -> list[Point]:
        """Those that are not shown to be other training. One at another batch is checked at the one asked for."""
        if new := self.proof.unchecked(candidates):
            # What the search left of its time is for this check too.
            left_s = self._shares.search_s + self._shares.same_s - self.spent_s
            self._check(new, max(self._check_s, left_s))
        return [point for point in candidates if not self.proof.is_refused(point)]

    def _check(self, points: Sequence[Point], time_s: float) -> None:
        self.proof.check(points, time_s)
        self._write(replace(self.log, same=list(self.proof.checked.values()), spent_s=self.spent_s))

    def _prove_winner(self, contest: Contest) -> None:
        """Check a winner of the finals again, alone, if the time did not suffice before."""
        tried: set[Point] = set()
        while True:
            winners = [self._judged(contest, any_batch=free, all_checked=False) for free in (False, True)]
            points = [self._space.at_asked_batch(judged.best) for judged in winners if judged.answer == "better"]
            open_ = [each for each in points if self.proof.is_missing(each) and self.proof.can_run(each)]
            point = next((each for each in open_ if each not in tried), None)
            if point is None:
                return
            tried.add(point)
            self._check([point], max(LEAST_TIMEOUT_S, self._shares.end_s - self.spent_s))

    def _judged(self, contest: Contest, *, any_batch: bool = False, all_checked: bool = True) -> Judged:
        """The finals as they stand: at the batch that was asked for, or at any. `all_checked`: what is not proven by
        now cannot win."""
        looks, default = self._looks, self._space.default
        slow = self._too_slow(contest, any_batch=any_batch)
        among = [
            default,
            *(
                point
                for point in contest.points[1:]
                if point not in slow
                and not looks.is_out(point)
                and (any_batch or self._space.is_at_asked_batch(point))
                and not (self.proof.is_missing(point) and (all_checked or self.proof.is_refused(point)))
            ),
        ]
        looks.fit(self.search.model.fit, without=("explain",))
        rounds = list(looks.rounds(contest).values())
        if default in slow:  # it is not what was asked for, so nothing is held against it
            rounds = [{point: value for point, value in each.items() if point != default} for each in rounds]
        elif looks.is_out(default) and looks.ran_in_search(default) and not any(default in each for each in rounds):
            return Judged(answer="not separable", best=default, ratios={})
        judged = judge(
            among,
            rounds,
            changes=lambda point: len(self._space.changed(point)),
            expected=lambda point: float(self.search.model.predict([point]).mean[0]),
            spread=looks.spread(),
        )
        if judged.answer != "nothing better":
            return judged
        is_open = looks.failed_in_finals() or not (self._has_rivals or self._space.count == 1)
        if all_checked and not is_open:  # what may be better, and lacks only its proof
            is_open = self._judged(contest, any_batch=any_batch, all_checked=False).answer != "nothing better"
        return replace(judged, answer="not separable") if is_open else judged

    def _too_slow(self, contest: Contest, *, any_batch: bool) -> set[Point]:
        """Slower than the objective allows, of what may win: a setup that is other training is nobody's measure."""

        def counts(point: Point) -> bool:
            return (any_batch or self._space.is_at_asked_batch(point)) and not self.proof.is_refused(point)

        return self._looks.too_slow(contest.points, counts)

    # The explanation

    def _explainer(self) -> Explainer:
        counts = self._looks.fit(self.search.model.fit, finals_count=True)
        return Explainer(space=self._space, model=self.search.model, looks=lambda point: counts.get(point, 0))

    def _explain(self, judged: Judged, *, only_new: bool = False) -> None:
        if judged.answer != "better" or judged.best not in judged.ratios:
            return
        failed = self._looks.failed()
        while True:
            point = self._explainer().wanted(judged.best, lambda point: point in failed, only_new=only_new)
            if point is None or self.search.cost_s(point) > self.left_s:
                return
            look = self._look("explain", point)
            if self.wanted.value(look) is None:
                failed.add(point)
            self.progress.looked(look, self)

    def _time_layers(self, best: Point) -> None:
        """Time the layers of the best setup, if it is known how fast they could be, and the time suffices."""
        job, latest = self.workload.job(best), self._latest(best)
        if self.log.layers is not None or latest is None or World.of(job.request).is_parallel:
            return
        takes_s = self.search.cost_s(best) + self.search.compile_s(best) + _STEPS_OF_LAYERS * self._step_s(best)
        if takes_s > self.left_s or isinstance(roofline_share(job, latest), Absent):
            return
        self.progress.begin("the layers of the best setup")
        self._quick_starts.settle()
        found = self.workload.layers(
            best,
            budget_s=_LAYERS_S,
            timeout_s=self._timeout_s(),
            compile_cache=self._quick_starts.compile_cache("explain"),
            on_progress=self.progress.advance,
        )
        with signals_blocked():
            stored = self.store.findings.add(found)
            self._write(replace(self.log, layers=stored.id, spent_s=self.spent_s))

    def _answer(self, contest: Contest) -> Tuned:
        judged = self._judged(contest)
        ratio = judged.ratios.get(judged.best)
        explained = None if ratio is None else self._explainer().explain(judged.best, ratio)
        answer = answer_of(
            Found(
                space=self._space,
                wanted=self.wanted,
                log=self.log,
                contest=contest,
                judged=judged,
                free=self._judged(contest, any_batch=True),
                complete=tuple(self._looks.rounds(contest)),
                unproven=[point for point in contest.points if self.proof.is_missing(point)],
                slow=self._too_slow(contest, any_batch=False),
                checked=self.proof.checked,
                explained=explained,
                bound=self._bound(judged.best),
                noise=self.search.noise if len(self.search.good) > 1 else Absent("too few looks"),
                spent_s=self.spent_s,
            )
        )
        about_runs = doubts_of_runs(self.store, [run for final in answer.finals for run in final.runs])
        compiled = finalists_that_compile(answer, self.store) if self._quick_starts.keeps_programs else []
        about_search = [
            *too_short(self._looks, contest),
            *beaten_without(answer),
            *uneven_rounds(answer),
            *failed_finalists(answer),
            *compiled_unevenly(answer, compiled),
            *other_machine_state(answer, compiled),
            *self.proof.doubts(contest.points),
            *refused_launches(self.log),
            *kin_of_refused(self.log.looks, answer.finals, self._space.facts),
        ]
        return with_doubt_of_limits(replace(answer, doubts=[*about_search, *about_runs]))

    def _bound(self, best: Point) -> Bound | Absent:
        latest = self._latest(best)
        if latest is None:
            return Absent("it has no record")
        return bound_of(self.workload.job(best), latest, self._layers_of_best())

    def _latest(self, point: Point) -> Record | None:
        """The latest record of a setup."""
        runs = [look.run for look in self.log.looks if look.run and self._space.point_of(look.setup) == point]
        for run in reversed(runs):
            with suppress(StoreError, UsageError):  # deleted since an earlier call
                return self.store.get(run)
        return None

    def _layers_of_best(self) -> Finding | None:
        with suppress(StoreError, UsageError):  # deleted since an earlier call
            return None if self.log.layers is None else self.store.findings.get(self.log.layers)
        return None

    def _write(self, log: TuneLog) -> None:
        self.log = log
        self.store.tunes.write(log)
