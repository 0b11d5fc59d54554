"""The keeper: starts one worker and answers for its whole process tree, whatever happens to the controller.

A script of its own, started once per worker, so it imports only what starts fast: no json, dataclasses or subprocess.
The worker is the measured process, drawn here, or any program that we start and see to its end; that one inherits
nothing but its output, which is a pipe to the controller. supervise.py is the controller's side of both.

    controller                        keeper                          worker
    (supervise.py)                    (this file)                     (the measured process)
    ───────────────                   ─────────────────               ──────────────────────────
    control  write ────── pipe ─────▶ read                            (closed by exec)
    status   read  ◀───── pipe ────── write                           (closed by exec)
    request  write ────── pipe ────── closed after the fork ────────▶ read
    reply    read  ◀───── pipe ────── closed after the fork ───────── write
    environment  ──────── memfd ────▶ read once, then closed          (it is the environment)
    output   (reopens the path)       1 and 2                         1 and 2, appending
                                      0 = /dev/null                   0 = /dev/null

Where a launcher starts the processes of a job, perhaps on other hosts, worker/join.py becomes the keeper, and sockets
take the place of pipes: one for control and status, one for request and reply.

    time ─▶
    keeper    fork ── "started" ── asleep in poll() ──┬── TERM to all ── grace ── KILL until ECHILD ── ending ── exit
                                                      │
                      worker exited · "stop G P" · control closed · TERM, INT or HUP to the keeper

Only the controller holds the write end of `control`: when it dies, by whatever cause, the kernel closes that end and
the keeper wakes up. The keeper is a subreaper: a descendant whose parent dies becomes its child, setsid or not, so that
"no children left" (ECHILD) proves that the tree is gone. The worker in turn dies with the keeper (PR_SET_PDEATHSIG).

    keeper.py CONTROL_FD STATUS_FD ENVIRONMENT_FD INHERITED_FDS ARGV…

INHERITED_FDS are those that the worker gets beside its output, as in 7,8; "-" for none.

Where the worker's environment has DEEPSTONE_POWER_LIMIT=BOARD WATTS, the keeper limits the power of that GPU before it
starts the worker, and puts the former limit back when the tree is gone: it outlives the controller, however that ends.

The controller may write "state", which the keeper answers with {"worker_state": letter, "worker_cpu_s": n} as /proc has
them, and in the end "stop GRACE_S PATIENCE_S". The keeper itself writes two JSON lines: {"worker_pid": n},
{"cannot_start": errno} or {"cannot_limit": reason}; and when all is over {"exit_code": n or null, "signal": name or
null, "oom_killed", "cpu_s", "max_rss_bytes", "ended_by", "stragglers", "unkillable"}.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing takes longer to import than this file to run
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

ITSELF = "itself"
STOP = "stop"
CONTROLLER_GONE = "controller gone"
SIGNAL = "signal to the keeper"

# The worker is already gone, or nobody is there to wait for a tidy end: half a second is for flushing files.
SHORT_GRACE_S = 0.5
DEFAULT_GRACE_S = 2.0
# How long a killed process may take to vanish (freeing much memory, closing a GPU) before it is reported as unkillable.
PATIENCE_S = 10.0
# While killing, the tree is looked at again at least this often: a child that was forked just before its parent died.
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.2

# The signals that make the keeper end the tree rather than die and leave it to itself.
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


POWER_LIMIT = b"DEEPSTONE_POWER_LIMIT"  # BOARD WATTS; a board is named by its UUID
POWER_IN_EFFECT = b"DEEPSTONE_POWER_IN_EFFECT"  # what the worker is told: the limit in watts, as the driver has it
NVML = "libnvidia-ml.so.1"


class LimitRefusedError(Exception):
    """The power of a GPU cannot be limited; the message says why."""


class PowerLimit:
    """The power limit of a GPU while a worker runs. It is the board's, so one process at a time may change it."""

    def __init__(self, board: bytes, watts: int) -> None:
        try:
            self._nvml = ctypes.CDLL(NVML)
        except OSError as error:
            raise LimitRefusedError(f"no NVIDIA driver here: {error}") from error
        self._lock_fd = os.open(f"/tmp/deepstone-power-{board.decode()}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LimitRefusedError("another run limits the power of this GPU now") from error
        self._call("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", board, ctypes.byref(self._handle))
        self._before_mw = self._read_mw()
        self._call("nvmlDeviceSetPowerManagementLimit", self._handle, ctypes.c_uint(watts * 1000))
        self.watts = self._read_mw() // 1000
        self._is_restored = False

    def restore(self) -> None:
        """Put the former limit back, once. If the driver refuses, say so where the worker's output goes."""
        if self._is_restored:
            return
        self._is_restored = True
        try:
            self._call("nvmlDeviceSetPowerManagementLimit", self._handle, ctypes.c_uint(self._before_mw))
        except LimitRefusedError as error:
            remedy = f"nvidia-smi -pl {self._before_mw // 1000}"
            os.write(2, f"deepstone: the power limit is not put back: {error}; use `{remedy}`\n".encode())
        os.close(self._lock_fd)

    def _read_mw(self) -> int:
        found = ctypes.c_uint()
        self._call("nvmlDeviceGetPowerManagementLimit", self._handle, ctypes.byref(found))
        return found.value

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._nvml, name)(*arguments)
        if status != 0:
            words = self._nvml.nvmlErrorString
            words.restype = ctypes.c_char_p
            raise LimitRefusedError(f"NVML refused {name}: {words(status).decode()}")


