"""What a launcher starts for each rank: it finds the controller, says who it is, and becomes the keeper of its worker.

    controller                      launcher                 one chain for each rank, on any host
    (runner/muster.py)              torchrun, mpirun, srun   ─────────────────────────────────────────────────
        listens  ◀───────────────────────────── connects ──  join.py
        "nonce"  ──────────────────────────────────────────▶
                 ◀──────────────────── "proof", "card" ────  rank, world, host, CPUs, SHA of the worker's files
        (waits until all ranks are there, and the same)
        "orders" ──────────────────────────────────────────▶ the worker's command and variables
                 ◀───────────────────── connects again ────  the second socket: requests and replies
                 ◀══════════════════════ status, control ══  ══ becomes (exec) ══▶ keeper.py ── forks ──▶ serve.py

It starts nothing itself: launchers start processes. Both sides prove that they know the token of the job, which comes
in a variable and never as an argument, where other users could read it. The launcher may mix the output of ranks or
give them a terminal, so each rank gets a file of its own. Standard library only: it runs before any framework.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

ADDRESSES = "DEEPSTONE_JOIN"  # HOST:PORT of the controller, separated by commas; the first that answers is taken
TOKEN = "DEEPSTONE_TOKEN"
LAUNCHER = "DEEPSTONE_LAUNCHER"

# Which variables tell a process its rank, the number of ranks, and its place on its host, by launcher. A launcher may
# itself be started by one that stands below it.
PLACES = {
    "mpirun": [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ],
    "srun": [("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")],
    "torchrun": [("RANK", "WORLD_SIZE", "LOCAL_RANK")],
}
# What launchers set for the libraries that processes communicate with. Everything else comes from the controller:
# torchrun sets OMP_NUM_THREADS=1, for instance.
_OF_LAUNCHERS = (
    *("OMPI_", "PMIX_", "PMI_", "PRTE_", "OPAL_", "MPI_", "MPIR_", "HYDRA_", "HYDI_", "I_MPI_", "SLURM_", "SLURMD_"),
    *("MPICH_", "GMPI_", "UCX_", "FI_"),
)

_LIBRARIES = "LD_LIBRARY_PATH"
_ROOT = Path(__file__).resolve().parent.parent
_DIAL_S = 10.0
_MUSTER_S = 600.0  # the controller ends the muster long before
_LONGEST_LINE = 16 * 2**20
_SIOCGIFADDR = 0x8915
# The worker's side of Deepstone, which must be the same wherever a rank runs.
_WORKER_SIDE = ("keeper.py", "worker", "backends", "graph", "setups", "models", "algorithms", "trace")


class CannotJoin(Exception):
    """The reason, for the launcher's output and, if it is there, for the controller."""


def source_sha() -> str:
    """Of all files that a worker may import from Deepstone."""
    digest = hashlib.sha256()
    for name in _WORKER_SIDE:
        for path in sorted((_ROOT / name).rglob("*.py")) or [_ROOT / name]:
            digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def proof(token: str, side: str, nonce: str) -> str:
    """What only someone who has the token can say to a nonce. `side`: so that an answer cannot be sent back."""
    return hmac.new(token.encode(), f"{side} {nonce}".encode(), hashlib.sha256).hexdigest()


def read_line(connection: socket.socket) -> dict[str, Any]:
    """The next line, and not a byte more: what follows is for the keeper."""
    data = b""
    while not data.endswith(b"\n"):
        waiting = connection.recv(65536, socket.MSG_PEEK)
        if not waiting or len(data) > _LONGEST_LINE:
            raise ConnectionError("the other side went away")
        data += connection.recv(waiting.find(b"\n") + 1 or len(waiting))
    line = json.loads(data)
    if not isinstance(line, dict):
        raise ConnectionError("the other side does not speak as we do")
    return line  # pyright: ignore[reportUnknownVariableType]


def send_line(connection: socket.socket, line: dict[str, Any]) -> None:
    connection.sendall(json.dumps(line).encode() + b"\n")


