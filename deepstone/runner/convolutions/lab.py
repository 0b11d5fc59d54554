"""The convolution lab: every algorithm on every convolution of a model, forward and both gradients.

    for each convolution, each pass
        convolution ─▶ list the algorithms and the one that the library picks
        attempt     ─▶ run one algorithm once: workspace, error                            (one request each)
        isolated_block ─▶ time the algorithms that run, in turns
        NumPy       ─▶ counts, memory and error of algorithms that no library offers, while the worker sleeps

If an algorithm crashes the worker, that is recorded, and a fresh worker continues with the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.algorithms.catalog import ALGORITHMS
from deepstone.algorithms.problem import PASSES, Operations, Pass, Problem
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Conv
from deepstone.graph.weights import cached_weights, parameter_slices
from deepstone.measure import doubts
from deepstone.measure.statistics import Quantity, median_of
from deepstone.results.convolutions import Tried
from deepstone.results.doubt import Doubt
from deepstone.runner.assemble import now
from deepstone.runner.conversation import Conversation, JobFailed, cache_folder, talking_to_worker
from deepstone.runner.convolutions.references import try_references
from deepstone.runner.convolutions.results import Convolution, Lab
from deepstone.runner.gpu_around import gpu_use_around
from deepstone.runner.job import Job
from deepstone.runner.measurement import SHORTEST_SAMPLE_CPU_S, SHORTEST_SAMPLE_GPU_S, OnProgress, no_progress
from deepstone.runner.replies import Attempt, BlockTimes, ConvolutionFacts

T = TypeVar("T")

_ROUNDS = 6
_FEWEST_ROUNDS = 3  # for algorithms so slow that more rounds would exceed the budget many times
_MOST_SAMPLES = 50  # of one algorithm in one round
_REPLICATES = 400
_LONG_S = 0.02  # the state of the caches hardly affects longer runs
_MOST_RESTARTS = 12  # after more crashes the fault is not in single algorithms


class LabEffort(Struct, frozen=True, kw_only=True):
    """`budget_s` is the timed time of one algorithm on one pass of one convolution."""

    budget_s: float = 0.5
    timeout_s: float = 1800.0


def equal_convolutions(graph: Graph, batch: int) -> dict[Problem, tuple[str, ...]]:
    """Return every distinct convolution with the layers that perform it."""
    found: dict[Problem, tuple[str, ...]] = {}
    for layer in graph.layers:
        if isinstance(layer.op, Conv):
            problem = Problem.of_layer(graph, layer, batch)
            found[problem] = (*found.get(problem, ()), layer.name)
    return found


def passes_of(phase: str) -> tuple[Pass, ...]:
    return PASSES[:1] if phase == "forward" else PASSES


def new_lab() -> Lab:
    return Lab(started_at=now())


def run_lab(job: Job, effort: LabEffort, lab: Lab, on_progress: OnProgress = no_progress) -> None:
    """Fill the lab. Raises JobFailed if nothing can be tried at all, MissingError if something is missing."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    wanted = equal_convolutions(job.model.graph, job.batch)
    passes = passes_of(job.phase)
    weights = _Weights(job)
    with gpu_use_around(job) as lab.gpu, _Workers(job, effort, lab) as workers:
        for number, (problem, layers) in enumerate(wanted.items()):
            convolution = Convolution(problem=problem, layers=layers)
            lab.convolutions.append(convolution)
            for place, direction in enumerate(passes):
                on_progress(f"{layers[0]}, {direction}", (number + place / len(passes)) / len(wanted))
                _Pass(workers, effort, convolution, direction).run()
                convolution.tried += try_references(problem, direction, weights.of(layers[0]))


class _Weights:
    """The job's weights, from the cache file that its worker also reads."""

    def __init__(self, job: Job) -> None:
        graph = job.model.graph
        path = cached_weights(graph, int(job.request["seed"]), cache_folder() / "weights", generic=job.generic_weights)
        self._flat = np.load(path, mmap_mode="r")
        self._places = {
            layer: (start, shape) for layer, name, start, shape in parameter_slices(graph) if name == "weight"
        }

    def of(self, layer: str) -> NDArray[Any]:
        start, shape = self._places[layer]
        return np.array(self._flat[start : start + int(np.prod(shape))]).reshape(shape)


