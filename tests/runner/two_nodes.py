"""Two nodes on one machine: network namespaces joined by a bridge, each with a slurmd, and lines of a given speed.

this host ── bridge 10.77.N.254 ──┬── eth0 of namespace 0, 10.77.N.1: slurmd of node n0
             slurmctld, srun      └── eth0 of namespace 1, 10.77.N.2: slurmd of node n1, whose clock shows other seconds
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

PROGRAMS = ("ip", "tc", "nsenter", "munged", "slurmctld", "slurmd", "srun", "sinfo")
READY_S = 120.0
CLOCK_AHEAD_S = 5000


class TwoNodes:
    def __init__(self, folder: Path) -> None:
        number = os.getpid() % 200 + 1
        self.folder = folder
        self.subnet = f"10.77.{number}"
        self.bridge = f"dsb{number}"
        self.spaces = [f"ds{number}-n{node}" for node in range(2)]
        self.links = [f"dsv{number}-{node}" for node in range(2)]
        self.ports = free_ports(3)
        shifted = ["unshare", "--time", "--monotonic", str(CLOCK_AHEAD_S), "--fork", "--kill-child"]
        has_time = subprocess.run([*shifted, "true"], capture_output=True).returncode == 0
        self.other_clock = shifted if has_time else []

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    def set_speed(self, rate: str) -> None:
        """Of what each node sends, as in 100mbit."""
        for space in self.spaces:
            shaped = ("dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
            call("tc", "-n", space, "qdisc", "replace", *shaped)

    def cut(self, node: int) -> None:
        call("ip", "-n", self.spaces[node], "link", "set", "eth0", "down")

    def mend(self, node: int) -> None:
        call("ip", "-n", self.spaces[node], "link", "set", "eth0", "up")

    def sent_bytes(self, node: int) -> int:
        inside = f"--net=/var/run/netns/{self.spaces[node]}"
        told = subprocess.run(["nsenter", inside, "cat", "/proc/net/dev"], capture_output=True, text=True, check=True)
        line = next(line for line in told.stdout.splitlines() if line.strip().startswith("eth0:"))
        return int(line.partition(":")[2].split()[8])

    def make_network(self, undo: ExitStack) -> None:
        call("ip", "link", "add", self.bridge, "type", "bridge")
        undo.callback(call, "ip", "link", "del", self.bridge)
        call("ip", "addr", "add", f"{self.subnet}.254/24", "dev", self.bridge)
        call("ip", "link", "set", self.bridge, "up")
        for node, (space, link) in enumerate(zip(self.spaces, self.links, strict=True)):
            call("ip", "netns", "add", space)
            undo.callback(call, "ip", "netns", "del", space)
            call("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            call("ip", "link", "set", link, "master", self.bridge, "up")
            call("ip", "-n", space, "addr", "add", f"{self.subnet}.{node + 1}/24", "dev", "eth0")
            for each in ("eth0", "lo"):
                call("ip", "-n", space, "link", "set", each, "up")

    def start_slurm(self, undo: ExitStack) -> None:
        folder = self.folder
        for name in ("state", "tmp-n0", "tmp-n1"):  # PMIx wants a folder of its own for each node
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName=n{node} NodeHostname={host} NodeAddr={self.subnet}.{node + 1} Port={self.ports[node]} CPUs=2"
            for node in range(2)
        ]
        lines = [
            "ClusterName=two",
            f"SlurmctldHost={host}({self.subnet}.254)",
            f"SlurmctldPort={self.ports[2]}",
            *("SlurmUser=root", "AuthType=auth/munge", f"AuthInfo=socket={folder}/munge.sock"),
            *(f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool-%n", f"TmpFS={folder}/tmp-%n"),
            *(f"SlurmctldPidFile={folder}/ctld.pid", f"SlurmdPidFile={folder}/%n.pid"),
            *("ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SwitchType=switch/none"),
            *("MpiDefault=none", "ReturnToService=2", "SelectType=select/cons_tres"),
            *nodes,
            "PartitionName=p Nodes=n0,n1 Default=YES State=UP MaxTime=10",
        ]
        self.configuration.write_text("\n".join(lines) + "\n")
        munge = [f"--key-file={key}", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munge.pid"]
        munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
        self._start(undo, ["munged", "--foreground", "--force", *munge])
        self._start(undo, ["slurmctld", "-D"])
        for node, (space, shifted) in enumerate(zip(self.spaces, ([], self.other_clock), strict=True)):
            # Not `ip netns exec`, which mounts another /sys, without cgroups.
            inside = ["nsenter", f"--net=/var/run/netns/{space}", *shifted]
            self._start(undo, [*inside, "slurmd", "-D", "-N", f"n{node}"])
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            told = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env=self.variables, capture_output=True, text=True)
            if told.stdout.strip() == "idle 2":
                return
            time.sleep(0.2)
        pytest.fail(f"the two nodes did not come up: {told.stdout} {told.stderr}")

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def end_steps(self) -> None:
        """slurmd leaves a process behind where a line was cut before its step could be told as ended."""
        wanted = f"SLURM_CONF={self.configuration}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if int(path.parent.name) != os.getpid() and wanted in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def _start(self, undo: ExitStack, argv: Sequence[str]) -> None:
        log = undo.enter_context((self.folder / f"{argv[0]}-{argv[-1].strip('/').replace('/', '-')}.log").open("wb"))
        process = subprocess.Popen(argv, env=self.variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        undo.callback(process.wait, 60)
        undo.callback(terminate, process)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """With its children: unshare, which waits for one, heeds no such signal."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children():
            child.terminate()
    process.terminate()


def call(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to whoever asks for any, so that nobody gets one before Slurm listens."""
    found: list[int] = []
    for port in range(20000 + os.getpid() % 10000, 32000):
        with socket.socket() as one, suppress(OSError):
            one.bind(("", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no port is free")


def why_not() -> str:
    """Why there cannot be two nodes here, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: iproute2, munge, slurm-wlm)"
    with ExitStack() as undo:
        probe = f"ds-probe-{os.getpid()}"
        try:
            call("ip", "netns", "add", probe)
        except subprocess.CalledProcessError as error:
            return f"no network namespaces here: {error.stderr.strip()}"
        undo.callback(call, "ip", "netns", "del", probe)
    return ""


@contextmanager
def two_nodes(folder: Path) -> Generator[TwoNodes]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    nodes = TwoNodes(folder)
    with ExitStack() as undo:
        undo.callback(nodes.end_steps)
        nodes.make_network(undo)
        nodes.start_slurm(undo)
        with suppress(BaseException):
            nodes.set_speed("1gbit")
        yield nodes