def keep_alive(connection: socket.socket) -> None:
    """Notice within some ten seconds that a host is gone, without using its CPU; and send short lines at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 4), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def dial(addresses: str, token: str, greeting: dict[str, Any]) -> tuple[socket.socket, str]:
    """A connection to the controller that has heard who we are, and the nonce that the controller has to answer."""
    failures: list[str] = []
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), timeout=_DIAL_S)
            asked = str(read_line(connection)["nonce"])
            nonce = os.urandom(16).hex()
            send_line(connection, {**greeting, "proof": proof(token, "rank", asked), "nonce": nonce})
            connection.settimeout(_MUSTER_S)
            keep_alive(connection)
            return connection, nonce
        except (OSError, ValueError, KeyError) as error:
            failures.append(f"{address}: {error}")
    raise CannotJoin(f"the controller does not answer: {'; '.join(failures)}")


def place(launcher: str, variables: Any = os.environ) -> dict[str, int]:
    """Rank, world and local rank, as the launcher says."""
    for rank, world, local_rank in PLACES.get(launcher, []):
        if rank in variables and world in variables:
            return {
                "rank": int(variables[rank]),
                "world": int(variables[world]),
                "local_rank": int(variables.get(local_rank, 0)),
            }
    if launcher not in PLACES:
        raise CannotJoin(f"launcher {launcher}: PLACES in {Path(__file__).name} does not say how it tells ranks")
    raise CannotJoin(f"{launcher} says no rank: none of {[names[0] for names in PLACES[launcher]]} is set")


def card(launcher: str) -> dict[str, Any]:
    """Who and where this rank is."""
    return {
        **place(launcher),
        "host": socket.gethostname(),
        # A node of Slurm may share its machine with another one.
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        **clock(),
        "network": _link("/proc/self/ns/net"),
        "cpus": sorted(os.sched_getaffinity(0)),
        "python": ".".join(map(str, sys.version_info[:3])),
        "sha": source_sha(),
    }


def clock() -> dict[str, str]:
    """What tells monotonic clocks apart: each boot of a machine begins a new one, and a time namespace may shift it."""
    return {"boot_id": _read("/proc/sys/kernel/random/boot_id"), "time": _link("/proc/self/ns/time")}


def interface_of(address: str) -> str:
    """The network interface that has this address; nothing where that cannot be told."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def variables_of_worker(ordered: dict[str, str]) -> dict[str, str]:
    """The controller's, and those that the launcher set for its library. An MPI of its own adds where that lies."""
    of_launcher = {name: value for name, value in os.environ.items() if name.startswith(_OF_LAUNCHERS)}
    folders = [found[_LIBRARIES] for found in (ordered, os.environ) if found.get(_LIBRARIES)]
    libraries = {_LIBRARIES: ":".join(dict.fromkeys(":".join(folders).split(":")))} if folders else {}
    return {**of_launcher, **ordered, **libraries}


def become_keeper(control: socket.socket, talk: socket.socket, orders: dict[str, Any]) -> None:
    """Carry out the orders; returns only if that fails."""
    os.chdir(orders["folder"])
    output_fd = os.open(orders["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    environment_fd = os.memfd_create("environment", 0)
    with open(environment_fd, "wb", closefd=False) as file:
        for name, value in variables_of_worker(orders["variables"]).items():
            file.write(os.fsencode(f"{name}={value}") + b"\0")
    os.lseek(environment_fd, 0, os.SEEK_SET)
    # The keeper closes each descriptor by its number, so one that serves twice needs two.
    keeper_fds = [control.detach(), 0, environment_fd]
    keeper_fds[1] = os.dup(keeper_fds[0])
    worker_fds = [talk.detach(), 0]
    worker_fds[1] = os.dup(worker_fds[0])
    for descriptor in (*keeper_fds, *worker_fds):
        os.set_blocking(descriptor, True)
        os.set_inheritable(descriptor, True)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    keeper = str(_ROOT / "keeper.py")
    arguments = [*map(str, keeper_fds), ",".join(map(str, worker_fds)), *orders["command"], *map(str, worker_fds)]
    os.execv(sys.executable, [sys.executable, "-I", "-S", keeper, *arguments])


def main() -> None:
    token, addresses = os.environ[TOKEN], os.environ[ADDRESSES]
    about = card(os.environ[LAUNCHER])
    control, nonce = dial(addresses, token, {"for": "control", "card": about})
    # What the controller knows of us it knows by this connection; the interface is the one that leads to it.
    orders = read_line(control)
    if not hmac.compare_digest(str(orders.get("proof", "")), proof(token, "controller", nonce)):
        raise CannotJoin("what answered is not the controller of this job")
    if "refused" in orders:
        raise CannotJoin(orders["refused"])
    interface = interface_of(control.getsockname()[0])
    if interface and interface != "lo":
        for name in orders["interface_variables"]:
            orders["variables"].setdefault(name, interface)
    talk, _ = dial(addresses, token, {"for": "talk", "rank": about["rank"]})
    try:
        become_keeper(control, talk, orders)
    except OSError as error:
        raise CannotJoin(f"rank {about['rank']} on {about['host']}: {error}") from error


if __name__ == "__main__":
    try:
        main()
    except (CannotJoin, OSError, KeyError, ValueError) as error:
        sys.exit(f"deepstone join: {error}")
