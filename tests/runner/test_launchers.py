"""Launchers that others wrote: their command lines, that each one really starts ranks, and what goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import MARK_VARIABLE, SOON_S, Script, carrying, fake_job, seconds_until_gone
from memory_kills import no_kill_meanwhile
from msgspec.structs import replace
from worker_trees import read_bytes

import deepstone
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError, UsageError
from deepstone.launchers import engine
from deepstone.launchers.engine import Engine, Place, engine_argv, find_engine
from deepstone.measure.effort import Effort
from deepstone.runner import muster
from deepstone.runner.new_job import make_job
from deepstone.runner.run import run_job
from deepstone.setups.axes import Value
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule
from deepstone.setups.world import World
from deepstone.store.store import Store
from deepstone.worker import join

QUICK = Effort(budget_s=0.3, timeout_s=120.0)
PACKAGE = Path(deepstone.__file__).parent


@pytest.fixture
def run(store: Store):
    def run(effort: Effort = QUICK, **axes: Value) -> Any:
        return store.get(store.add(run_job(fake_job(**{"processes": 2, **axes}), effort)).id).to_json()

    return run


@pytest.fixture
def own_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """A shell script in the place of mpirun. JOIN is the command that it has to start."""

    def make(text: str) -> Path:
        path = tmp_path / "launch"
        path.write_text(f"#!/bin/sh\nJOIN='{sys.executable} -I -S {PACKAGE}/worker/join.py'\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        found = Engine(name="mpirun", kind="openmpi", version="1.0", command=(str(path),))
        monkeypatch.setattr(muster, "find_engine", lambda *_: found)
        monkeypatch.setenv("PBS_JOBID", "1")  # as inside an allocation, of which it knows the nodes
        return path

    return make


def rank(number: int, of: int = 2, command: str = "$JOIN") -> str:
    return f"OMPI_COMM_WORLD_RANK={number} OMPI_COMM_WORLD_SIZE={of} OMPI_COMM_WORLD_LOCAL_RANK={number} {command} &"


class TestCommandLines:
    @pytest.mark.parametrize(
        ("kind", "place", "words"),
        [
            ("torchrun", Place(world=World(processes=2, nodes=1)), ["--nproc-per-node=2", "--no-python"]),
            (
                "openmpi",
                Place(world=World(processes=4, nodes=1), cores=2),
                ["-n 4", "--bind-to none", "--oversubscribe"],
            ),
            ("openmpi", Place(world=World(processes=2, nodes=1), cores=2, is_root=True), ["--allow-run-as-root"]),
            (
                "openmpi",
                Place(world=World(processes=4, nodes=2), hosts=("a", "b"), cores=4),
                ["--host a:2,b:2", "-x DEEPSTONE_TOKEN"],
            ),
            ("mpich", Place(world=World(processes=4, nodes=2), hosts=("a", "b")), ["-hosts a,b", "-ppn 2"]),
            ("intelmpi", Place(world=World(processes=2, nodes=1)), ["-n 2", "I_MPI_PIN 0"]),
            (
                "srun",
                Place(world=World(processes=4, nodes=2)),
                ["--nodes=2", "--ntasks=4", "--cpu-bind=none", "--mpi=none"],
            ),
            (
                "srun",
                Place(world=World(processes=2, nodes=2), library="Open MPI v5.0.11"),
                ["--mpi=pmix", "--ntasks-per-node=1"],
            ),
            ("srun", Place(world=World(processes=2, nodes=2), library="MPICH Version: 5.0.2"), ["--mpi=pmi2"]),
        ],
    )
    def test_they_start_as_many_ranks_and_bind_none(self, kind: str, place: Place, words: list[str]):
        name = kind if kind in ("torchrun", "srun") else "mpirun"
        argv = engine_argv(Engine(name=name, kind=kind, version="1", command=("/bin/it",)), place, "/bin/python")
        assert argv[0] == "/bin/it"
        assert argv[-4:-1] == ["/bin/python", "-I", "-S"]
        assert argv[-1].endswith("worker/join.py")
        for word in words:
            assert f" {word} " in f" {' '.join(argv)} "

    def test_a_token_is_never_an_argument(self):
        place = Place(world=World(processes=2, nodes=2), hosts=("a", "b"))
        for kind in ("openmpi", "mpich", "srun"):
            argv = engine_argv(Engine(name=kind, kind=kind, version="1", command=("/bin/it",)), place, "python")
            assert not any("TOKEN=" in word for word in argv)

    @pytest.mark.parametrize(
        ("axes", "told"),
        [
            ({"processes": 2, "nodes": 2, "launcher": "torchrun"}, "mpirun or srun"),
            ({"processes": 1, "launcher": "mpirun"}, "processes=2"),
            ({"processes": 2, "launcher": "torchrun", "transport": "mpi"}, "mpirun or srun"),
            ({"processes": 2, "transport": "mpi", "overlap": "on"}, "overlap"),
            ({"processes": 2, "transport": "mpi", "bucket": 4}, "bucket"),
        ],
    )
    def test_what_makes_no_sense_is_refused_before_anything_starts(self, axes: dict[str, Value], told: str):
        assert told in (broken_rule(complete({"framework": "torch", "device": "cpu", "batch": 8, **axes})) or "")


@pytest.mark.parametrize(("launcher", "kind"), [("torchrun", "torchrun"), ("mpirun", "openmpi")])
def test_each_launcher_really_starts_the_ranks(
    run: Any, script: Script, monkeypatch: pytest.MonkeyPatch, launcher: str, kind: str
):
    mark = f"launcher-{os.getpid()}-{launcher}"
    monkeypatch.setenv(MARK_VARIABLE, mark)
    script(noise=0.001)
    with taken(29400, 29500):  # those that torch's launcher takes by default
        record = run(launcher=launcher)
    assert record["outcome"] == "ok", record["failure"]
    parallel = record["parallel"]
    assert (parallel["world"], parallel["launcher"]["name"]) == (2, launcher)
    assert parallel["launcher"]["argv"]
    assert record["setup"]["effective"]["launcher"]["value"] == launcher
    # Not what the launcher sets: torchrun gives each process one thread.
    assert [each["threads"] for each in parallel["ranks"]] == [max(1, len(os.sched_getaffinity(0)) // 2)] * 2
    assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.02)
    assert seconds_until_gone(mark) < SOON_S
    assert find_engine(launcher, sys.executable).kind == kind


@contextmanager
def taken(*ports: int) -> Generator[None]:
    with ExitStack() as stack:
        for port in ports:
            with suppress(OSError):  # somebody else has it: as good
                stack.enter_context(socket.create_server(("", port)))
        yield


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("ssh: Could not resolve hostname a\n-----\nA daemon failed\n-----\n", "ssh: Could not resolve hostname a"),
        (
            "plm:ssh: Warning: setpgid failed: denied\nssh: Could not resolve a\nA daemon failed\n",
            "ssh: Could not resolve a",
        ),
        ("it starts\nWarning: setpgid failed\nit ends\n", "Warning: setpgid failed"),
        ("it starts\nit ends\n-----\n", "it ends"),
        ("-----\n", ""),
    ],
)
def test_the_line_that_says_most(said: str, line: str):
    assert muster.telling_line(said) == line


@pytest.mark.parametrize("launcher", ["local", "mpirun"])
def test_an_interface_that_is_not_there(run: Any, launcher: str):
    with pytest.raises(MissingError, match="interface=eth99"):
        run(launcher=launcher, interface="eth99")


def test_a_job_on_hosts_tells_them_in_its_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSTONE_HOSTS", "a,b")
    loaded = fake_job().model
    for nodes, words in ((2, ("--hosts", "a,b")), (1, ())):
        request = complete({"framework": "fake", "processes": 2, "nodes": nodes, "batch": 8})
        job = make_job(loaded, request, fake_job().machine, ("deepstone", "run", "small"))
        assert job.command == ("deepstone", "run", "small", *words)
        assert job.hosts == tuple(words[1].split(",") if words else ())


def test_hosts_are_as_many_as_nodes(monkeypatch: pytest.MonkeyPatch):
    """Of more, the first ones: `scale nodes=2,4 --hosts a,b,c,d` names them once."""
    monkeypatch.setenv("DEEPSTONE_HOSTS", "a,b,c")
    job = fake_job()
    request = complete({"framework": "fake", "processes": 2, "nodes": 2, "batch": 8})
    assert make_job(job.model, request, job.machine, ("deepstone", "run", "small")).hosts == ("a", "b")
    with pytest.raises(UsageError, match="names 3, and nodes=4 needs 4"):
        make_job(job.model, complete({**request, "processes": 4, "nodes": 4}), job.machine, ())
    monkeypatch.setenv("DEEPSTONE_HOSTS", "a,a")
    with pytest.raises(UsageError, match="--hosts a,a: names 1, and nodes=2 needs 2"):
        make_job(job.model, request, job.machine, ())


class TestMuster:
    def test_a_launcher_that_fails_at_once_is_told_with_its_own_words(self, run: Any, own_launcher: Any):
        own_launcher("echo 'it: no such partition' >&2; exit 3")
        begin_s = time.monotonic()
        record = run(launcher="mpirun")
        assert time.monotonic() - begin_s < muster.MUSTER_S
        assert record["outcome"] == "crashed"
        assert "0 of 2 ranks" in record["failure"]["reason"]
        assert "no such partition" in record["failure"]["reason"]
        assert "doctor --launchers" in record["failure"]["reason"]

    def test_too_few_ranks(self, run: Any, own_launcher: Any, monkeypatch: pytest.MonkeyPatch):
        own_launcher(f"{rank(0)}\nwait\n")
        for patience_s in (3.0, 12.0, 48.0):  # on a busy machine the one rank needs longer
            monkeypatch.setattr(muster, "MUSTER_S", patience_s)
            record = run(launcher="mpirun")
            if "0 of 2 ranks" not in record["failure"]["reason"]:
                break
        assert record["outcome"] == "crashed"
        assert "1 of 2 ranks" in record["failure"]["reason"]

    @pytest.mark.parametrize(
        ("ranks", "told"),
        [
            ((rank(0, of=1), rank(0, of=1)), "world of size 1; asked for 2"),
            ((rank(0), rank(0)), "rank 0 twice"),
            ((rank(0), rank(3, of=2)), "rank 3 of a world of size 2"),
        ],
    )
    def test_a_world_that_was_not_asked_for(self, run: Any, own_launcher: Any, ranks: tuple[str, str], told: str):
        own_launcher("\n".join([*ranks, "wait"]))
        with pytest.raises(MissingError, match=told):
            run(launcher="mpirun")

    def test_other_nodes_than_asked_for(self, run: Any, own_launcher: Any):
        own_launcher("\n".join([rank(0), rank(1), "wait"]))
        with pytest.raises(MissingError, match=r"on 1 nodes .* 2 were asked for"):
            run(launcher="mpirun", nodes=2)

    def test_nodes_that_share_a_machine_are_told(self, run: Any, own_launcher: Any, script: Script):
        script(noise=0.001)
        ranks = [f"SLURMD_NODENAME=n{number} {rank(number)}" for number in range(2)]
        own_launcher("\n".join([*ranks, "wait"]))
        record = run(launcher="mpirun", nodes=2)
        assert record["outcome"] == "ok", record["failure"]
        assert [each["node"] for each in record["parallel"]["ranks"]] == [0, 1]
        assert "emulated_nodes" in {doubt["code"] for doubt in record["doubts"]}

    @pytest.mark.slow
    def test_what_goes_around_the_network_is_told(self, own_launcher: Any):
        """Two nodes that are one machine: no interface between them carries what torch exchanges."""
        ranks = [f"SLURMD_NODENAME=n{number} {rank(number)}" for number in range(2)]
        own_launcher("\n".join([*ranks, "wait"]))
        axes = {"framework": "torch", "device": "cpu", "threads": 1, "processes": 2, "nodes": 2, "launcher": "mpirun"}
        job = replace(fake_job(), request=complete({"batch": 8, **axes}), environment=find_environment("torch"))
        record: Any = run_job(job, QUICK).to_json()
        assert record["outcome"] == "ok", record["failure"]
        assert record["parallel"]["wire"]["ratio"] < 0.9
        assert {"around_the_network", "emulated_nodes"} <= {doubt["code"] for doubt in record["doubts"]}

    def test_mpirun_and_library_of_two_kinds(self, run: Any, own_launcher: Any, script: Script):
        """As MPICH's library under the mpirun of Open MPI: every process finds itself alone."""
        script(world=1, library="MPICH Version: 5.0.1")
        own_launcher("\n".join([rank(0), rank(1), "wait"]))
        told = (
            r"world of size 1, asked for 2: mpirun \(openmpi 1.0\) and the library MPICH Version: 5.0.1 are not of the"
        )
        with pytest.raises(MissingError, match=told) as caught:
            run(launcher="mpirun")
        assert caught.value.exit_code == 4

    @pytest.mark.parametrize(
        ("kind", "alone", "under", "told"),
        [
            ("openmpi", "Open MPI v5.0.11", "", ""),
            (
                "openmpi",
                "MPICH Version: 5.0.2",
                "MPICH Version: 5.0.2",
                r"openmpi 1.0\) and the library MPICH Version: 5.0.2",
            ),
            ("openmpi", "MPICH Version: 5.0.2", "Open MPI v5.0.11", ""),  # it sets the path to its own
            ("mpich", "Intel(R) MPI Library 2021.18.1", "", ""),
            ("intelmpi", "MPICH Version: 5.0.2", "", ""),
            ("mpich", "Open MPI v4.1.4", "Open MPI v4.1.4", "world of size 1, asked for 2"),
            ("mpich", "", "", ""),  # the worker tells what is missing
            ("srun", "MPICH Version: 5.0.2", "", ""),
        ],
    )
    def test_a_library_that_mpirun_cannot_start(
        self, monkeypatch: pytest.MonkeyPatch, kind: str, alone: str, under: str, told: str
    ):
        monkeypatch.setattr(engine, "mpi_library", lambda _python, launcher=None: under if launcher else alone)
        found = Engine(name="mpirun", kind=kind, version="1.0", command=("/bin/it",))
        with pytest.raises(MissingError, match=told) if told else nullcontext():
            assert engine.fitting_mpi(found, "python") == (alone if not under or told else under)

    def test_one_file_that_differs(self, run: Any, own_launcher: Any, tmp_path: Path):
        other = tmp_path / "other" / "deepstone"
        shutil.copytree(PACKAGE, other, ignore=shutil.ignore_patterns("__pycache__"))
        with (other / "backends" / "base.py").open("a") as file:
            file.write("# changed\n")
        theirs = f"{sys.executable} -I -S {other}/worker/join.py"
        own_launcher("\n".join([rank(0), rank(1, command=theirs), "wait"]))
        with pytest.raises(MissingError, match=r"rank 1 on .* other files of Deepstone"):
            run(launcher="mpirun")

    def test_connections_of_others_are_dropped_and_harm_nothing(self, run: Any, own_launcher: Any, script: Script):
        script(noise=0.001)
        visitors = (
            f"{sys.executable} - <<'END'\n"
            "import os, socket\n"
            "host, _, port = os.environ['DEEPSTONE_JOIN'].partition(',')[0].rpartition(':')\n"
            "silent = socket.create_connection((host, int(port)))\n"
            "rude = socket.create_connection((host, int(port))); rude.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
            "END\n"
            f"DEEPSTONE_TOKEN=guessed {rank(1)}\n"
        )
        own_launcher("\n".join([visitors, rank(0), rank(1), "wait"]))
        assert run(launcher="mpirun")["outcome"] == "ok"

    def test_a_controller_that_does_not_know_the_token_gives_no_orders(self, tmp_path: Path):
        """Else whoever takes the port could have a rank start anything."""
        harm = tmp_path / "harm"

        def pretend(server: socket.socket) -> None:
            connection, _ = server.accept()
            with connection:
                join.send_line(connection, {"nonce": "1"})
                join.read_line(connection)
                orders = {"command": ["/bin/touch", str(harm)], "variables": {}, "interface_variables": []}
                orders |= {"folder": str(tmp_path), "output": str(tmp_path / "output")}
                join.send_line(connection, {**orders, "proof": join.proof("another token", "controller", "1")})

        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=pretend, args=(server,))
            thread.start()
            where = {join.ADDRESSES: f"127.0.0.1:{server.getsockname()[1]}", join.TOKEN: "0" * 64}
            rank_of = {join.LAUNCHER: "mpirun", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
            argv = [sys.executable, "-I", "-S", f"{PACKAGE}/worker/join.py"]
            done = subprocess.run(argv, env={**where, **rank_of}, capture_output=True, text=True, check=False)
            thread.join()
        assert done.returncode == 1
        assert "not the controller of this job" in done.stderr
        assert not harm.exists()


class TestFaults:
    @pytest.mark.parametrize(
        ("launcher", "victim", "told"),
        [
            ("mpirun", "serve.py", r"rank [01]: the worker was ended by SIGKILL"),
            ("mpirun", "run", "mpirun was ended by SIGKILL, and its ranks with it"),  # mpirun becomes prterun
            pytest.param("torchrun", "torch.distributed.run", "torchrun was ended by SIGKILL", marks=pytest.mark.deep),
        ],
    )
    @no_kill_meanwhile()
    def test_nothing_is_left_when_one_is_killed(
        self, run: Any, script: Script, monkeypatch: pytest.MonkeyPatch, launcher: str, victim: str, told: str
    ):
        mark = f"launched-{os.getpid()}-{launcher}-{victim}"
        monkeypatch.setenv(MARK_VARIABLE, mark)
        script(sleep=True, step_s=0.02)
        attacker = threading.Thread(target=kill_one, args=(mark, victim.encode()))
        attacker.start()
        record = run(Effort(budget_s=30.0, timeout_s=100.0), launcher=launcher)
        attacker.join()
        assert record["outcome"] == "crashed"
        assert re.match(told, record["failure"]["reason"])
        assert seconds_until_gone(mark) < SOON_S


def kill_one(mark: str, program: bytes) -> None:
    """Once both workers have measured for a while."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        running = {pid: read_bytes(Path(f"/proc/{pid}/cmdline")).split(b"\0") for pid in carrying(mark)}
        if sum(b"serve.py" in b" ".join(words[:2]) for words in running.values()) == 2:
            time.sleep(2.0)
            pids = [pid for pid, words in running.items() if any(word.endswith(program) for word in words[:3])]
            os.kill(pids[-1], signal.SIGKILL)
            return
        time.sleep(0.05)
