"""Whether the finalists train the same as the default. Across frameworks it asks the check that `compare` asks too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from deepstone.absent import Absent
from deepstone.checks.comparable import comparable
from deepstone.results.tune import SameLevel, SameSetup, SameTraining
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.setups.axes import FAKE

_NOT_DONE = Absent("not measured")


def same_training(
    default: Job,
    candidates: Mapping[str, Job],
    level: SameLevel,
    *,
    deadline_s: float,
    on_progress: OnProgress = no_progress,
) -> dict[str, SameSetup]:
    """Check each candidate, the most important first, until `deadline_s` on the clock of time.monotonic()."""
    found: dict[str, SameSetup] = {}
    for name, job in candidates.items():
        why_not, is_refuted = "", False
        if level != "any" and _needs_check(default, job):
            left_s = deadline_s - time.monotonic()
            if left_s < 1:
                why_not = "not checked: the time was over"
            else:
                checks = comparable({"default": default, name: job}, timeout_s=left_s, on_progress=on_progress)
                wrong = [check for check in checks.values() if not check.ok]
                why_not = "; ".join(check.why_not() for check in wrong)
                is_refuted = any(not check.failure for check in wrong)
        found[name] = SameSetup(
            setup={},
            ok=not why_not,
            gradient=_NOT_DONE,
            loss=_NOT_DONE,
            update=_NOT_DONE,
            why_not=why_not,
            is_refuted=is_refuted,
        )
    return found


def _needs_check(default: Job, job: Job) -> bool:
    """One framework is not checked against itself here: the first steps of every look are compared."""
    graph = default.model.graph
    return default.environment.sha != job.environment.sha and not graph.opaque and job.environment.framework != FAKE


def summary(level: SameLevel, found: Sequence[SameSetup], best: SameSetup | None) -> SameTraining:
    """The answer of a search, whose best setup is `best`; None: the default itself."""
    return SameTraining(level=level, ok=best is None or best.ok, setups=list(found), given_up="")