class Events:
    """What can wake the keeper: the control pipe, a dead child, a signal. Between them it sleeps in poll()."""

    def __init__(self, control_fd: int) -> None:
        self.stop: tuple[float, float] | None = None  # grace and patience that the controller asked for
        self.controller_gone_at_s: float | None = None
        self.signalled = False
        self.asked_for_state = False
        self._control_fd = control_fd
        self._control = b""  # the part of a line that has come so far
        self._signal_fd, wakeup_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # A full pipe wakes us as well as an empty one with a byte in it.
        signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *END_SIGNALS):
            signal.signal(number, _do_nothing)  # without a handler the wakeup descriptor stays silent
        self._poll = select.poll()
        self._poll.register(self._signal_fd, select.POLLIN)
        self._poll.register(control_fd, select.POLLIN)

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until something happens or the time is over; the attributes say what happened."""
        timeout_ms = None if timeout_s is None else max(0, int(timeout_s * 1000) + 1)
        for descriptor, _ in self._poll.poll(timeout_ms):
            if descriptor == self._signal_fd:
                self.signalled |= any(number in END_SIGNALS for number in os.read(descriptor, 4096))
            else:
                self._read_control()

    def _read_control(self) -> None:
        try:
            data = os.read(self._control_fd, 4096)
        except OSError:  # a socket was reset, or its host does not answer any more
            data = b""
        if data:
            *lines, self._control = (self._control + data).split(b"\n")
            for line in lines:
                if line == b"state":
                    self.asked_for_state = True
                elif self.stop is None:
                    grace_s, patience_s = line.split()[1:3]
                    self.stop = float(grace_s), float(patience_s)
        else:
            self.controller_gone_at_s = time.monotonic()
            self._poll.unregister(self._control_fd)  # a closed pipe is always ready: poll() would spin


class Tree:
    """The worker and all its descendants, and what is known of those that ended."""

    def __init__(self, worker_pid: int) -> None:
        self.worker_pid = worker_pid
        self.worker_status: int | None = None
        self.max_rss_bytes = 0
        self.cpu_s = 0.0
        self.killed = False  # did we send SIGKILL before the worker was seen dead?
        self.stragglers: set[int] = set()

    def reap(self) -> bool:
        """Collect the dead. Says whether any child is left; if none is, the whole tree is gone."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.cpu_s += usage.ru_utime + usage.ru_stime
            if pid == self.worker_pid:
                self.worker_status = status
                self.max_rss_bytes = usage.ru_maxrss * 1024

    def signal_all(self, number: signal.Signals, spared: frozenset[int] = frozenset()) -> frozenset[int]:
        """Signal all but the spared, parents first, so that none can react to a child's death. Says who lives."""
        living = living_descendants(os.getpid())
        if self.worker_status is None:
            self.killed |= number == signal.SIGKILL
        else:
            self.stragglers.update(living)
        for pid in living:
            if pid not in spared:
                send(pid, number)
        return frozenset(living)


def _do_nothing(number: int, frame: object) -> None:
    """The wakeup descriptor tells; the handler only has to exist."""


