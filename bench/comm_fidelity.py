"""Does `deepstone comm` measure what a bare loop of the same engine measures? Both in the same processes, in turns.

    python bench/comm_fidelity.py                                       gloo and MPI, two processes
    python bench/comm_fidelity.py --processes 2,4,16 --rounds 60 -o bench/results/comm-fidelity.json
    python bench/comm_fidelity.py --transports nccl --device gpu        where there are as many GPUs

All-reduce. The ways: `bare`, a loop over the engine's own call (dist.all_reduce, MPI's Allreduce) on a buffer of its
own, with a look at the clock after every millisecond of calls; `comm`, the block of worker/serve.py with the program
that `deepstone comm` times. Both begin with a barrier and one call that is not timed. `whole`: all calls of a round,
the slowest process; `reported`: the median of its samples, which is what the result says, against that of
the bare loop. Ratios are to `bare` of the same round, with a bootstrap interval over rounds; `again` is bare a second
time: what the method itself cannot tell apart.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "bench"))

from fidelity import over_rounds  # noqa: E402

SIZES = "1024,65536,1048576,26214400"
BOUND = 0.10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transports", default="gloo,mpi")
    parser.add_argument("--processes", default="2")
    parser.add_argument("--sizes", default=SIZES, help="bytes")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--round-s", type=float, default=0.05, help="length of a way's turn")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--into", help=argparse.SUPPRESS)  # we are one of the processes
    options = parser.parse_args()
    if options.into:
        as_rank(options)
        return
    results: list[dict[str, Any]] = []
    for transport in options.transports.split(","):
        for processes in map(int, options.processes.split(",")):
            for found in launched(transport, processes, options):
                results.append({"transport": transport, "processes": processes, **found})
                print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


def launched(transport: str, processes: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "result.json"
        words = ["--transports", transport, "--sizes", options.sizes, "--device", options.device, "--into", str(into)]
        words += ["--rounds", str(options.rounds), "--round-s", str(options.round_s)]
        command = [sys.executable, __file__, *words]
        threads = max(1, len(os.sched_getaffinity(0)) // processes)
        variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "COMM_PORT": str(free_port())}
        if transport == "mpi":
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            mpirun = str(Path(sys.executable).with_name("mpirun"))
            found = mpirun if os.access(mpirun, os.X_OK) else "mpirun"
            beyond = ["--oversubscribe"] if processes > len(os.sched_getaffinity(0)) else []
            launcher = [found, *root, *beyond, "--bind-to", "none", "-n", str(processes)]
            subprocess.run([*launcher, *command], check=True, env=variables)
        else:
            ranks = [
                subprocess.Popen(command, env={**variables, "RANK": str(rank), "WORLD_SIZE": str(processes)})
                for rank in range(processes)
            ]
            codes = [rank.wait() for rank in ranks]
            assert not any(codes), codes
        return json.loads(into.read_text())


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# --- in one of the processes ---


def as_rank(options: argparse.Namespace) -> None:
    from deepstone.backends.torch.communicator import MpiCommunicator

    transport, device = options.transports, options.device
    worker, communicator = started(transport, device)
    if isinstance(communicator, MpiCommunicator):
        gather: Callable[[Any], list[Any]] = communicator._world.allgather
    else:
        gather = gathered
    results = [one_size(worker, communicator, gather, int(size), options) for size in options.sizes.split(",")]
    if communicator.rank == 0:
        Path(options.into).write_text(json.dumps(results))
    communicator.barrier()
    communicator.close()


def gathered(value: Any) -> list[Any]:
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def started(transport: str, device: str) -> tuple[Any, Any]:
    """The worker as it is once its processes have met and its network is built."""
    import torch
    from torch.distributed import TCPStore

    from deepstone.backends import base
    from deepstone.backends.torch.backend import TorchBackend
    from deepstone.backends.torch.communicator import MpiCommunicator, TorchCommunicator
    from deepstone.graph.weights import initial_parameters, synthetic_batch
    from deepstone.runner.examine import probe_model
    from deepstone.setups.request import complete
    from deepstone.worker.serve import Worker

    if transport == "mpi":
        communicator: Any = MpiCommunicator()
        rank, world = communicator.rank, communicator.world
    else:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = f"gpu:{rank}" if device == "gpu" else "cpu"
    threads = torch.get_num_threads()
    request = dict(
        complete({"device": where, "processes": world, "transport": transport, "overlap": "off", "threads": threads})
    )
    group = base.Group(rank, world, rank, [], request, "worker", rank, world)
    if transport != "mpi":
        store = TCPStore("127.0.0.1", int(os.environ["COMM_PORT"]), world, rank == 0)
        communicator = TorchCommunicator(group, store)
    graph = probe_model().graph
    images, labels = synthetic_batch(graph, 16, 0)
    worker = Worker("")
    worker._backend = backend = TorchBackend()
    worker._group = group
    backend._communicator = communicator
    weights = initial_parameters(graph, 0)
    backend.build(base.Job(graph.to_worker_json(), weights, images, labels, {**request, "batch": 16}, "", group))
    return worker, communicator


def one_size(
    worker: Any, communicator: Any, gather: Callable[[Any], list[Any]], size: int, options: argparse.Namespace
) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    from deepstone.backends.torch.communicator import MpiCommunicator
    from deepstone.runner.replies import BlockTimes
    from deepstone.runner.team import of_the_job

    backend = worker._backend
    buffer = torch.ones(size // 4, device=backend._settings.device)
    prepared = backend.transfer("allreduce", size)
    assert not prepared["wrong"], prepared
    array = buffer.numpy() if isinstance(communicator, MpiCommunicator) else None

    def bare(samples: int, calls: int) -> list[float]:
        """What one writes by hand: the loop of each engine has nothing in it but its call."""
        communicator.barrier()
        stamps = [0.0] * (samples + 1)
        if array is not None:
            reduce, in_place = communicator._world.Allreduce, communicator._mpi.IN_PLACE
            reduce(in_place, array)
            stamps[0] = time.perf_counter()
            for sample in range(1, samples + 1):
                for _ in range(calls):
                    reduce(in_place, array)
                stamps[sample] = time.perf_counter()
        else:
            dist.all_reduce(buffer)
            backend.synchronize()
            stamps[0] = time.perf_counter()
            for sample in range(1, samples + 1):
                for _ in range(calls):
                    dist.all_reduce(buffer)
                backend.synchronize()
                stamps[sample] = time.perf_counter()
        return stamps

    def of_job(ranks: list[list[float]], calls: int) -> list[float]:
        """A sample ends when the last process has ended it; all read one clock."""
        latest = [max(each) for each in zip(*ranks, strict=True)]
        return [(end - begin) / calls for begin, end in pairwise(latest)]

    estimate_s = max(1e-7, min(of_job(gather(bare(20, 5)), 5)))
    calls = max(1, int(np.ceil(1e-3 / estimate_s)))
    samples = max(1, round(options.round_s / estimate_s / calls))
    asked = {"program": prepared["program"], "samples": samples, "steps_per_sample": calls, "lead": 1}
    times: dict[str, list[Any]] = {"bare": [], "again": [], "comm": []}
    order = random.Random(0)  # the same in all processes
    bare(samples, calls)
    for _ in range(options.rounds):
        for name in order.sample(list(times), len(times)):
            times[name].append(worker._block(asked) if name == "comm" else bare(samples, calls))
    of_ranks = gather(times)
    job: dict[str, list[list[float]]] = {
        name: [of_job(list(each), calls) for each in zip(*(rank[name] for rank in of_ranks), strict=True)]
        for name in ("bare", "again")
    }
    job["comm"] = [
        of_the_job(
            [BlockTimes(**{name: block[name] for name in BlockTimes.__struct_fields__}) for block in each]
        ).step_s
        for each in zip(*(rank["comm"] for rank in of_ranks), strict=True)
    ]
    ratios = {
        f"{name}, {what}": over_rounds(
            np.array([of(one) / of(base) for one, base in zip(job[name], job["bare"], strict=True)])
        )
        for name in ("again", "comm")
        for what, of in (("whole", np.mean), ("reported", np.median))
    }
    shown = ratios["comm, reported"]
    return {
        "bytes": size,
        "library": communicator.library,
        "device": options.device,
        "rounds": options.rounds,
        "calls_per_round": samples * calls,
        "bare_s": float(np.median([np.median(each) for each in job["bare"]])),
        "ratio_to_bare": ratios,
        "within_10_percent": shown["low"] >= 1 - BOUND and shown["high"] <= 1 + BOUND,
    }


if __name__ == "__main__":
    main()
