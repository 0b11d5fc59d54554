"""What a backend refuses is known before it starts: over all pairs of values on a CPU, a rule refuses exactly what the
worker does. So no launch is spent on a setup that cannot run, and none that can is left out.

`make test` asks one worker of each framework to build a network, without a step, for every pair of values that needs no
process of its own. `make test-all` runs a step of every pair that the rules allow, and nothing else may come of it than
what was asked.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator

import pytest
from frameworks import environment_of
from shared_workers import WHOLE_PROCESS, shared_worker
from tiny_jobs import tiny_job

from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.world import BETWEEN_PROCESSES

TIMEOUT_S = 1800.0
Point = dict[str, Value]

# test_contract_parallel.py and test_torch_combinations.py try what several processes have.
NOT_TRIED = ("framework", "device", "batch", "seed", "processes", "nodes", "launcher", *BETWEEN_PROCESSES)
OPEN: dict[str, tuple[Value, ...]] = {
    "threads": (1, 2),
    "inter_threads": (1, 2),
    "affinity": ("0", "compact"),
    "accumulate": (2,),
    "isa": ("sse41", "avx2"),
}
COMPILES_FOR_SECONDS = ("torch",)  # test_torch_setup.py and test_torch_compiled.py do
# What a library has kernels for on this CPU shows when it runs, and no rule can know.
SEEN_WHEN_IT_RUNS = ({"engine": "onednn", "precision": "fp16-mixed"},)


def values() -> Iterator[tuple[str, Value]]:
    for name, axis in AXES.items():
        if name not in NOT_TRIED:
            yield from ((name, value) for value in OPEN.get(name, axis.values) if value not in (AUTO, axis.default))


def points() -> list[Point]:
    """The default, each value, and each pair of values of two axes."""
    single = list(values())
    pairs = (dict(pair) for pair in itertools.combinations(single, 2) if pair[0][0] != pair[1][0])
    return [{}, *(dict([one]) for one in single), *pairs]


found = functools.cache(environment_of)


def job_of(name: str, point: Point) -> Job:
    return tiny_job(name, environment=found(name), **{"device": "cpu", **point})


def refusal(talk: Conversation, job: Job) -> str | None:
    """Why the worker calls a job unsupported when it builds its network, or None."""
    try:
        talk.build(job.request)
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        return failure.reason
    return None


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_a_rule_refuses_exactly_what_the_worker_does(name: str):
    asked = [job_of(name, point) for point in points() if not set(WHOLE_PROCESS) & set(point)]
    assert len(asked) > 200
    with shared_worker(asked[0], timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        refused = {id(job): refusal(talk, job) for job in asked}
    differ = [
        (as_words(job), job.broken_rule, refused[id(job)])
        for job in asked
        if (job.broken_rule is None) != (refused[id(job)] is None)
    ]
    assert differ == []
    assert sum(job.broken_rule is not None for job in asked) > 20


def as_words(job: Job) -> str:
    return " ".join(f"{axis}={value}" for axis, value in job.request.items() if value != AXES[axis].default)


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["fake", "torch", "tensorflow", "jax", "mxnet", "chainer"])
def test_what_the_rules_allow_runs_as_asked(name: str):
    """Each in a process that was started for its settings."""
    processes: dict[tuple[tuple[str, Value], ...], list[Point]] = defaultdict(list)
    for point in points():
        if job_of(name, point).broken_rule is None and not takes_long(name, point):
            processes[tuple(sorted((axis, value) for axis, value in point.items() if axis in WHOLE_PROCESS))].append(
                point
            )
    wrong: list[tuple[Point, str]] = []
    for together in processes.values():
        left = list(together)
        while left:
            with talking_to_worker(job_of(name, left[0]), timeout_s=TIMEOUT_S) as talk:
                talk.hello()
                while left:
                    point = left.pop(0)
                    try:
                        job = job_of(name, point)
                        reason = talk.prepare(job).contradiction(job.request)
                    except JobFailed as failure:
                        wrong.append((point, failure.reason))
                        break
                    if reason is not None and point not in SEEN_WHEN_IT_RUNS:
                        wrong.append((point, reason))
    assert wrong == []


def takes_long(name: str, point: Point) -> bool:
    return name in COMPILES_FOR_SECONDS and point.get("compile") not in (None, "off")