def prctl(option: int, value: int) -> None:
    """prctl(2), which the standard library does not offer."""
    arguments = [ctypes.c_ulong(each) for each in (value, 0, 0, 0)]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *arguments) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def send(pid: int, number: signal.Signals) -> None:
    """kill(2). One that died meanwhile is no error; one we may not signal (setuid) will be reported as unkillable."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def living_descendants(root: int) -> list[int]:
    """All descendants of a process that are not zombies, parents before children, from one walk over /proc."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (pathlib is slow to import)
        if name.isdigit():
            parent, dead = read_parent(name)
            children.setdefault(parent, []).append((int(name), dead))
    found: list[int] = []
    queue = [root]
    for parent in queue:
        for pid, dead in children.get(parent, ()):
            queue.append(pid)
            if not dead:
                found.append(pid)
    return found


def read_parent(pid: str) -> tuple[int, bool]:
    """The parent of a process and whether all its threads are dead; parent 0 if it vanished while we looked."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # "pid (name) state ppid …": the name may hold spaces and brackets, what follows the last bracket may not.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0, True
    state, parent, threads = fields[0], fields[1], fields[17]
    # A leader that left its threads running looks like a zombie but still works.
    return int(parent), state in (b"Z", b"X") and int(threads) <= 1


def describe_state(pid: int) -> str:
    """Whether a process runs (R), waits (S), hangs in the kernel (D) or is stopped (T), and its CPU time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        fields = [b"X"] + [b"0"] * 12
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return f'{{"worker_state": "{fields[0].decode()}", "worker_cpu_s": {cpu_s:.2f}}}'


def count_oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since boot, in any memory cgroup; 0 if it hides that.

    The counter of the worker's own cgroup would be narrower, but in cgroup v1 a dead process no longer tells which that
    was, and each kill counted there is counted here too.
    """
    try:
        with open("/proc/vmstat", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0


def read_environment(descriptor: int) -> dict[bytes, bytes]:
    """The worker's environment, NAME=VALUE each ended by a zero byte. As the keeper's own, its LD_PRELOAD would act."""
    with open(descriptor, "rb") as file:
        entries = file.read().split(b"\0")[:-1]
    pairs = (entry.partition(b"=") for entry in entries)
    return {name: value for name, _, value in pairs}


def start_worker(
    argv: list[str], environment: Mapping[bytes, bytes], inherited: Sequence[int], foreign: Sequence[int]
) -> int | OSError:
    """Fork and exec the worker with only the inherited descriptors; its pid, or why it could not be started."""
    for descriptor in foreign:
        os.set_inheritable(descriptor, False)
    failure_fd, failure_write_fd = os.pipe()
    keeper_pid = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a caller ignores it, the dead leave no status
    # The signals wait until the keeper has its handlers and the child has none.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *END_SIGNALS))
    worker_pid = os.fork()
    if worker_pid == 0:
        become_worker(argv, environment, keeper_pid, failure_write_fd)
    for descriptor in (failure_write_fd, *inherited):
        os.close(descriptor)  # else the controller would never see the reply pipe close
    failure = os.read(failure_fd, 32)  # exec closes the pipe
    os.close(failure_fd)
    if failure:
        os.waitpid(worker_pid, 0)
        return OSError(int(failure), os.strerror(int(failure)))
    return worker_pid


def become_worker(
    argv: list[str], environment: Mapping[bytes, bytes], keeper_pid: int, failure_write_fd: int
) -> NoReturn:
    """The child's side of the fork: dies with the keeper, leads a session of its own, has default signals."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper_pid:  # else the keeper died before the line above could notice it
            os.setsid()
            # Python ignores the first two, a caller such as nohup or a script's `&` may ignore others, and exec hands
            # that down.
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGQUIT, *END_SIGNALS):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(failure_write_fd, str(error.errno).encode())
    finally:
        os._exit(127)  # on no account may the child go on as a second keeper


def wait_for_end(tree: Tree, events: Events, status_fd: int) -> tuple[str, float, float]:
    """Sleep until the tree is to end: why, with which grace and patience."""
    while True:
        events.wait(None)
        if events.asked_for_state:
            events.asked_for_state = False
            tell(status_fd, describe_state(tree.worker_pid))
        if not tree.reap() or tree.worker_status is not None:
            return ITSELF, SHORT_GRACE_S, PATIENCE_S
        if events.controller_gone_at_s is not None:
            return CONTROLLER_GONE, SHORT_GRACE_S, PATIENCE_S
        if events.stop is not None:
            return STOP, *events.stop
        if events.signalled:
            return SIGNAL, DEFAULT_GRACE_S, PATIENCE_S


