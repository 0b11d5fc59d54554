"""A controller to be killed: scripted_controller.py MARK FOLDER MODE. It waits for two workers with daemons."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from worker_trees import ask, start_worker


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> None:
    mark, folder, mode = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    with start_worker(mark, folder) as first, start_worker(mark, folder) as second:
        for worker in (first, second):
            ask(worker, "daemon")
            ask(worker, "ignore term")
        try:
            say("ready")
            if mode == "stopping":
                first.stop(grace_s=60.0)
            second.receive(deadline_s=time.monotonic() + 60.0)
        except KeyboardInterrupt:
            say("interrupted")
            raise


main()
