"""A program that we started ends when we want it to, with all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepstone.supervise import ProcessTimeout, run_program


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def wait_until_dead(pid: int) -> None:
    end_s = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < end_s, "it lives on"
        time.sleep(0.01)


def test_its_lines_and_its_exit_code(tmp_path: Path) -> None:
    lines: list[str] = []
    program = "import sys; sys.stdout.write('one\\r10%\\rtwo\\n\\n'); sys.stderr.write('three'); sys.exit(7)"
    assert run_program(python(program), env=os.environ, cwd=tmp_path, on_line=lines.append) == 7
    assert sorted(lines) == sorted(["one", "10%", "two", "three"])


def test_ticks_come_while_it_says_nothing(tmp_path: Path) -> None:
    ticks: list[float] = []
    start_s = time.monotonic()
    run_program(
        python("import time; time.sleep(1.7)"),
        env=os.environ,
        cwd=tmp_path,
        on_tick=lambda: ticks.append(time.monotonic()),
    )
    taken_s = time.monotonic() - start_s  # with the start of Python, however long that takes here
    assert 2 <= len(ticks) <= 2 * taken_s + 1


def test_what_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_program(["/nowhere/python"], env={}, cwd=tmp_path)


# Starts a grandchild that ignores SIGTERM, tells both pids, and sleeps.
WITH_GRANDCHILD = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
other.stdout.readline()
print(os.getpid(), other.pid, flush=True)
time.sleep(600)
"""


class Interrupted(BaseException):
    pass


def test_an_exception_ends_it_and_its_children(tmp_path: Path) -> None:
    pids: list[int] = []

    def line(text: str) -> None:
        pids.extend(map(int, text.split()))
        raise Interrupted

    with pytest.raises(Interrupted):
        run_program(python(WITH_GRANDCHILD), env=os.environ, cwd=tmp_path, on_line=line)
    assert len(pids) == 2
    for pid in pids:
        wait_until_dead(pid)


def test_one_that_takes_too_long(tmp_path: Path) -> None:
    start_s = time.monotonic()
    with pytest.raises(ProcessTimeout):
        run_program(python("import time; time.sleep(600)"), env=os.environ, cwd=tmp_path, timeout_s=0.5)
    assert time.monotonic() - start_s < 60


def test_a_daemon_that_holds_the_output_does_not_hold_us(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    start_s = time.monotonic()
    assert run_program(python(program), env=os.environ, cwd=tmp_path) == 0
    assert time.monotonic() - start_s < 60


def test_it_dies_with_us_and_its_children_too_even_if_we_are_killed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys\n"
        "from deepstone.supervise import run_program\n"
        f"run_program([sys.executable, '-c', {WITH_GRANDCHILD!r}], env=os.environ, cwd=pathlib.Path('/'),"
        " on_line=lambda text: print(text, flush=True))\n"
    )
    parent = subprocess.Popen(python(program), stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert parent.stdout is not None
    pids = list(map(int, parent.stdout.readline().split()))
    assert len(pids) == 2
    assert all(map(is_alive, pids))
    parent.kill()
    parent.communicate()
    for pid in pids:
        wait_until_dead(pid)


def test_a_signal_is_told_as_a_negative_code(tmp_path: Path) -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    assert run_program(python(program), env=os.environ, cwd=tmp_path) == -4


def test_it_gets_the_variables_that_were_given_and_no_others(tmp_path: Path) -> None:
    lines: list[str] = []
    program = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}), os.environ['A'])"
    run_program(python(program), env={"A": "x=y"}, cwd=tmp_path, on_line=lines.append)
    assert lines == ["['A'] x=y"]


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    run_program(python("pass"), env=os.environ, cwd=tmp_path)
    before = count()
    run_program(python("pass"), env=os.environ, cwd=tmp_path)
    with pytest.raises(FileNotFoundError):
        run_program(["/nowhere/python"], env={}, cwd=tmp_path)
    with pytest.raises(FileNotFoundError):
        run_program(python("pass"), env={}, cwd=tmp_path / "nowhere")
    assert count() == before
