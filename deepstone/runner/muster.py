"""Has a launcher start the ranks of a job, waits until all are there, and gives each one its orders.

worker/join.py draws the conversation. The controller waits for exactly as many cards as the job has processes, checks
that they are of one job, one Deepstone and as many nodes as were asked for, and only then lets any rank start its
worker. So a launcher that starts too few, twice rank 0, or nothing at all is one clear line and no wrong number.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import psutil
from msgspec import Struct

from deepstone.errors import DeepstoneError, MissingError, RefusedInputError
from deepstone.launchers.engine import Engine, Place, engine_argv, engine_variables, find_engine, fitting_mpi
from deepstone.launchers.local import worker_argv
from deepstone.launchers.nodes import check_nodes
from deepstone.results import codec
from deepstone.results.parallel import HostFacts
from deepstone.results.parts import Count, Part, Positive, SomeText
from deepstone.runner.conversation import Conversation, JobFailed, cache_folder, variables_of
from deepstone.runner.job import Job
from deepstone.runner.scratch import scratch_folder
from deepstone.runner.worker_process import WorkerProcess
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World
from deepstone.supervise import ProcessTimeout, Supervised, make_harmless
from deepstone.worker import join

# All ranks must be there after this time. Torch's launcher takes seconds to import, Slurm may have to find nodes.
MUSTER_S: Final = 120.0
_HANDSHAKE_S: Final = 10.0
_LOOK_S: Final = 0.1
_LOOPBACK: Final = "127.0.0.1"
_UNKNOWN: Final = "unknown"
_INTERFACE_VARIABLES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_TAIL: Final = 2000
_FAILURE: Final = re.compile(
    r"error|fatal|fail|cannot|can't|could ?n[o']t|unable|invalid|denied|refused|no such|not found", re.IGNORECASE
)


class Card(Part, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Who a rank is and where it runs, as it says itself; another version of Deepstone may say more or less. `time` and
    `network`: namespaces."""

    rank: Count
    world: Positive
    local_rank: Count
    host: SomeText
    node: SomeText
    boot_id: str
    time: str = ""
    network: str
    cpus: list[Count]
    python: SomeText
    sha: SomeText

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells nodes apart, also those that share a machine."""
        return self.node, self.boot_id, self.network

    @property
    def shares_our_clock(self) -> bool:
        return bool(self.boot_id) and {"boot_id": self.boot_id, "time": self.time} == join.clock()


class Mustered(Struct, frozen=True, kw_only=True):
    """All ranks, in order, each with a worker of its own."""

    ranks: list[Conversation]
    cards: list[Card]
    engine: Engine
    argv: list[str]
    addresses: list[str]  # of each rank's host, for the others
    launcher: Supervised

    def launcher_killed(self) -> str:
        """The signal that ended the launcher, a moment ago at most; nothing if none did."""
        with suppress(ProcessTimeout):
            return self.launcher.wait(deadline_s=time.monotonic() + _LOOK_S).signal or ""
        return ""

    @property
    def nodes(self) -> list[int]:
        """The number of the node of each rank."""
        order = list(dict.fromkeys(card.place for card in self.cards))
        return [order.index(card.place) for card in self.cards]

    @property
    def hosts(self) -> list[HostFacts]:
        """By node. Those with one boot id share a machine."""
        boots = list(dict.fromkeys(card.boot_id for card in self.cards))
        found: dict[int, list[Card]] = {}
        for node, card in zip(self.nodes, self.cards, strict=True):
            found.setdefault(node, []).append(card)
        return [
            HostFacts(
                node=node,
                host=cards[0].host,
                nodename=cards[0].node,
                machine=boots.index(cards[0].boot_id),
                cores=max(1, len(cards[0].cpus)),
                ranks=[card.rank for card in cards],
            )
            for node, cards in found.items()
        ]

    @property
    def are_emulated(self) -> bool:
        """Whether several nodes share one machine."""
        boots = {card.place: card.boot_id for card in self.cards}
        return len(set(boots.values())) < len(boots)


class _Arrival(Struct, frozen=True, kw_only=True):
    """A connection that has proven to be of this job. `nonce` is for us to answer."""

    connection: socket.socket
    peer: str
    nonce: str
    card: Card | None  # else the second connection, of this rank
    rank: int


@contextmanager
def mustered(job: Job, rank_jobs: Sequence[Job], *, timeout_s: float) -> Generator[Mustered, None, None]:
    """Leaving the context ends all ranks and the launcher. JobFailed, or MissingError if a launcher is missing."""
    world = World.of(job.request)
    engine, library = find_launcher(job)
    deadline_s = time.monotonic() + timeout_s
    place = Place(
        world=world,
        hosts=job.hosts,
        library=library,
        cores=job.machine.usable_cores,
        is_root=os.geteuid() == 0,
    )
    argv = engine_argv(engine, place, sys.executable)
    with ExitStack() as stack:
        port = stack.enter_context(_Port(here=world.nodes == 1, interface=str(job.request["interface"])))
        variables = {
            **os.environ,
            join.ADDRESSES: port.addresses,
            join.TOKEN: port.token,
            join.LAUNCHER: engine.name,
            **engine_variables(engine, os.environ),
        }
        launcher = stack.enter_context(_started(argv, variables))
        advice = _advice(engine, world, job.hosts)
        soon_s = min(deadline_s, time.monotonic() + MUSTER_S)
        muster = _Muster(port=port, launcher=launcher, engine=engine, world=world, deadline_s=soon_s, advice=advice)
        arrived = muster.all_cards()
        within = None if world.nodes == 1 else cache_folder() / "scratch"
        folders = [stack.enter_context(scratch_folder(within)) for _ in arrived]
        for arrival, each, folder in zip(arrived, rank_jobs, folders, strict=True):
            port.send_orders(arrival, _orders(each, folder, over_network=world.nodes > 1))
        talks = muster.all_talks()
        ranks: list[Conversation] = []
        for arrival, talk, each, folder in zip(arrived, talks, rank_jobs, folders, strict=True):
            process = muster.adopted(arrival, talk, each)
            worker = stack.enter_context(WorkerProcess(process, folder / "output.txt"))
            ranks.append(Conversation(worker, each, scratch=folder, deadline_s=deadline_s))
        cards = [arrival.card for arrival in arrived if arrival.card is not None]
        addresses = [_LOOPBACK if world.nodes == 1 else arrival.peer for arrival in arrived]
        yield Mustered(ranks=ranks, cards=cards, engine=engine, argv=argv, addresses=addresses, launcher=launcher)


def find_launcher(job: Job) -> tuple[Engine, str]:
    """The launcher, and the MPI by which its processes communicate, if they do. MissingError says how to get one, also
    where it is known beforehand that it reaches fewer nodes than the job needs."""
    world, python = World.of(job.request), str(job.environment.program)
    engine = find_engine(launcher_of(job), python)
    if world.nodes > 1 and not job.hosts:
        check_nodes(engine, world.nodes, os.environ)
    library = fitting_mpi(engine, python, world.started) or _UNKNOWN if job.request["transport"] == "mpi" else ""
    return engine, library


def launcher_of(job: Job) -> str:
    """`auto`: Deepstone itself on this machine; MPI and several nodes need a launcher."""
    asked = str(job.request["launcher"])
    if asked != AUTO:
        return asked
    if World.of(job.request).nodes > 1:
        return "srun" if "SLURM_JOB_ID" in os.environ and not job.hosts else "mpirun"
    return "mpirun" if job.request["transport"] == "mpi" else "local"


def _advice(engine: Engine, world: World, hosts: Sequence[str]) -> str:
    """What to do when not all ranks come."""
    if engine.name == "srun":
        return "`sinfo` shows which nodes are there, and `squeue` what a job waits for"
    if world.nodes > 1 and hosts:
        ways = " && ".join(f"ssh {host} true" for host in hosts[:2])
        return f"mpirun must reach every host without a password: try `{ways}`"
    return "`deepstone doctor --launchers` tries every launcher with two processes"


def _started(argv: Sequence[str], variables: Mapping[str, str]) -> Supervised:
    try:
        return Supervised.start(argv, env=variables, cwd=Path.cwd())
    except OSError as error:
        raise MissingError(f"cannot start {argv[0]}: {error.strerror}") from error


def _orders(job: Job, folder: Path, *, over_network: bool) -> dict[str, Any]:
    environment = job.environment
    return {
        "command": worker_argv(environment.command, environment.framework, environment.version),
        "variables": variables_of(job),
        "folder": str(folder),
        "output": str(folder / "output.txt"),
        "interface_variables": _INTERFACE_VARIABLES if over_network else (),
    }


class _Port:
    """Where ranks find the controller. Connections that cannot prove that they are of this job are dropped."""

    def __init__(self, *, here: bool, interface: str) -> None:
        self.token = secrets.token_hex(32)
        self.arrivals: SimpleQueue[_Arrival] = SimpleQueue()
        self._connections: list[socket.socket] = []  # all that ever came; those that a rank keeps are detached
        self._server = socket.create_server((_LOOPBACK if here else "", 0), backlog=1024)
        number = self._server.getsockname()[1]
        hosts = [_LOOPBACK] if here else _own_addresses(interface)
        self.addresses = ",".join(f"{host}:{number}" for host in hosts)

    def __enter__(self) -> _Port:
        threading.Thread(target=self._accept, name="muster", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._server.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            # One that says nothing must not keep the others waiting.
            threading.Thread(target=self._greet, args=(connection, str(peer[0])), daemon=True).start()

    def _greet(self, connection: socket.socket, peer: str) -> None:
        nonce = secrets.token_hex(16)
        try:
            connection.settimeout(_HANDSHAKE_S)
            join.send_line(connection, {"nonce": nonce})
            greeting = join.read_line(connection)
            if not compare_digest(str(greeting.get("proof")), join.proof(self.token, "rank", nonce)):
                raise ConnectionError("a wrong proof")
            card = codec.convert(greeting["card"], Card) if "card" in greeting else None
            rank = card.rank if card is not None else int(greeting["rank"])
            connection.settimeout(None)
            join.keep_alive(connection)
            own = str(greeting["nonce"])
            self.arrivals.put(_Arrival(connection=connection, peer=peer, nonce=own, card=card, rank=rank))
        except (OSError, ValueError, KeyError, TypeError, RefusedInputError):
            connection.close()

    def send_orders(self, arrival: _Arrival, orders: dict[str, Any]) -> None:
        with suppress(OSError):  # one that is gone is found when it does not come back
            join.send_line(arrival.connection, {**orders, "proof": join.proof(self.token, "controller", arrival.nonce)})


@dataclass(kw_only=True)
class _Muster:
    """Waits for all ranks, and watches the launcher meanwhile: one that fails at once must not cost two minutes."""

    port: _Port
    launcher: Supervised
    engine: Engine
    world: World
    deadline_s: float
    advice: str
    said: bytes = b""
    sha: str = field(default_factory=join.source_sha)

    def all_cards(self) -> list[_Arrival]:
        arrived: dict[int, _Arrival] = {}
        try:
            while len(arrived) < self.world.started:
                arrival = self._next(f"{len(arrived)} of {self.world.started} ranks")
                if arrival.card is None or arrival.rank in arrived:
                    raise MissingError(f"{self.engine.name} started rank {arrival.rank} twice")
                arrived[arrival.rank] = arrival
                self._check(arrival.card)
            self._check_nodes([arrival.card for arrival in arrived.values() if arrival.card is not None])
        except MissingError as error:
            for arrival in arrived.values():
                self.port.send_orders(arrival, {"refused": str(error)})
            raise
        return [arrived[rank] for rank in sorted(arrived)]

    def all_talks(self) -> list[_Arrival]:
        arrived: dict[int, _Arrival] = {}
        while len(arrived) < self.world.started:
            arrival = self._next(f"the workers of {len(arrived)} of {self.world.started} ranks")
            if arrival.card is None:
                arrived[arrival.rank] = arrival
        return [arrived[rank] for rank in sorted(arrived)]

    def adopted(self, control: _Arrival, talk: _Arrival, job: Job) -> Supervised:
        executable = job.environment.command[0]
        try:
            return Supervised.adopt(control.connection, talk.connection, executable, deadline_s=self.deadline_s)
        except OSError as error:
            raise MissingError(f"rank {control.rank}: cannot start {executable}: {error.strerror}") from error
        except (DeepstoneError, ProcessTimeout) as error:
            raise self._failed(f"rank {control.rank}: its worker did not start: {error}") from error

    def _next(self, so_far: str) -> _Arrival:
        while True:
            try:
                return self.port.arrivals.get(timeout=_LOOK_S)
            except Empty:
                pass
            if not self._launcher_runs():
                raise self._failed(f"{self.engine.name} ended when {so_far} were there")
            if time.monotonic() >= self.deadline_s:
                raise self._failed(f"only {so_far} were there in the time that {self.engine.name} had to start them")

    def _launcher_runs(self) -> bool:
        try:
            is_open = self.launcher.read(time.monotonic())
        except ProcessTimeout:
            return True
        self.said += self.launcher.stream.take_all()
        return is_open

    def _failed(self, reason: str) -> JobFailed:
        with suppress(ProcessTimeout):
            while self.launcher.read(time.monotonic() + _LOOK_S):
                self.said += self.launcher.stream.take_all()
        self.said += self.launcher.stream.take_all()
        said = make_harmless(self.said.decode("utf-8", "replace")).strip()[-_TAIL:]
        words = telling_line(said)
        told = f"{reason}{words and ': '}{words[:300]}; {self.advice}"
        return JobFailed("crashed", told, stage="muster", stderr_tail=said)

    def _check(self, card: Card) -> None:
        if card.world != self.world.started or card.rank >= card.world:
            raise MissingError(
                f"{self.engine.name} {self.engine.version} made rank {card.rank} of a world of size {card.world}; "
                f"asked for {self.world.started}; {self.advice}"
            )
        if card.sha != self.sha:
            raise MissingError(
                f"rank {card.rank} on {card.host} has other files of Deepstone than this machine; install the same "
                "version there"
            )

    def _check_nodes(self, cards: Sequence[Card]) -> None:
        found = {card.place for card in cards}
        if len(found) != self.world.nodes:
            names = ", ".join(sorted({card.node for card in cards}))
            raise MissingError(
                f"{self.engine.name} put the processes on {len(found)} nodes ({names}), and {self.world.nodes} were "
                "asked for; name other hosts with --hosts, or ask for as many nodes as there are with nodes="
            )


def telling_line(said: str) -> str:
    """The line of a launcher's output that says most: the first that tells of a failure, before those that only warn of
    one, else the last with words."""
    lines = [line.strip() for line in said.splitlines() if re.search(r"\w", line)]
    failures = sorted((line for line in lines if _FAILURE.search(line)), key=lambda line: "warning" in line.lower())
    return failures[0] if failures else lines[-1] if lines else ""


def check_interface(job: Job) -> None:
    """MissingError where this host lacks the interface that is asked for."""
    _own_addresses(str(job.request["interface"]))


def _own_addresses(interface: str) -> list[str]:
    """This host's IPv4 addresses as others may reach them; loopback last, for ranks that share this machine."""
    found = {
        name: [each.address for each in addresses if each.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
    }
    if interface != AUTO:
        if not found.get(interface):
            raise MissingError(f"interface={interface}: this host has no such interface with an IPv4 address")
        return found[interface]
    others = [address for several in found.values() for address in several if not address.startswith("127.")]
    return [*others, _LOOPBACK]
