"""Folders of jobs: nothing is left of our own, nor of controllers that were killed; those of living ones are spared,
also where their process ids mean nothing to us."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_jobs import fake_job

from deepstone.runner.conversation import talking_to_worker
from deepstone.runner.scratch import scratch_folder

# Has a scratch folder until its input is closed; tells which.
OWNER = (
    "import sys\n"
    "from deepstone.runner.scratch import scratch_folder\n"
    "with scratch_folder() as folder:\n"
    "    (folder / 'weights.npy').touch()\n"
    "    print(folder, flush=True)\n"
    "    sys.stdin.read()\n"
)
IN_ANOTHER_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def owner(begin: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    command = [*begin, sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def namespaces_are_allowed() -> bool:
    try:
        return subprocess.run([*IN_ANOTHER_PID_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def test_the_folder_of_a_job_is_gone_after_it(temporary: Path) -> None:
    with talking_to_worker(fake_job(), timeout_s=30) as conversation:
        conversation.hello()
        conversation.close()
    assert not list(temporary.iterdir())


def test_that_of_a_living_owner_is_spared_and_of_a_killed_one_swept(temporary: Path) -> None:
    with owner() as (process, folder):
        with scratch_folder():
            assert (folder / "weights.npy").exists()
        process.kill()
        process.wait()
        with scratch_folder() as ours:
            assert list(temporary.iterdir()) == [ours]


def test_an_owner_in_another_pid_namespace_is_spared(temporary: Path) -> None:
    if not namespaces_are_allowed():
        pytest.skip("this user may not make a PID namespace")
    with owner(IN_ANOTHER_PID_NAMESPACE) as (process, folder):
        with scratch_folder():
            assert (folder / "weights.npy").exists()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
    assert not list(temporary.iterdir())


def test_what_is_not_a_left_folder_of_ours_is_not_touched(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    newborn = temporary / "deepstone-job-newborn"  # its owner has not come to lock it
    with_link = temporary / "deepstone-job-link-inside"
    for folder in (elsewhere, newborn, with_link):
        folder.mkdir()
        (folder / "kept").touch()
    (elsewhere / "owner.lock").touch()
    (temporary / "deepstone-job-link").symlink_to(elsewhere)
    (temporary / "deepstone-job-file").touch()
    (with_link / "owner.lock").symlink_to(elsewhere / "owner.lock")
    before = sorted(temporary.rglob("*"))
    with scratch_folder():
        pass
    assert sorted(temporary.rglob("*")) == before
