"""The keeper, spoken to over its raw pipes: what the worker gets, how trees end, what is reported, what it costs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from memory_kills import a_kill_meanwhile
from worker_trees import exists, kill_marked, marked, parent, seconds_until, stat_fields, worker_argv

from deepstone import keeper

PATIENT = b"stop 10 10\n"


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"mark-{uuid.uuid4().hex}"
    yield mark
    kill_marked(mark)


class RawKeeper:
    """The controller's ends of a keeper's pipes, without the controller."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        control_read, self.control = os.pipe()
        self.status_fd, status_write = os.pipe()
        request_read, self.request = os.pipe()
        self.reply_fd, reply_write = os.pipe()
        environment_fd = os.memfd_create("environment")
        os.write(environment_fd, b"".join(f"{name}={value}\0".encode() for name, value in environment.items()))
        os.lseek(environment_fd, 0, os.SEEK_SET)
        passed = (control_read, status_write, request_read, reply_write, environment_fd)
        keepers = map(str, (control_read, status_write, environment_fd))
        command = [sys.executable, "-I", "-S", keeper.__file__, *keepers, f"{request_read},{reply_write}", *argv]
        with (folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [*command, str(request_read), str(reply_write)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                pass_fds=passed,
                start_new_session=True,
            )
        for descriptor in passed:
            os.close(descriptor)
        self._status = os.fdopen(self.status_fd)
        self._replies = os.fdopen(self.reply_fd)
        self.started = self.read_status()

    @property
    def pid(self) -> int:
        """The worker's."""
        pid = self.started["worker_pid"]
        assert isinstance(pid, int)
        return pid

    def read_status(self) -> dict[str, object]:
        return json.loads(self._status.readline())

    def ask(self, do: str, **details: object) -> dict[str, object]:
        self.send(do, **details)
        return json.loads(self._replies.readline())

    def send(self, do: str, **details: object) -> None:
        os.write(self.request, json.dumps({"do": do, **details}).encode() + b"\n")

    def cpu_s(self) -> float:
        """CPU time of the keeper alone, once it is over."""
        self._status.read()
        _, _, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = 0
        return usage.ru_utime + usage.ru_stime

    def close_control(self) -> None:
        os.close(self.control)
        self.control = -1

    def close(self) -> None:
        for descriptor in (self.control, self.request):
            if descriptor >= 0:
                os.close(descriptor)
        self._status.read()  # until the keeper is over
        self._status.close()
        self._replies.close()
        self.process.wait()


@pytest.fixture
def kept(mark: str, tmp_path: Path) -> Iterator[RawKeeper]:
    raw = RawKeeper(worker_argv(mark), tmp_path, {"MARK": mark, "EMPTY": "", "LINES": "a=b\nc"})
    yield raw
    raw.close()


def test_the_worker_gets_what_was_given_and_nothing_else(kept: RawKeeper, mark: str, tmp_path: Path) -> None:
    facts = kept.ask("describe")
    environment = Path(f"/proc/{kept.pid}/environ").read_text()
    assert environment == f"MARK={mark}\0EMPTY=\0LINES=a=b\nc\0"
    assert facts["cwd"] == str(tmp_path)
    assert facts["session"] == kept.pid
    assert facts["stdin"] == "/dev/null"
    assert facts["ignored"] == 0
    assert facts["blocked"] == 0
    assert facts["descriptors"] == 5  # the standard three and the two pipes
    assert parent(kept.pid) == kept.process.pid


def test_python_hands_down_no_ignored_signals(mark: str, tmp_path: Path) -> None:
    raw = RawKeeper(["/bin/sh", "-c", "kill -PIPE $$", mark], tmp_path, {})
    assert raw.read_status()["signal"] == "SIGPIPE"
    raw.close()


def test_the_keeper_sleeps_until_the_worker_exits(kept: RawKeeper) -> None:
    kept.ask("burn", cpu_s=0.2)
    kept.send("exit", code=7)
    ending = kept.read_status()
    cpu_s, max_rss_bytes = ending.pop("cpu_s"), ending.pop("max_rss_bytes")
    assert ending == {
        "exit_code": 7,
        "signal": None,
        "oom_killed": False,
        "ended_by": "itself",
        "stragglers": 0,
        "unkillable": 0,
    }
    assert isinstance(cpu_s, float)
    assert 0.2 <= cpu_s < 10
    assert isinstance(max_rss_bytes, int)
    assert 2**22 < max_rss_bytes < 2**27


def test_an_executable_that_is_not_there(mark: str, tmp_path: Path) -> None:
    raw = RawKeeper(["/nowhere/python", mark], tmp_path, {})
    assert raw.started == {"cannot_start": errno.ENOENT}
    raw.close()


def test_a_signal_to_the_keeper_ends_the_tree(kept: RawKeeper, mark: str) -> None:
    daemon = kept.ask("daemon")["pid"]
    assert daemon in marked(mark)
    kept.process.terminate()
    ending = kept.read_status()
    assert (ending["signal"], ending["ended_by"]) == ("SIGTERM", "signal to the keeper")
    kept.process.wait()
    assert marked(mark) == []


def test_an_interrupt_does_not_kill_the_keeper_before_it_cleaned_up(kept: RawKeeper, mark: str) -> None:
    kept.ask("daemon")
    for _ in range(3):
        kept.process.send_signal(signal.SIGINT)
    assert kept.read_status()["ended_by"] == "signal to the keeper"
    kept.process.wait()
    assert marked(mark) == []


def test_the_worker_dies_with_a_killed_keeper(kept: RawKeeper, mark: str) -> None:
    kept.ask("ignore term")
    kept.process.kill()
    seconds_until(lambda: marked(mark) == [])


def test_a_controller_that_vanishes_while_stopping_cuts_the_grace_short(kept: RawKeeper, mark: str) -> None:
    kept.ask("ignore term")
    os.write(kept.control, PATIENT)
    kept.close_control()
    seconds_until(lambda: marked(mark) == [])


def test_the_dead_of_a_daemon_are_collected_while_the_worker_runs(kept: RawKeeper) -> None:
    daemon = kept.ask("daemon")["pid"]
    assert isinstance(daemon, int)
    assert parent(daemon) == kept.process.pid
    os.kill(daemon, signal.SIGKILL)
    seconds_until(lambda: not exists(daemon))
    assert kept.ask("echo") == {"do": "echo"}


def test_a_process_that_cannot_be_killed_is_reported_and_not_waited_for(kept: RawKeeper) -> None:
    freezer = Path("/sys/fs/cgroup/freezer")
    if not os.access(freezer / "cgroup.procs", os.W_OK):
        pytest.skip(
            "needs root and the freezer of cgroup v1, where a frozen process survives SIGKILL until it is thawed"
        )
    folder = freezer / f"deepstone-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(kept.pid))
        (folder / "freezer.state").write_text("FROZEN")
        seconds_until(lambda: (folder / "freezer.state").read_text() == "FROZEN\n")
        os.write(kept.control, b"stop 0.1 0.3\n")
        ending = kept.read_status()
        assert (ending["unkillable"], ending["exit_code"], ending["signal"]) == (1, None, None)
    finally:
        (folder / "freezer.state").write_text("THAWED")
        seconds_until(lambda: not exists(kept.pid))
        remove_cgroup(folder)


def remove_cgroup(folder: Path) -> None:
    """The kernel lets go of a cgroup a moment after its last process."""

    def removed() -> bool:
        with suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    seconds_until(removed)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory cgroup with room for a Python and little more."""
    groups = dict(line.split(":")[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" in groups:
        folder = Path("/sys/fs/cgroup/memory") / groups["memory"].lstrip("/")
        limits = ["memory.limit_in_bytes"]
    else:
        folder = Path("/sys/fs/cgroup")
        limits = ["memory.max"]
    folder /= f"deepstone-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a memory cgroup: {error}")
    try:
        if not (folder / limits[0]).exists():
            pytest.skip(f"no memory controller in {folder}")
        (folder / limits[0]).write_text(str(48 * 2**20))
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            with suppress(OSError):  # no swap accounting
                (folder / swap).write_text(str(48 * 2**20) if "memsw" in swap else "0")
        with a_kill_meanwhile():
            yield folder
    finally:
        remove_cgroup(folder)


def test_a_kill_for_lack_of_memory_is_told_from_others(kept: RawKeeper, small_memory: Path) -> None:
    kept.send("eat", cgroup=str(small_memory))
    ending = kept.read_status()
    assert (ending["signal"], ending["oom_killed"], ending["ended_by"]) == ("SIGKILL", True, "itself")


def test_an_outsider_s_kill_is_not_for_lack_of_memory(kept: RawKeeper) -> None:
    os.kill(kept.pid, signal.SIGKILL)
    ending = kept.read_status()
    assert (ending["signal"], ending["oom_killed"], ending["ended_by"]) == ("SIGKILL", False, "itself")


def test_the_cost_of_a_keeper(mark: str, tmp_path: Path) -> None:
    """Against a Python that does nothing, at the same time: machines differ, and others may be busy on them."""
    spent_s: list[float] = []
    python_s: list[float] = []
    for _ in range(5):
        raw = RawKeeper(["/bin/true", mark], tmp_path, {})
        spent_s.append(raw.cpu_s())
        raw.close()
        idle = subprocess.Popen([sys.executable, "-I", "-S", "-c", "pass"])
        _, _, usage = os.wait4(idle.pid, 0)
        idle.returncode = 0
        python_s.append(usage.ru_utime + usage.ru_stime)
    assert min(spent_s) < 6 * min(python_s), (spent_s, python_s)


def test_waiting_costs_nothing(kept: RawKeeper) -> None:
    def ticks() -> int:
        fields = stat_fields(kept.process.pid)
        return int(fields[11]) + int(fields[12])

    kept.ask("echo")  # both have started
    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 2  # of 100


def test_real_time_signals_have_a_name_too() -> None:
    assert keeper.signal_name(signal.SIGSEGV) == "SIGSEGV"
    assert keeper.signal_name(signal.SIGRTMIN + 1) == f"SIG{signal.SIGRTMIN + 1}"


def test_descendants_come_after_their_parents(kept: RawKeeper) -> None:
    daemon = kept.ask("daemon")["pid"]
    found = keeper.living_descendants(os.getpid())
    assert found.index(kept.process.pid) < found.index(kept.pid)
    assert daemon in found
