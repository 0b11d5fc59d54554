"""Real workers that crash, hang, fork and flood, and controllers that are killed: what the supervisor makes of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_trees import (
    HERE,
    ask,
    ask_pid,
    children,
    exists,
    kill_marked,
    marked,
    parent,
    seconds_until,
    start_worker,
    state,
    worker_argv,
)

from deepstone.errors import DeepstoneError, MissingError
from deepstone.runner.worker_process import ProtocolError, WorkerEnded, WorkerProcess
from deepstone.supervise import Ending, LineBuffer, LineTooLong, ProcessTimeout, Supervised


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"mark-{uuid.uuid4().hex}"
    yield mark
    assert marked(mark) == []
    kill_marked(mark)


@pytest.fixture
def worker(mark: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    with start_worker(mark, tmp_path) as worker:
        yield worker


def open_descriptors() -> dict[str, Path]:
    """What each descriptor of this process leads to, but for the one that is open during this look."""
    listed = list(Path("/proc/self/fd").iterdir())
    return {path.name: path.readlink() for path in listed if path.is_symlink()}


def soon() -> float:
    return time.monotonic() + 60.0


def ending_of(worker: WorkerProcess, do: str, **details: object) -> Ending:
    """Send a request that the worker does not survive."""
    worker.send({"do": do, **details})
    with pytest.raises(WorkerEnded) as caught:
        worker.receive(deadline_s=soon())
    return caught.value.ending


# How a worker ends


def test_interrupted_before_the_keeper_was_heard(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_process: Supervised, _executable: str, _deadline_s: float) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Supervised, "_await_start", interrupted)
    before = open_descriptors()
    with pytest.raises(KeyboardInterrupt):
        start_worker(mark, tmp_path)
    assert open_descriptors() == before


def test_an_exit_code(worker: WorkerProcess) -> None:
    ending = ending_of(worker, "exit", code=7)
    assert (ending.exit_code, ending.signal, ending.ended_by) == (7, None, "itself")
    assert str(ending) == "the worker exited with code 7"
    assert worker.stop() is ending


def test_a_segmentation_fault(worker: WorkerProcess) -> None:
    ending = ending_of(worker, "crash")
    assert (ending.exit_code, ending.signal, ending.oom_killed) == (None, "SIGSEGV", False)
    assert str(ending) == "the worker was ended by SIGSEGV"


def test_a_kill_by_an_outsider_is_a_crash(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerEnded) as caught:
        worker.receive(deadline_s=soon())
    assert (caught.value.ending.signal, caught.value.ending.oom_killed) == ("SIGKILL", False)


def test_half_a_line_and_death(worker: WorkerProcess) -> None:
    assert ending_of(worker, "half a line").exit_code == 3


def test_the_last_reply_of_a_dead_worker_can_be_read(worker: WorkerProcess) -> None:
    worker.send({"do": "reply and exit"})
    assert worker.wait(deadline_s=soon()).exit_code == 0
    with pytest.raises(WorkerEnded):
        worker.send({"do": "echo"})
    assert worker.receive(deadline_s=soon()) == {"last": True}
    with pytest.raises(WorkerEnded):
        worker.receive(deadline_s=soon())


def test_sending_to_a_dead_worker(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    seconds_until(lambda: not exists(worker.pid))
    with pytest.raises(WorkerEnded) as caught:
        worker.send({"do": "echo"})
    assert caught.value.ending.signal == "SIGKILL"


def test_a_worker_that_closes_its_pipe_and_stays_is_stopped(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepstone.runner.worker_process.EXIT_PATIENCE_S", 0.2)
    assert ending_of(worker, "close").ended_by == "stop"


def test_the_keeper_is_killed(worker: WorkerProcess, mark: str) -> None:
    ask(worker, "ignore term")
    os.kill(parent(worker.pid), signal.SIGKILL)
    with pytest.raises(WorkerEnded) as caught:
        worker.receive(deadline_s=soon())
    assert caught.value.ending.ended_by == "keeper lost"
    seconds_until(lambda: marked(mark) == [])


def test_the_keeper_is_killed_and_a_daemon_holds_the_pipe_open(worker: WorkerProcess) -> None:
    daemon = ask_pid(worker, "daemon")
    os.kill(parent(worker.pid), signal.SIGKILL)
    with pytest.raises(WorkerEnded):
        worker.receive(deadline_s=soon())
    os.kill(daemon, signal.SIGKILL)  # only a keeper would have found it
    seconds_until(lambda: not exists(daemon))


def test_the_keeper_hangs(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    monkeypatch.setattr("deepstone.supervise.KILL_PATIENCE_S", 0.1)
    monkeypatch.setattr("deepstone.supervise.KEEPER_PATIENCE_S", 0.1)
    ask(worker, "ignore term")
    os.kill(parent(worker.pid), signal.SIGSTOP)
    assert worker.stop(grace_s=0.1).ended_by == "keeper lost"
    seconds_until(lambda: marked(mark) == [])


# Stopping


def test_a_willing_worker_is_stopped_at_once(worker: WorkerProcess, mark: str) -> None:
    start_s = time.monotonic()
    ending = worker.stop(grace_s=60.0)
    assert time.monotonic() - start_s < 30
    assert (ending.signal, ending.ended_by, ending.stragglers) == ("SIGTERM", "stop", 0)
    assert worker.stop() is ending
    assert marked(mark) == []


def test_a_worker_that_ignores_term_is_killed_after_the_grace(worker: WorkerProcess) -> None:
    ask(worker, "ignore term")
    start_s = time.monotonic()
    ending = worker.stop(grace_s=0.3)
    assert 0.3 <= time.monotonic() - start_s < 30
    assert (ending.signal, ending.oom_killed, ending.ended_by) == ("SIGKILL", False, "stop")


def test_a_stopped_process_is_ended_too(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    seconds_until(lambda: state(worker.pid) == "T")
    assert worker.stop(grace_s=0.1).signal == "SIGKILL"


def test_the_keeper_tells_what_the_process_does(worker: WorkerProcess) -> None:
    """Also to a thread beside the one that waits for a reply, which goes on waiting."""
    worker.send({"do": "burn", "cpu_s": 0.5})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.receive, deadline_s=time.monotonic() + 60)
        assert all(worker.state() is not None for _ in range(3))
        assert waiting.result() == {}
    found = worker.state()
    assert found is not None
    assert found.cpu_s >= 0.1
    assert not found.is_stopped
    os.kill(worker.pid, signal.SIGSTOP)
    seconds_until(lambda: state(worker.pid) == "T")
    found = worker.state()
    assert found is not None
    assert found.is_stopped
    worker.stop(grace_s=0.1)
    assert worker.state() is None


def test_the_state_of_one_that_has_ended_leaves_how_it_ended(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    seconds_until(lambda: not exists(worker.pid))
    worker.state()
    assert worker.wait(deadline_s=soon()).signal == "SIGKILL"


def test_a_daemon_that_ignores_term_goes_with_the_tree(worker: WorkerProcess) -> None:
    daemons = [ask_pid(worker, "daemon") for _ in range(3)]
    ending = worker.stop(grace_s=0.2)
    assert ending.stragglers == 3
    assert not any(exists(pid) for pid in daemons)


def test_a_daemon_does_not_outlive_a_worker_that_exits(worker: WorkerProcess) -> None:
    daemon = ask_pid(worker, "daemon")
    ending = ending_of(worker, "exit", code=0)
    assert (ending.exit_code, ending.ended_by, ending.stragglers) == (0, "itself", 1)
    assert not exists(daemon)


def test_a_tree_that_forks_when_asked_to_end(worker: WorkerProcess, mark: str) -> None:
    ask(worker, "fork on term")
    ending = worker.stop(grace_s=2.0)
    assert ending.exit_code == 0
    assert ending.stragglers >= 1  # more if the child was asked as well, and forked as well
    assert marked(mark) == []


def test_leaving_the_context_by_an_error_ends_the_tree(mark: str, tmp_path: Path) -> None:
    def fail() -> None:
        with start_worker(mark, tmp_path) as worker:
            ask(worker, "daemon")
            raise KeyError(mark)

    with pytest.raises(KeyError, match=mark):
        fail()
    assert marked(mark) == []


def test_many_workers_leave_nothing(mark: str, tmp_path: Path) -> None:
    before = open_descriptors(), children()
    for count in range(20):
        with start_worker(mark, tmp_path) as worker:
            assert ask(worker, "echo", count=count)["count"] == count
    assert (open_descriptors(), children()) == before


# Talking


def test_timeout_and_life_after_it(worker: WorkerProcess) -> None:
    start_s = time.monotonic()
    with pytest.raises(ProcessTimeout):
        worker.receive(deadline_s=start_s + 0.2)
    assert 0.2 <= time.monotonic() - start_s < 30
    with pytest.raises(ProcessTimeout):
        worker.receive(deadline_s=start_s)  # already over
    with pytest.raises(ProcessTimeout):
        worker.wait(deadline_s=time.monotonic() + 0.01)
    assert ask(worker, "echo") == {"do": "echo"}


def test_waiting_for_a_reply_costs_no_cpu(worker: WorkerProcess) -> None:
    cpu_s = time.process_time()
    with pytest.raises(ProcessTimeout):
        worker.receive(deadline_s=time.monotonic() + 1.0)
    assert time.process_time() - cpu_s < 0.1  # of a second; one that polls takes all of it


def test_megabytes_both_ways(worker: WorkerProcess) -> None:
    payload = "é\n" * 2**21
    assert ask(worker, "echo", payload=payload)["payload"] == payload


def test_a_large_request_against_a_large_reply_does_not_deadlock(worker: WorkerProcess) -> None:
    worker.send({"do": "flood", "size": 2**22})
    worker.send({"do": "echo", "payload": "y" * 2**22}, deadline_s=soon())
    flood = worker.receive(deadline_s=soon())["flood"]
    assert isinstance(flood, str)
    assert len(flood) == 2**22
    assert worker.receive(deadline_s=soon())["do"] == "echo"


def test_waiting_for_the_end_of_a_worker_that_is_stuck_in_a_reply(worker: WorkerProcess) -> None:
    worker.send({"do": "flood", "size": 2**22})
    worker.send({"do": "exit", "code": 0})
    assert worker.wait(deadline_s=soon()).exit_code == 0
    assert "flood" in worker.receive(deadline_s=None)


def test_sending_to_a_worker_that_does_not_read_has_a_deadline(worker: WorkerProcess) -> None:
    worker.send({"do": "sleep"})
    with pytest.raises(ProcessTimeout):
        worker.send({"payload": "x" * 2**22}, deadline_s=time.monotonic() + 0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello \x1b[31m", r"not JSON .*: hello \\x1b\[31m$"),
        ("[1, 2]", r"not an object: \[1, 2\]$"),
        ("[" * 100_000, r"not JSON .*bytes\)$"),
        ("", "not JSON"),
    ],
)
def test_what_is_not_a_json_object(worker: WorkerProcess, text: str, message: str) -> None:
    worker.send({"do": "raw", "text": text})
    with pytest.raises(ProtocolError, match=message):
        worker.receive(deadline_s=soon())


def test_lines_in_pieces() -> None:
    buffer = LineBuffer()
    assert buffer.take() is None
    buffer.feed(b"on")
    assert buffer.take() is None
    buffer.feed(b"e\ntwo\n\nthr")
    assert [buffer.take() for _ in range(4)] == [b"one", b"two", b"", None]
    buffer.feed(b"ee\n")
    assert buffer.take() == b"three"


@pytest.mark.parametrize("tail", [b"", b"\n"])
def test_a_line_beyond_the_limit(tail: bytes) -> None:
    buffer = LineBuffer(limit_bytes=8)
    buffer.feed(b"12345678\n")
    assert buffer.take() == b"12345678"
    buffer.feed(b"123456789" + tail)
    with pytest.raises(LineTooLong, match="more than 8 bytes"):
        buffer.take()


def test_the_tail_of_the_output_is_harmless(worker: WorkerProcess, tmp_path: Path) -> None:
    ask(worker, "print", text="x" * 9000 + "\r\n\tred \x1b[31m\r50%\r100%\u202e é\x00\n")
    tail = worker.output_tail()
    assert len(tail) == 4000
    assert tail.endswith("x\n\tred \\x1b[31m\n50%\n100%\\u202e é\\x00\non stderr\n")
    with (tmp_path / "output.txt").open("ab") as file:
        file.write(b"\xff\xfe")
    assert worker.output_tail(5) == "err\n��"[-5:]
    (tmp_path / "output.txt").unlink()
    assert worker.output_tail() == ""


# Starting


def test_an_executable_that_is_not_there(mark: str, tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(MissingError, match=r"cannot start /nowhere/python: No such file or directory"):
        WorkerProcess.start(["/nowhere/python", mark], env={}, cwd=tmp_path, output_path=tmp_path / "output.txt")
    with pytest.raises(MissingError, match=r"cannot start .*output.txt: Permission denied"):
        WorkerProcess.start([str(tmp_path / "output.txt")], env={}, cwd=tmp_path, output_path=tmp_path / "output.txt")
    assert open_descriptors() == before


def test_folders_that_are_not_there(mark: str, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(MissingError, match=r"nowhere: No such file"):
        WorkerProcess.start(worker_argv(mark), env={}, cwd=nowhere, output_path=tmp_path / "output.txt")
    with pytest.raises(DeepstoneError, match=r"output to .*nowhere/output.txt: No such file"):
        WorkerProcess.start(worker_argv(mark), env={}, cwd=tmp_path, output_path=nowhere / "output.txt")


def test_of_a_flood_the_end_is_kept(worker: WorkerProcess, tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    with output.open("ab") as file:
        file.write(b"small\n")
    worker.trim_output()
    assert output.read_bytes().endswith(b"small\n")
    with output.open("ab") as file:
        file.write(b"y\n" * 10 * 2**20 + b"the last words\n")
    worker.trim_output()
    assert output.stat().st_size < 2**20
    with output.open("ab") as file:
        file.write(b"and more\n")
    assert worker.output_tail().endswith("y\nthe last words\nand more\n")


def test_two_workers_share_no_pipe(mark: str, tmp_path: Path) -> None:
    def pipes(pid: int) -> set[str]:
        links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        return {link for link in links if link.startswith("pipe:")}

    with start_worker(mark, tmp_path) as first, start_worker(mark, tmp_path) as second:
        for worker in (first, second):
            ask(worker, "echo")
        of_first = pipes(first.pid) | pipes(parent(first.pid))
        of_second = pipes(second.pid) | pipes(parent(second.pid))
        assert len(pipes(first.pid)) == 2
        assert os.getsid(parent(first.pid)) == parent(first.pid)  # out of reach of the terminal's Ctrl-C
        assert len(of_first) == 5  # request, reply, control, status, and the keeper's own for signals
        assert not of_first & of_second
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(WorkerEnded):
            first.receive(deadline_s=soon())
        assert ask(second, "echo") == {"do": "echo"}


def test_a_controller_that_ignores_the_death_of_children(mark: str, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with start_worker(mark, tmp_path) as worker:
            assert ask(worker, "describe")["ignored"] == 0
            assert ending_of(worker, "exit", code=7).exit_code == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


# The controller's own death


@pytest.fixture
def controller(request: pytest.FixtureRequest, mark: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    mode: str = request.param
    command = [sys.executable, str(HERE / "scripted_controller.py"), mark, str(tmp_path), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(marked(mark)) == 7  # itself, and twice keeper, worker and daemon
        yield process
        process.kill()


@pytest.mark.parametrize("controller", ["waiting", "stopping"], indirect=True)
def test_no_process_outlives_a_killed_controller(controller: subprocess.Popen[str], mark: str) -> None:
    controller.kill()
    seconds_until(lambda: marked(mark) == [])


@pytest.mark.parametrize("controller", ["waiting"], indirect=True)
def test_an_interrupted_controller_ends_its_trees(controller: subprocess.Popen[str], mark: str) -> None:
    controller.send_signal(signal.SIGINT)
    assert controller.stdout is not None
    assert controller.stdout.read() == "interrupted\n"
    controller.wait()
    assert marked(mark) == []


@pytest.mark.parametrize("controller", ["stopping"], indirect=True)
def test_an_interrupted_stop_leaves_the_rest_to_the_keeper(controller: subprocess.Popen[str], mark: str) -> None:
    start_s = time.monotonic()
    controller.send_signal(signal.SIGINT)
    controller.wait()
    assert time.monotonic() - start_s < 45  # the grace would be a minute
    assert marked(mark) == []
