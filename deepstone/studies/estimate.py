"""Estimates how long a task takes: from stored runs of its setup, else from its FLOPs; and says from which."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.backends.registry import BACKENDS
from deepstone.errors import StoreError
from deepstone.results.identity import canonical_json, without_defaults
from deepstone.results.record import Record
from deepstone.runner.convolutions.lab import equal_convolutions, passes_of
from deepstone.setups.axes import AUTO, JAX
from deepstone.setups.request import Request
from deepstone.store.rows import Row
from deepstone.store.store import Store
from deepstone.studies.state import Task

THIS_STUDY: Final = "this study"
STORE: Final = "a run in the store"
ROUGH: Final = "FLOPs, roughly"
PACED: Final = "FLOPs, at the pace so far"

# What a good framework reaches on common networks; only the order of magnitude matters.
_CORE_FLOPS_PER_S: Final = 40e9
_GPU_FLOPS_PER_S: Final = 20e12
_AROUND_S: Final = 0.5  # the controller's part: starting a process, judging, storing
_FEWEST_STEPS: Final = 4  # even with a tiny budget: calibration, then one block
_PHASE_STEPS: Final = 5
_UNKNOWN_STEP_S: Final = 0.2
_ALGORITHMS: Final = 6  # of a convolution, in a library
_PEAKS_S: Final = 25.0
# What a GPU adds before the first step that counts, as seen on an H200 (results/h200): its context and libraries; the
# timing of convolution algorithms; compiling, by XLA and by torch.
_GPU_STARTUP_S: Final = 5.0
_BENCHMARK_S: Final = 10.0
_COMPILE_S: Final = 25.0
_XLA_ON_GPU_S: Final = 15.0
_CHECK_STEPS: Final = 25  # what it costs a framework to show that it computes the same, beside its start
_RECENT: Final = 20  # tasks from which the pace is computed
_PLAUSIBLE_PACE: Final = (0.2, 5.0)  # a pace beyond these is an outlier


class Estimate(Struct, frozen=True, kw_only=True):
    seconds: float
    basis: str


class Estimator:
    """Knows the runs that the store had at first, and learns from later measurements."""

    def __init__(self, store: Store | None, rows: Iterable[Row], *, cores: int) -> None:
        self._store = store
        good = (row for row in rows if row.outcome == "ok")
        self._rows = {(row.model, _request_key(row.asked)): row for row in good}  # the newest wins
        self._cores = cores
        self._took_s: dict[str, float] = {}
        self._known: dict[str, Estimate] = {}
        self._pace: dict[str, deque[float]] = {}  # by framework: time taken over the rough estimate

    def learn(self, task: Task, took_s: float) -> None:
        """Learn the time of a task that succeeded."""
        self._took_s[task.setup] = took_s
        rough_s = self._rough(task)
        pace = self._pace.setdefault(task.job.environment.framework, deque(maxlen=_RECENT))
        pace.append(took_s / max(rough_s, 1e-3))

    def of(self, task: Task) -> Estimate:
        if task.hopeless:
            return Estimate(seconds=0.0, basis="")
        if task.setup in self._took_s:
            return Estimate(seconds=self._took_s[task.setup], basis=THIS_STUDY)
        if task.setup not in self._known:
            self._known[task.setup] = self._from_store(task) or Estimate(seconds=self._rough(task), basis=ROUGH)
        known = self._known[task.setup]
        pace = self._pace.get(task.job.environment.framework)
        if known.basis != ROUGH or not pace:
            return known
        least, most = _PLAUSIBLE_PACE
        return Estimate(seconds=known.seconds * min(most, max(least, median(pace))), basis=PACED)

    def sameness_s(self, tasks: Iterable[Task]) -> float:
        """For the check in the end that frameworks compute the same, of every network that runs in several."""
        found: dict[str, dict[str, Task]] = {}
        for task in tasks:
            if task.kind == "run" and not task.hopeless:
                found.setdefault(task.model, {}).setdefault(task.job.environment.name, task)
        return sum(
            _startup_s(task) + _CHECK_STEPS * self._step_s(task)
            for several in found.values()
            if len(several) > 1
            for task in several.values()
        )

    def _from_store(self, task: Task) -> Estimate | None:
        if self._store is None or task.kind != "run":
            return None
        row = self._rows.get((task.job.model.name, _request_key(task.job.request)))
        if row is None:
            return None
        try:
            record = self._store.get(row.id)
        except StoreError:  # damaged since it was indexed
            return None
        theirs, ours = record.identity, task.job.identity
        if any(getattr(theirs, key) != getattr(ours, key) for key in ("graph_sha", "environment_sha", "machine_sha")):
            return None
        return Estimate(seconds=_wall_s(record, task), basis=STORE)

    def _rough(self, task: Task) -> float:
        startup_s = _startup_s(task)
        step_s = self._step_s(task)
        if task.kind == "peaks":
            return startup_s + _PEAKS_S
        if task.kind == "memory":
            return startup_s + 6 * step_s
        if task.kind == "layers":
            methods = 2 if task.method == "both" else 1
            return startup_s + methods * max(task.budget_s, 8 * step_s)
        if task.kind == "conv":
            convolutions = len(equal_convolutions(task.job.model.graph, task.job.batch))
            return startup_s + convolutions * len(passes_of(task.job.phase)) * _ALGORITHMS * (
                task.budget_s + step_s / 10
            )
        return startup_s + _measuring_s(task, step_s)

    def _step_s(self, task: Task) -> float:
        flops = task.job.flops
        if isinstance(flops, Absent):
            return _UNKNOWN_STEP_S
        on_gpu = _on_gpu(task)
        threads = task.job.request["threads"]
        cores = self._cores if isinstance(threads, str) else min(threads, self._cores)
        return flops / (_GPU_FLOPS_PER_S if on_gpu else _CORE_FLOPS_PER_S * cores)


def _on_gpu(task: Task) -> bool:
    """As far as one can tell before it runs."""
    device = task.job.request["device"]
    if device == AUTO:
        return bool(task.job.machine.gpus) and task.job.environment.can_use_gpu
    return str(device).startswith("gpu")


def _startup_s(task: Task) -> float:
    """Until the first step that counts."""
    request, framework = task.job.request, task.job.environment.framework
    seconds = BACKENDS[framework].startup_s + _AROUND_S
    if request["compile"] not in (AUTO, "off"):
        seconds += _COMPILE_S
    if not _on_gpu(task):
        return seconds
    seconds += _BENCHMARK_S if request["algorithm"] == "benchmark" else 0.0
    return seconds + (_XLA_ON_GPU_S if framework == JAX else _GPU_STARTUP_S)


def _measuring_s(task: Task, step_s: float) -> float:
    """Return the time of warm-up, measurement and phases."""
    budget_s = task.budget_s
    return 5 * step_s + max(budget_s, _FEWEST_STEPS * step_s) + _phases_s(task, step_s)


def _phases_s(task: Task, step_s: float) -> float:
    return max(_PHASE_STEPS * step_s, 0.1 * task.budget_s) if task.effort.phases else 0.0


def _request_key(request: Request) -> str:
    return canonical_json(without_defaults(request))


def _wall_s(record: Record, task: Task) -> float:
    """Return how long the stored run took, adjusted to the budget of the task."""
    parts = () if isinstance(record.startup, Absent) else tuple(record.startup.values())
    before_s = sum(part for part in parts if not isinstance(part, Absent))
    timed_s = sum(sum(block.step_s) * block.steps_per_sample for block in record.samples.timed)
    summary = record.summary
    assert not isinstance(summary, Absent), "only runs that ended well are asked"
    step_s = summary.step_s.median
    if summary.stopped != "interval within the target" or timed_s > task.budget_s:
        timed_s = max(task.budget_s, _FEWEST_STEPS * step_s)
    energy_s = 0.0 if isinstance(record.energy, Absent) else 2.0
    return before_s + timed_s + _phases_s(task, step_s) + energy_s + _AROUND_S
