"""One worker that is given job after job: starting one takes seconds, and most axes need no new process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from shared_workers import shared_worker
from tiny_jobs import machine

from deepstone.environments.find import find_environment
from deepstone.graph.graph import Graph
from deepstone.models.load import LoadedModel
from deepstone.runner.conversation import Conversation, Prepared, talking_to_worker
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.setups.effective import contradiction
from deepstone.setups.request import complete

TIMEOUT_S = 1800.0

every_phase = pytest.mark.parametrize("phase", ["forward", "gradient", "train"])


class Bench:
    """`make_job` makes the framework's job for given axes."""

    def __init__(self, talk: Conversation, make_job: Callable[..., Job]) -> None:
        self.talk = talk
        self.hello = talk.hello()
        self._make_job = make_job

    def prepare(self, **axes: Value) -> Prepared:
        self.talk._job = self._make_job(**axes)
        prepared = self.talk.prepare()
        assert contradiction(self.talk._job.request, prepared.effective) is None
        return prepared

    def losses(self, steps: int = 4, **axes: Value) -> list[float]:
        self.prepare(**axes)
        return self.talk.losses(0) + self.talk.losses(steps - 1)

    def arrays(self, kind: str) -> dict[str, np.ndarray]:
        return {name: np.load(path) for name, path in self.talk.dump(kind).items()}


@contextmanager
def bench_of(make_job: Callable[..., Job], *, shared: bool = False, **axes: Value) -> Iterator[Bench]:
    """A bench at a worker that is started for the job with these axes. `shared`: others may have used it before."""
    start = shared_worker if shared else talking_to_worker
    with start(make_job(**axes), timeout_s=TIMEOUT_S) as talk:
        yield Bench(talk, make_job)


def use_module(bench: Bench, path: Path, graph: Graph) -> None:
    """Have the bench make its jobs of a torch module in this file from now on."""

    def make_job(**axes: Value) -> Job:
        return Job(
            model=LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256="0" * 64),
            request=complete({"framework": "torch", "device": "cpu", "threads": 1, "batch": 4, **axes}),
            environment=find_environment("torch"),
            machine=machine(),
            command=("deepstone", "run", "net.py:make"),
        )

    bench._make_job = make_job


def observed(prepared: Prepared, axis: str) -> Value:
    """The effective value of an axis, which must have been read back."""
    assert prepared.effective[axis].source == "observed"
    return prepared.effective[axis].value


def fits_bf16(array: np.ndarray) -> bool:
    """Whether all numbers have the few digits that bf16 holds."""
    return bool(np.all((array.view(np.uint32) & 0xFFFF) == 0))
