"""A worker that misbehaves on request: scripted_worker.py MARK … READ_FD WRITE_FD. It imports little, to start fast."""

# pathlib is slow to import.
# ruff: noqa: PTH109, PTH115, PTH118, PTH123, PTH208

from __future__ import annotations

import os
import signal
import sys
import time

READ_FD, WRITE_FD = int(sys.argv[-2]), int(sys.argv[-1])


def reply(text: str) -> None:
    data = text.encode() + b"\n"
    while data:
        data = data[os.write(WRITE_FD, data) :]


def sleep_for_ever() -> None:
    while True:
        signal.pause()


def ignore_term() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def start_daemon() -> None:
    """The classic double fork: a grandchild in a session of its own, which neither killpg nor waitpid would find."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            ignore_term()
            os.write(write_fd, str(os.getpid()).encode())
            sleep_for_ever()
        os._exit(0)
    os.waitpid(child, 0)
    pid = os.read(read_fd, 32).decode()
    os.close(read_fd)
    os.close(write_fd)
    reply(f'{{"pid": {pid}}}')


def fork_on_term(number: int, frame: object) -> None:
    """Asked to end, leave a child in a new session that does the same."""
    if os.fork() == 0:
        os.setsid()
    else:
        os._exit(0)


def crash() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def eat_memory(cgroup: str) -> None:
    """Move into a memory cgroup and allocate beyond its limit."""
    with open(os.path.join(cgroup, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
    hoard: list[bytearray] = []
    while True:
        hoard.append(bytearray(os.urandom(2**20)))


def obey(message: dict[str, object], text: str) -> None:
    do = message["do"]
    if do == "echo":
        reply(text)
    elif do == "flood":
        # The reply to come is larger than a pipe holds, and the next request is read only after it.
        reply('{"flood": "' + "x" * int(str(message["size"])) + '"}')
    elif do == "exit":
        os._exit(int(str(message["code"])))
    elif do == "reply and exit":
        reply('{"last": true}')
        os._exit(0)
    elif do == "crash":
        crash()
    elif do == "ignore term":
        ignore_term()
        reply("{}")
    elif do == "daemon":
        start_daemon()
    elif do == "fork on term":
        signal.signal(signal.SIGTERM, fork_on_term)
        reply("{}")
    elif do == "sleep":
        sleep_for_ever()
    elif do == "half a line":
        os.write(WRITE_FD, b'{"half": ')
        os._exit(3)
    elif do == "raw":
        reply(str(message["text"]))
    elif do == "print":
        os.write(1, str(message["text"]).encode())
        os.write(2, b"on stderr\n")
        reply("{}")
    elif do == "close":
        os.close(WRITE_FD)
        sleep_for_ever()
    elif do == "burn":
        until_s = time.process_time() + float(str(message["cpu_s"]))
        while time.process_time() < until_s:
            pass
        reply("{}")
    elif do == "eat":
        eat_memory(str(message["cgroup"]))
    elif do == "describe":
        describe()
    else:
        raise ValueError(do)


def describe() -> None:
    import json

    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    descriptors = os.listdir("/proc/self/fd")  # one of them is open for this list only
    facts = {
        "cwd": os.getcwd(),
        "session": os.getsid(0),
        # SIGPIPE and SIGXFSZ this Python ignores itself; 32 and 33 belong to the C library and cannot be set.
        "ignored": int(status["SigIgn"], 16) & ~(1 << signal.SIGPIPE - 1) & ~(1 << signal.SIGXFSZ - 1) & ~(0b11 << 31),
        "blocked": int(status["SigBlk"], 16),
        "descriptors": sum(os.path.lexists(f"/proc/self/fd/{number}") for number in descriptors),
        "stdin": os.readlink("/proc/self/fd/0"),
    }
    reply(json.dumps(facts))


def main() -> None:
    import json

    with open(READ_FD, closefd=False) as requests:
        for line in requests:
            obey(json.loads(line), line.rstrip("\n"))


main()