class _Workers:
    """One worker at a time; a fresh one if the last has ended."""

    def __init__(self, job: Job, effort: LabEffort, lab: Lab) -> None:
        self._job = job
        self._effort = effort
        self._lab = lab
        self._stack = ExitStack()
        self._talk: Conversation | None = None
        self._started = 0

    def __enter__(self) -> _Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._talk is not None:
                self._talk.close()
        finally:
            self.end()

    def end(self) -> None:
        self._lab.round_trips += [] if self._talk is None else self._talk.round_trips
        self._talk = None
        self._stack.close()

    def talk(self) -> Conversation:
        if self._talk is None:
            if self._started > _MOST_RESTARTS:
                raise JobFailed("crashed", f"{self._started} workers have ended before their time", stage="convolution")
            self._started += 1
            conversation = self._stack.enter_context(talking_to_worker(self._job, timeout_s=self._effort.timeout_s))
            self._lab.hello = conversation.hello()
            conversation.build()
            self._talk = conversation
        return self._talk

    @property
    def nothing_opened(self) -> bool:
        return self._lab.facts is None

    def open(self, layer: str, direction: Pass) -> ConvolutionFacts:
        facts = self.talk().convolution(layer, direction)
        self._lab.facts = self._lab.facts or facts
        return facts

    def survived(self, failure: JobFailed) -> bool:
        """Whether the worker can continue; if it cannot, end it."""
        if (
            failure.outcome in ("unsupported", "oom")
            and failure.details.signal is None
            and failure.details.exit_code is None
        ):
            return True
        self.end()
        return False


class _Turns(Struct, kw_only=True):
    """The samples of one algorithm so far, and how to take more."""

    algorithm: str
    steps_per_sample: int
    samples: int
    rounds: int
    lead: int  # untimed runs before the timed ones, since the caches hold another algorithm's data
    blocks: list[BlockTimes] = field(default_factory=list[BlockTimes])

    def quantity(self) -> Quantity:
        return median_of([[block.step_s for block in self.blocks]], replicates=_REPLICATES)

    def doubt(self, *, on_gpu: bool) -> Doubt | None:
        """Doubt a host-bound timing, judged by the block that is least host-bound."""
        if not on_gpu:
            return None
        freest = min(self.blocks, key=lambda block: block.enqueue_s / max(block.total_s, 1e-12))
        return doubts.host_bound(enqueue_s=freest.enqueue_s, block_s=freest.total_s)


def _calibrate(conversation: Conversation, algorithm: str, *, budget_s: float, on_gpu: bool) -> _Turns:
    """Estimate how long the algorithm takes, and choose the sizes of its samples."""
    trial = conversation.isolated_block(algorithm, samples=2)
    step_s = max(min(trial.step_s), 1e-9)
    shortest_s = SHORTEST_SAMPLE_GPU_S if on_gpu else SHORTEST_SAMPLE_CPU_S
    steps_per_sample = max(1, math.ceil(shortest_s / step_s))
    samples = int(budget_s / _ROUNDS / (steps_per_sample * step_s))
    return _Turns(
        algorithm=algorithm,
        steps_per_sample=steps_per_sample,
        samples=max(1, min(_MOST_SAMPLES, samples)),
        rounds=_ROUNDS if _ROUNDS * step_s <= 2 * budget_s else _FEWEST_ROUNDS,
        lead=1 if step_s < _LONG_S else 0,
    )


def _take_turns(all_turns: Iterable[_Turns], block: Callable[[_Turns], BlockTimes | None]) -> None:
    """Time round after round, in alternating order. `block` returns None once its algorithm has failed."""
    turns = list(all_turns)
    for number in range(_ROUNDS):
        for each in turns if number % 2 == 0 else reversed(turns):
            if number < each.rounds:
                taken = block(each)
                if taken is not None:
                    each.blocks.append(taken)