def terminate(tree: Tree, events: Events, grace_s: float) -> None:
    """Ask all to end, also those that appear meanwhile, and wait out the grace; a vanished controller cuts it short."""
    deadline_s = time.monotonic() + grace_s
    told: frozenset[int] = frozenset()
    while tree.reap():
        if events.controller_gone_at_s is not None:
            deadline_s = min(deadline_s, events.controller_gone_at_s + SHORT_GRACE_S)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return
        told |= tree.signal_all(signal.SIGTERM, spared=told)
        events.wait(left_s)


def kill(tree: Tree, events: Events, patience_s: float) -> int:
    """Kill until nothing is left. Returns how many would not die: they sleep in the kernel, or are not ours to kill."""
    deadline_s = time.monotonic() + patience_s
    pause_s = FIRST_PAUSE_S
    while tree.reap():
        if time.monotonic() >= deadline_s:
            return len(living_descendants(os.getpid()))
        tree.signal_all(signal.SIGKILL)
        events.wait(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return 0


def signal_name(number: int) -> str:
    """SIGSEGV for 11; real-time signals have no names of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def describe_ending(tree: Tree, ended_by: str, oom_kills: int, unkillable: int) -> str:
    """The last line of the status pipe. Written by hand: importing json would cost a fifth of the keeper's start."""
    exit_code, name, oom_killed = "null", "null", "false"
    if tree.worker_status is not None:
        if os.WIFSIGNALED(tree.worker_status):
            number = os.WTERMSIG(tree.worker_status)
            name = f'"{signal_name(number)}"'
            if number == signal.SIGKILL and not tree.killed and oom_kills > 0:
                oom_killed = "true"
        else:
            exit_code = str(os.WEXITSTATUS(tree.worker_status))
    return (
        f'{{"exit_code": {exit_code}, "signal": {name}, "oom_killed": {oom_killed}, "cpu_s": {tree.cpu_s:.6f}, '
        f'"max_rss_bytes": {tree.max_rss_bytes}, "ended_by": "{ended_by}", "stragglers": {len(tree.stragglers)}, '
        f'"unkillable": {unkillable}}}'
    )


def tell(status_fd: int, line: str) -> None:
    """One line to the controller, if it is still there."""
    try:
        os.write(status_fd, line.encode() + b"\n")
    except OSError:
        return


def main(arguments: list[str]) -> None:
    """Start the worker, sleep, end the tree, report."""
    control_fd, status_fd, environment_fd = map(int, arguments[:3])
    inherited = [int(number) for number in arguments[3].split(",") if number != "-"]
    environment = read_environment(environment_fd)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    limit: PowerLimit | None = None
    if POWER_LIMIT in environment:
        board, watts = environment.pop(POWER_LIMIT).split()
        try:
            limit = PowerLimit(board, int(watts))
        except LimitRefusedError as error:
            tell(status_fd, f'{{"cannot_limit": "{error}"}}'.replace("\n", " "))
            return
        environment[POWER_IN_EFFECT] = str(limit.watts).encode()
    try:
        keep(arguments[4:], environment, inherited, control_fd, status_fd, limit)
    finally:
        if limit is not None:
            limit.restore()


def keep(
    argv: list[str],
    environment: Mapping[bytes, bytes],
    inherited: Sequence[int],
    control_fd: int,
    status_fd: int,
    limit: PowerLimit | None,
) -> None:
    """From the start of the worker to the last line about its end."""
    oom_kills_before = count_oom_kills()
    worker = start_worker(argv, environment, inherited=inherited, foreign=(control_fd, status_fd))
    if isinstance(worker, OSError):
        tell(status_fd, f'{{"cannot_start": {worker.errno}}}')
        return
    events = Events(control_fd)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    tell(status_fd, f'{{"worker_pid": {worker}}}')

    tree = Tree(worker)
    ended_by, grace_s, patience_s = wait_for_end(tree, events, status_fd)
    terminate(tree, events, grace_s)
    unkillable = kill(tree, events, patience_s)
    oom_kills = count_oom_kills() - oom_kills_before
    if limit is not None:
        limit.restore()  # before anybody may start the next worker
    tell(status_fd, describe_ending(tree, ended_by, oom_kills, unkillable))


if __name__ == "__main__":
    main(sys.argv[1:])
