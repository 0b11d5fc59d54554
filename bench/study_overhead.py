"""What a study costs beside its workers: wall time over the sum of the workers' own time.

    python bench/study_overhead.py [TASKS] [SECONDS]

A worker's own time is from the start of its process to its end. The scripted backend really waits here, SECONDS in each
run (2 by default); real frameworks need longer, so that their share is smaller still.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepstone.runner import team
from deepstone.runner.conversation import Conversation, talking_to_worker
from deepstone.runner.job import Job
from deepstone.store.store import Store
from deepstone.studies.plan import make_plan
from deepstone.studies.read import Source, read_table
from deepstone.studies.run import run_study
from deepstone.studies.study_run import Call, StudyRun

LIMIT = 1.15
workers_s: list[float] = []


class Quiet:
    """Nobody is told."""

    def begin(self, status: object) -> None: ...
    def advance(self, stage: str, share: float) -> None: ...
    def end(self, status: object, performed: object) -> None: ...
    def waiting(self, tasks: int) -> None: ...


@contextmanager
def timed(job: Job, *, timeout_s: float) -> Generator[Conversation]:
    begin_s = time.monotonic()
    with talking_to_worker(job, timeout_s=timeout_s) as conversation:
        yield conversation
    workers_s.append(time.monotonic() - begin_s)


def main(tasks: int, seconds: float) -> int:
    script = {"sleep": True, "step_s": 0.02, "warmup": []}
    os.environ["DEEPSTONE_FAKE"] = json.dumps(script)
    team.talking_to_worker = timed
    jobs: list[dict[str, Any]] = [
        {"model": "cifarnet", "framework": "fake", "batch": {"from": 1, "to": tasks, "step": 1}}
    ]
    table = {"effort": {"repetitions": 1, "budget": seconds, "target": 0.01}, "jobs": jobs}
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(read_table(table, Source(shown="overhead"), name="overhead"))
        store = Store.open(Path(folder) / "store")
        call = Call(command=("deepstone", "study"), resume="")
        run_study(StudyRun(plan, store, call), store, call, Quiet())
        wall_s = time.monotonic() - begin_s
    ratio = wall_s / sum(workers_s)
    print(f"{tasks} tasks: wall {wall_s:.1f} s, workers {sum(workers_s):.1f} s, ratio {ratio:.3f} (limit {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(int(words[0]) if words else 20, float(words[1]) if len(words) > 1 else 2.0))
