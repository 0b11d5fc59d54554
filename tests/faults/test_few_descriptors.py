"""Where a process may open only few files, a command works or says so in one line."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("run", "cifarnet", "framework=fake", "batch=4", "--budget", "0.1")
COMPARE = ("compare", "cifarnet", "framework=fake", "batch=4", "--", "batch=8")


@pytest.mark.parametrize(
    ("words", "most"),
    [(RUN, 5), (RUN, 8), (RUN, 14), (RUN, 16), (COMPARE, 20), (("doctor",), 8)],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_few_descriptors(tmp_path: Path, words: tuple[str, ...], most: int) -> None:
    places = {"DEEPSTONE_STORE": tmp_path / "store", "DEEPSTONE_CACHE": tmp_path / "cache", "TMPDIR": tmp_path}
    done = subprocess.run(
        [sys.executable, "-m", "deepstone", *words],
        env={**os.environ, **{name: str(place) for name, place in places.items()}},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
        capture_output=True,
        text=True,
        timeout=280,
    )
    if done.returncode == 0:
        return
    assert done.returncode in (2, 3), done.stderr
    beforehand = ("before measuring: ", "compares in ")  # others' load, and how long it may take
    told = [line for line in done.stderr.splitlines() if not line.startswith(beforehand)]
    assert len(told) == 1, done.stderr
    assert "too many open files" in done.stderr
    assert "ulimit -n" in done.stderr
