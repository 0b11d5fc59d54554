"""Processes that tests kill, `deepstone run` first of all, and what they leave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fake_jobs import MARK_VARIABLE, carrying

from deepstone.backends.before_import import FAKE_SCRIPT

STORED = re.compile(r"^stored ([0-9a-f]{20}-[0-9]+)(?:: .*)?\n", re.MULTILINE)
# Steps that take real time, little of it; and a grandchild in a session of its own that ignores SIGTERM.
WITH_DAEMON = {"step_s": 0.002, "sleep": True, "warmup": [], "fault": {"at": "build", "kind": "daemon"}}
TINY = ("--budget", "0.05", "--target", "50")


@dataclass(kw_only=True)
class MarkedProcess:
    """Python with these words; all that it starts carries its mark."""

    folder: Path
    words: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stderr_path = self.folder / f"stderr-{self.mark}"
        with self._stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *self.words],
                env={**os.environ, **self.variables, MARK_VARIABLE: self.mark},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        return self

    @property
    def stderr(self) -> str:
        return self._stderr_path.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float = 60.0, pause_s: float = 0.001) -> None:
        end_s = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, f"it ended first: {self.stderr}"
            assert time.monotonic() < end_s, f"waited in vain: {self.stderr}"
            time.sleep(pause_s)

    def finish(self, *, timeout_s: float = 120.0) -> int:
        return self.process.wait(timeout_s)

    def clean_up(self) -> None:
        for pid in carrying(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Controller(MarkedProcess):
    """`deepstone run`."""

    def __init__(
        self,
        folder: Path,
        store: Path,
        axes: Sequence[str],
        *,
        options: Sequence[str] = TINY,
        script: Mapping[str, object] | None = None,
        slow_disk: bool = False,
    ) -> None:
        own = {"DEEPSTONE_CACHE": str(folder / "cache"), "TMPDIR": str(folder), "HOME": str(folder)}
        if slow_disk:
            own["PYTHONPATH"] = str(Path(__file__).with_name("slow_disk"))
        words = ["-m", "deepstone", "run", "cifarnet", "framework=fake", *axes, *options, "--store", str(store)]
        super().__init__(folder=folder, words=words, variables={**own, FAKE_SCRIPT: json.dumps(script or {})})
        self.store = store

    @property
    def acknowledged(self) -> list[str]:
        """Whole lines only: one cut short by a kill has not told anybody anything."""
        return STORED.findall(self.stderr)

    def wait_for_worker(self) -> None:
        """Seldom looked for: to look through all processes takes a while, and others want the cores."""
        self.wait_for(lambda: len(carrying(self.mark)) >= 3, pause_s=0.02)  # itself, the keeper, the worker
