"""Runs one command and ends all that it started when we who asked for it are gone, however we went.

    minder.py LIFELINE_FD STATUS_FD VARIABLES_FD COMMAND…

A script of its own, so it imports only what starts fast. It leads a process group, of which the command and all that it
starts are members. The lifeline is a pipe whose other end only the asker holds: it closes when the asker closes it, or
dies. The status is one line: "exit N", "signal N", or "errno N" when the command could not be started.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def read_variables(descriptor: int) -> dict[bytes, bytes]:
    """NAME=VALUE, each ended by a zero byte. As the minder's own, an LD_LIBRARY_PATH for another Python would act."""
    with open(descriptor, "rb") as file:
        entries = file.read().split(b"\0")[:-1]
    pairs = (entry.partition(b"=") for entry in entries)
    return {name: value for name, _, value in pairs}


def start(command: list[str], variables: dict[bytes, bytes], status_fd: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.execvpe(command[0], command, variables)
        except OSError as error:
            os.write(status_fd, f"errno {error.errno}\n".encode())
        finally:
            os._exit(127)  # on no account may the child go on as a second minder
    return pid


def watch(pid: int, lifeline_fd: int, wakeup_fd: int) -> str:
    """Sleeps until the command has ended, or nobody wants it any more."""
    poll = select.poll()
    poll.register(lifeline_fd, select.POLLIN)
    poll.register(wakeup_fd, select.POLLIN)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            signalled = os.WIFSIGNALED(status)
            return f"signal {os.WTERMSIG(status)}" if signalled else f"exit {os.WEXITSTATUS(status)}"
        for descriptor, _ in poll.poll():
            if descriptor == lifeline_fd:
                return "abandoned"
            os.read(wakeup_fd, 4096)


def main(lifeline_fd: int, status_fd: int, variables_fd: int, command: list[str]) -> None:
    variables = read_variables(variables_fd)
    for descriptor in (lifeline_fd, status_fd):
        os.set_inheritable(descriptor, False)
    wakeup_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler the descriptor stays silent
    pid = start(command, variables, status_fd)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the command, and comes to the whole group
    status = watch(pid, lifeline_fd, wakeup_fd)
    try:
        os.write(status_fd, f"{status}\n".encode())
    except BrokenPipeError:
        pass
    finally:
        os.killpg(0, signal.SIGKILL)  # us, and whoever is left


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
