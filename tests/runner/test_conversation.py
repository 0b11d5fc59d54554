"""What a conversation leaves behind: nothing of its own, and nothing of controllers that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fake_jobs import fake_job

from deepstone.runner.conversation import talking_to_worker


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_scratch_of_a_killed_controller_is_swept_and_that_of_a_living_one_is_not(scratch: Path) -> None:
    dead = scratch / f"deepstone-job-{ended_pid()}-abc"
    living = scratch / f"deepstone-job-{os.getppid()}-abc"
    other = scratch / "deepstone-job-notes"
    for folder in (dead, living, other):
        folder.mkdir()
        (folder / "output.txt").touch()
    with talking_to_worker(fake_job(), timeout_s=30) as conversation:
        conversation.hello()
        conversation.close()
    assert sorted(scratch.iterdir()) == sorted([living, other])
