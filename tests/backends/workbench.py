"""One worker that is given job after job: starting one takes seconds, and most axes need no new process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deepstone.runner.conversation import Conversation, Prepared
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.setups.effective import contradiction


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


def observed(prepared: Prepared, axis: str) -> Value:
    """The effective value of an axis, which must have been read back."""
    assert prepared.effective[axis].source == "observed"
    return prepared.effective[axis].value


def fits_bf16(array: np.ndarray) -> bool:
    """Whether all numbers have the few digits that bf16 holds."""
    return bool(np.all((array.view(np.uint32) & 0xFFFF) == 0))