class _Pass:
    """All algorithms of the library on one pass of one convolution."""

    def __init__(self, workers: _Workers, effort: LabEffort, convolution: Convolution, direction: Pass) -> None:
        self._workers = workers
        self._effort = effort
        self._convolution = convolution
        self._direction: Pass = direction
        self._known: dict[str, Attempt] = {}  # of algorithms that run
        self._failed: dict[str, str] = {}

    def run(self) -> None:
        try:
            facts = self._workers.open(self._convolution.name, self._direction)
        except JobFailed as failure:
            if self._workers.nothing_opened and (failure.stage != "convolution" or failure.outcome == "unsupported"):
                raise  # not the fault of this convolution: the build failed, or the framework has no lab
            self._workers.survived(failure)
            self._convolution.failures[self._direction] = f"{failure.outcome}: {failure.reason}"
            return
        on_gpu = facts.device != "cpu"
        turns: dict[str, _Turns] = {}
        try:
            for name, _ in facts.formulas:
                known = self._safely(name, lambda name=name: self._workers.talk().attempt(name))
                if known is not None:
                    self._known[name] = known
            for name in list(self._known):
                calibrated = self._safely(
                    name,
                    lambda name=name: _calibrate(
                        self._workers.talk(), name, budget_s=self._effort.budget_s, on_gpu=on_gpu
                    ),
                )
                if calibrated is not None:
                    turns[name] = calibrated
            _take_turns(turns.values(), self._block)
        except JobFailed as failure:
            self._convolution.failures[self._direction] = f"{failure.outcome}: {failure.reason}"
        self._convolution.tried += [self._tried(name, formula, facts, turns) for name, formula in facts.formulas]

    def _block(self, turns: _Turns) -> BlockTimes | None:
        return self._safely(
            turns.algorithm,
            lambda: self._workers.talk().isolated_block(
                turns.algorithm,
                samples=turns.samples,
                steps_per_sample=turns.steps_per_sample,
                lead=turns.lead,
            ),
        )

    def _safely(self, name: str, request: Callable[[], T]) -> T | None:
        """Send a request about an algorithm; return None if it fails. Prepare the others again afterwards."""
        if name in self._failed:
            return None
        try:
            return request()
        except JobFailed as failure:
            prefix = "" if failure.outcome == "unsupported" else f"{failure.outcome}: "
            self._failed[name] = prefix + failure.reason
            if not self._workers.survived(failure):
                self._workers.open(self._convolution.name, self._direction)
                for other in self._known:
                    if other not in self._failed:
                        self._workers.talk().attempt(other)
            return None

    def _tried(self, name: str, formula: str, facts: ConvolutionFacts, turns: dict[str, _Turns]) -> Tried:
        known = self._known.get(name, Attempt())
        reason = Absent(self._failed.get(name) or self._convolution.failures.get(self._direction) or "not timed")
        timed = turns.get(name)
        measured = timed if timed is not None and timed.blocks and name not in self._failed else None
        doubt = None if measured is None else measured.doubt(on_gpu=facts.device != "cpu")
        operations = _operations(formula, self._convolution.problem, self._direction)
        return Tried(
            algorithm=name,
            direction=self._direction,
            kind="timed",
            picked=facts.picked == name,
            time_s=reason if measured is None else measured.quantity(),
            workspace_bytes=reason if known.workspace_bytes is None else known.workspace_bytes,
            flops=operations if isinstance(operations, Absent) else operations.flops,
            transform_flops=operations if isinstance(operations, Absent) else operations.transforms,
            formula=formula,
            relative_error=reason if known.relative_error is None else known.relative_error,
            implementation=known.implementation or None,
            doubts=None if doubt is None else [doubt],
        )


def _operations(formula: str, problem: Problem, direction: Pass) -> Operations | Absent:
    reason = ALGORITHMS[formula].refusal(problem)
    return Absent(f"no formula: {reason}") if reason else ALGORITHMS[formula].operations(problem, direction)
