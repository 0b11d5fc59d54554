"""The proof that setups are the same training as the default: what was checked, and who may not win by that.

A setup at another batch is other training as such; it is checked at the batch that was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from deepstone.checks.same_training import altered, same_training
from deepstone.results.tune import NOT_THE_SAME, SameLevel, SameSetup
from deepstone.runner.conversation import Spares
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress
from deepstone.tuner.answer import words_of
from deepstone.tuner.quick_starts import NO_QUICK_STARTS, QuickStarts
from deepstone.tuner.space import Point, Space
from deepstone.tuner.workload import Workload


class SameCheck(Protocol):
    """As `checks.same_training.same_training`."""

    def __call__(
        self,
        default: Job,
        candidates: Mapping[str, Job],
        level: SameLevel,
        *,
        deadline_s: float,
        spares: Spares | None = ...,
        on_progress: OnProgress = ...,
    ) -> Mapping[str, SameSetup]: ...


class StageProgress(Protocol):
    def begin(self, title: str) -> None: ...
    def advance(self, stage: str, share: float) -> None: ...
    def say(self, message: str) -> None: ...


@dataclass(kw_only=True)
class Proof:
    """`checked`: by the point at the batch that was asked for."""

    workload: Workload
    level: SameLevel
    progress: StageProgress
    compare: SameCheck = same_training
    quick_starts: QuickStarts = NO_QUICK_STARTS
    checked: dict[Point, SameSetup] = field(default_factory=dict[Point, SameSetup])

    def restore(self, earlier: Iterable[SameSetup]) -> None:
        for same in earlier:
            if (point := self._space.point_of(same.setup)) is not None:
                self.checked[point] = same

    def unchecked(self, points: Iterable[Point]) -> list[Point]:
        """Of these points, each at the batch that was asked for: those that a check can still decide."""
        space = self._space
        there = dict.fromkeys(space.at_asked_batch(point) for point in points)
        return [each for each in there if each not in self.checked and each != space.default and self.can_run(each)]

    def check(self, points: Sequence[Point], time_s: float) -> None:
        self.progress.begin("does it train the same?")
        cache = self.quick_starts.compile_cache("search")
        default, *jobs = (
            replace(self.workload.job(point), compile_cache=cache) for point in (self._space.default, *points)
        )
        found = self.compare(
            default,
            {str(number): job for number, job in enumerate(jobs)},
            self.level,
            deadline_s=time.monotonic() + time_s,
            spares=self.quick_starts.standby,
            on_progress=self.progress.advance,
        )
        for number, point in enumerate(points):
            same = replace(found[str(number)], setup=self._space.given(point))
            self.checked[point] = same
            if same.is_refuted:
                self.progress.say(f"{NOT_THE_SAME}{words_of(same.setup)}: {same.why_not}")

    def can_run(self, point: Point) -> bool:
        return self._space.why_not(point) is None

    def is_refused(self, point: Point) -> bool:
        """Whether it is shown to be other training, and that counts."""
        same = self.checked.get(self._space.at_asked_batch(point))
        return same is not None and same.is_refuted and self.level != "any"

    def is_missing(self, point: Point) -> bool:
        """A change of order alone is proven by the first steps of every run, unless a check saw that it is too far off;
        what rounds has a check of its own. Under `exact`, and in a module of one's own, which may compute anything in
        another layout, every change needs its check."""
        there = self._space.at_asked_batch(point)
        if self.level == "any" or there == self._space.default:
            return False
        same = self.checked.get(there)
        if self.level == "exact" or self.workload.model.graph.opaque:
            return same is None or not same.ok
        if same is None:  # it was not to be checked: at the batch that was asked for it cannot run
            default = self.workload.job(self._space.default)
            return any(each != "order" for each in altered(default, self.workload.job(there)))
        return not same.ok and (same.is_refuted or same.is_too_far or any(each != "order" for each in same.alters))

    def doubts(self, finalists: Iterable[Point]) -> list[str]:
        """What may not win: setups that are shown to be other training, and finalists for want of a proof."""
        refused = [same for point, same in self.checked.items() if self.is_refused(point)]
        others = f" ({len(refused) - 1} more)" if len(refused) > 1 else ""
        unproven = [point for point in finalists if self.is_missing(point) and not self.is_refused(point)]
        return [
            *(f"other training, so not chosen{others}: {words_of(x.setup)}: {x.why_not}" for x in refused[:1]),
            *(
                f"not proven to be the same training, so not chosen: {words_of(self._space.given(point))}: "
                f"{self._why_missing(self._space.at_asked_batch(point))}"
                for point in unproven
            ),
        ]

    def _why_missing(self, point: Point) -> str:
        same = self.checked.get(point)
        if same is not None:
            return same.why_not
        return f"it cannot run at the batch that was asked for, so it was not checked: {self._space.why_not(point)}"

    @property
    def _space(self) -> Space:
        return self.workload.space
