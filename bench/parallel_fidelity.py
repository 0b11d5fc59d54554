"""Does Deepstone measure what several processes do by themselves, and find what was planted into them?

    python bench/parallel_fidelity.py loop --seconds 240          DDP as a worker runs it, against DDP written by hand
    python bench/parallel_fidelity.py launch --pairs 6            from the start to a first step, in turns
    python bench/parallel_fidelity.py communication --ms 40       a sleep in communication, found as exposed
    python bench/parallel_fidelity.py slow-rank --ms 40           a slow rank, found as waiting of the other one

`loop`: both run in the same processes of one launch. A turn is a barrier, one step that is not timed unless steps are
long, and so many steps; its time is that of the job, from the latest begin to the latest end over ranks. Turns are
short, and a round has four of them, which cancels a drift:

    by hand, deepstone, deepstone, by hand        or        deepstone, by hand, by hand, deepstone        by chance

The ratio is that of the sums of a round. What is told is the mean of the middle half of all rounds, with a bootstrap
interval over rounds. `again` is the first turn by hand over the second one, or the other way round by chance: the
method's own noise, from half as many steps. `undisturbed` has the rounds in which the processes were taken off a core
least often, which no time decides: the half with the fewest involuntary switches. `communication` and `slow-rank` use
the product, `deepstone run`, with and without the plant of bench/planted, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.fidelity import over_rounds  # noqa: E402

TURN_S = 0.3
LONG_STEP_S = 0.25  # from here on, a turn has no untimed step
HAND, DEEPSTONE = "by hand", "deepstone"
WAYS = (HAND, DEEPSTONE)
ORDERS = ((HAND, DEEPSTONE, DEEPSTONE, HAND), (DEEPSTONE, HAND, HAND, DEEPSTONE))
PLANTED = ROOT / "bench" / "planted"
KINDS = ("loop", "launch", "communication", "slow-rank")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--model", default="alexnet-owt", help="one of bench/hand_written.py")
    parser.add_argument("--batch", type=int, default=16, help="of the whole job")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--seconds", type=float, default=240.0, help="how long to measure")
    parser.add_argument("--pairs", type=int, default=3, help="launches of each way")
    parser.add_argument("--ms", type=float, default=40.0, help="what is planted, in milliseconds of every step")
    parser.add_argument("--axes", default="", help="more of the request, as in overlap=off,transport=mpi")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        print(json.dumps(one_rank(options)), flush=True)
        os._exit(0)  # torch's threads may abort a process that takes down its process group
    measure: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "loop": loops,
        "launch": launches,
        "communication": communication,
        "slow-rank": slow_rank,
    }
    about = {"model": options.model, "batch": options.batch, "processes": options.processes, "threads": options.threads}
    result = {"kind": options.kind, **about, "python": platform.python_version(), **measure[options.kind](options)}
    print(json.dumps(result), flush=True)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def loops(options: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks, and put together what each of them saw."""
    ranks = [json.loads(output) for output in start_ranks(options, [sys.executable, str(Path(__file__).resolve())])]
    steps = ranks[0]["steps_per_turn"]
    rounds = [
        {
            way: [_of_job(turns) for turns in zip(*(rank["rounds"][r][way] for rank in ranks), strict=True)]
            for way in WAYS
        }
        for r in range(len(ranks[0]["rounds"]))
    ]
    calm = np.argsort([sum(turn.switches for way in WAYS for turn in each[way]) for each in rounds], kind="stable")
    kept = {"all": rounds, "undisturbed": [rounds[r] for r in calm[: (len(rounds) + 1) // 2]]}
    return {
        "torch": ranks[0]["torch"],
        "seconds": options.seconds,
        "rounds": len(rounds),
        "steps_per_turn": steps,
        "untimed_steps": ranks[0]["untimed_steps"],
        "by_hand_step_s": float(np.median([turn.wall_s / steps for each in rounds for turn in each[HAND]])),
        "switches_per_round": {
            way: float(np.mean([sum(turn.switches for turn in each[way]) for each in rounds])) for way in WAYS
        },
        "ratio_to_by_hand": {name: _ratios(each, "wall_s") for name, each in kept.items()},
        "cpu_ratio_to_by_hand": {name: _ratios(each, "cpu_s") for name, each in kept.items()},
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Of the job: from the latest begin over ranks to the latest end, with the CPU time and the involuntary switches of
    all ranks."""

    wall_s: float
    cpu_s: float
    switches: int


def _of_job(ranks: Sequence[list[float]]) -> Turn:
    wall_s = max(end for _, end, _, _ in ranks) - max(begin for begin, _, _, _ in ranks)
    return Turn(wall_s=wall_s, cpu_s=sum(rank[2] for rank in ranks), switches=int(sum(rank[3] for rank in ranks)))


def _ratios(rounds: Sequence[dict[str, list[Turn]]], what: str) -> dict[str, dict[str, float]]:
    def times(way: str) -> Any:
        return np.array([[getattr(turn, what) for turn in each[way]] for each in rounds])  # rounds x 2

    first, second = times(HAND).T
    swapped = np.random.default_rng(0).random(len(rounds)) < 0.5
    again = np.where(swapped, second / first, first / second)
    return {
        DEEPSTONE: middle_over_rounds(times(DEEPSTONE).sum(1) / times(HAND).sum(1)),
        "again": middle_over_rounds(again),
    }


def middle_over_rounds(ratios: Any) -> dict[str, float]:
    """The mean of the middle half, with a 95 % bootstrap interval. It follows no outlier, and is known better than a
    median from as many rounds."""

    def middle(values: Any) -> Any:
        cut = values.shape[-1] // 4
        return np.sort(values)[..., cut : values.shape[-1] - cut].mean(axis=-1)

    draws = middle(np.random.default_rng(0).choice(ratios, size=(4000, len(ratios))))
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"middle": float(middle(ratios)), "low": float(low), "high": float(high), "n": len(ratios)}


def start_ranks(options: argparse.Namespace, command: list[str]) -> list[str]:
    """What each rank printed last."""
    port = _free_port()
    words = [options.kind, "--model", options.model, "--batch", str(options.batch), "--seconds", str(options.seconds)]
    words += ["--processes", str(options.processes), "--threads", str(options.threads), "--port", str(port)]
    variables = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    ranks = [
        subprocess.Popen([*command, *words, "--rank", str(rank)], env=variables, stdout=subprocess.PIPE, text=True)
        for rank in range(options.processes)
    ]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("a rank failed")
    return [output.strip().splitlines()[-1] for output in outputs]


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def by_hand(model: str, images: Any, labels: Any) -> Callable[[], None]:
    """A step of DistributedDataParallel as one writes it; the processes have met. No code of Deepstone."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from bench.hand_written import MODELS

    network = DistributedDataParallel(MODELS[model][0]().train())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    image_tensor, label_tensor = torch.from_numpy(images), torch.from_numpy(labels)

    def step() -> None:
        optimizer.zero_grad()
        criterion(network(image_tensor), label_tensor).backward()
        optimizer.step()

    return step


def one_rank(options: argparse.Namespace) -> dict[str, Any]:
    """One process of `loop` or, with a hand-written loop alone, of `launch`."""
    if options.kind == "launch":
        return first_step_by_hand(options)
    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore

    from deepstone.backends.base import Group, Job
    from deepstone.backends.torch.backend import TorchBackend
    from deepstone.graph.weights import initial_parameters
    from deepstone.models.zoo import ZOO
    from deepstone.setups.axes import AXES
    from deepstone.worker.serve import time_steps

    share, images, labels = share_of_batch(options)
    graph = ZOO[options.model].make()
    backend = TorchBackend()
    if options.rank == 0:
        backend._store = TCPStore("127.0.0.1", options.port, is_master=True, wait_for_workers=False)
    request = {name: axis.default for name, axis in AXES.items()}
    request |= {"device": "cpu", "precision": "fp32", "processes": options.processes, "threads": options.threads}
    addresses = [f"127.0.0.1:{options.port}"] * options.processes
    whole = {**request, "batch": options.batch}
    roles = {"role": "worker", "share": options.rank, "shares": options.processes}
    group = Group(options.rank, options.processes, options.rank, addresses, whole, **roles)
    backend.join(group)  # the loop by hand uses the same process group
    request["batch"] = share
    weights = initial_parameters(graph, 0)
    backend.build(
        Job(
            graph=graph.to_worker_json(),
            weights=weights,
            samples=images,
            labels=labels,
            request=request,
            scratch="",
            group=group,
        )
    )
    backend.first_step()
    step, hand_step = backend.step("train"), by_hand(options.model, images, labels)

    def hand_written(count: int) -> None:
        for _ in range(count):
            hand_step()

    def deepstone(count: int) -> None:
        time_steps(backend, step, count, 1)

    ways: dict[str, Callable[[int], None]] = {HAND: hand_written, DEEPSTONE: deepstone}

    def turn(way: Callable[[int], None], count: int, untimed: int) -> list[float]:
        dist.barrier()
        way(untimed)
        switches, cpu_s, begin = _switches(), time.process_time(), time.perf_counter()
        way(count)
        end = time.perf_counter()
        return [begin, end, time.process_time() - cpu_s, _switches() - switches]

    for way in ways.values():
        turn(way, 3, 1)  # buckets are made anew after the first step
    begin, end, *_ = turn(hand_written, 5, 1)
    step_s = torch.tensor([(end - begin) / 5], dtype=torch.float64)
    dist.broadcast(step_s, src=0)
    count, untimed = max(1, round(TURN_S / step_s.item())), 0 if step_s.item() >= LONG_STEP_S else 1
    rounds: list[dict[str, list[list[float]]]] = []
    order, until = random.Random(0), time.perf_counter() + options.seconds
    goes_on = torch.ones(1)
    while goes_on.item():
        turns: dict[str, list[list[float]]] = {name: [] for name in ways}
        for name in order.choice(ORDERS):
            turns[name].append(turn(ways[name], count, untimed))
        rounds.append(turns)
        goes_on.fill_(time.perf_counter() < until)
        dist.broadcast(goes_on, src=0)
    dist.barrier()
    return {"torch": torch.__version__, "steps_per_turn": count, "untimed_steps": untimed, "rounds": rounds}


def _switches() -> int:
    """How often this process was taken off a core."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def share_of_batch(options: argparse.Namespace) -> tuple[int, Any, Any]:
    """How many samples a rank has, and its own ones."""
    from deepstone.graph.weights import synthetic_batch
    from deepstone.models.zoo import ZOO

    images, labels = synthetic_batch(ZOO[options.model].make(), options.batch, 0)
    share = options.batch // options.processes
    own = slice(options.rank * share, (options.rank + 1) * share)
    return share, images[own], labels[own]


def _meet(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(options.threads)
    address = f"tcp://127.0.0.1:{options.port}"
    dist.init_process_group("gloo", init_method=address, rank=options.rank, world_size=options.processes)


def first_step_by_hand(options: argparse.Namespace) -> dict[str, Any]:
    _, images, labels = share_of_batch(options)
    _meet(options)
    by_hand(options.model, images, labels)()
    return {"at_s": time.monotonic()}


def launches(options: argparse.Namespace) -> dict[str, Any]:
    """From the start of the processes to the end of their first step."""
    times: dict[str, list[float]] = {"by hand": [], "deepstone": []}
    ways = {"by hand": _launched_by_hand, "deepstone": _launched_by_deepstone}
    for pair in range(options.pairs + 1):
        for way in ways if pair % 2 else reversed(ways):
            took_s = ways[way](options)
            if pair:  # the first one fills caches
                times[way].append(took_s)
    added = np.array(times["deepstone"]) - np.array(times["by hand"])
    return {
        "pairs": options.pairs,
        "by_hand_s": over_rounds(np.array(times["by hand"])),
        "deepstone_s": over_rounds(np.array(times["deepstone"])),
        "added_s": over_rounds(added),
    }


def _launched_by_hand(options: argparse.Namespace) -> float:
    begin = time.monotonic()
    ranks = start_ranks(options, [sys.executable, str(Path(__file__).resolve())])
    return max(json.loads(rank)["at_s"] for rank in ranks) - begin


def _launched_by_deepstone(options: argparse.Namespace) -> float:
    from deepstone.cli.jobs import plan
    from deepstone.exchange.load import load_model
    from deepstone.runner.team import talking_to_team
    from deepstone.setups.request import expand, parse_words

    words = [f"processes={options.processes}", f"batch={options.batch}", f"threads={options.threads}", "device=cpu"]
    [job] = plan(load_model(options.model), expand(parse_words(words)), [], [])
    begin = time.monotonic()
    with talking_to_team(job, timeout_s=300) as team:
        team.hello()
        team.prepare()
        took_s = time.monotonic() - begin
        team.close()
    return took_s


def communication(options: argparse.Namespace) -> dict[str, Any]:
    found = planted_runs(options, "DEEPSTONE_BENCH_COMMUNICATION_MS")

    def exposed(record: dict[str, Any]) -> dict[str, float]:
        return record["parallel"]["communication"]["exposed_s"]

    return {"found_s": [exposed(record) for record in found[True]], **_compared(options, found, exposed)}


def slow_rank(options: argparse.Namespace) -> dict[str, Any]:
    """Rank 1 is slow, so rank 0 waits."""
    found = planted_runs(options, "DEEPSTONE_BENCH_SLOW_RANK_MS")

    def waiting(record: dict[str, Any]) -> dict[str, float]:
        return record["parallel"]["communication"]["waiting_s"][0]

    return {"found_s": [waiting(record) for record in found[True]], **_compared(options, found, waiting)}


def _compared(
    options: argparse.Namespace, found: dict[bool, list[dict[str, Any]]], value: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """`added_s`: with the plant less without it, pair by pair."""
    with_plant = np.array([value(record)["median"] for record in found[True]])
    without = np.array([value(record)["median"] for record in found[False]])
    step_s = float(np.median([record["summary"]["step_s"]["median"] for record in found[False]]))
    error_s = abs(float(np.median(with_plant - without)) - options.ms / 1e3)
    return {
        "planted_s": options.ms / 1e3,
        "without_plant_s": [value(record) for record in found[False]],
        "added_s": {"median": float(np.median(with_plant - without)), "all": [float(x) for x in with_plant - without]},
        "step_without_plant_s": step_s,
        "error_share_of_plant": error_s / (options.ms / 1e3),
        "error_share_of_step": error_s / step_s,
    }


def planted_runs(options: argparse.Namespace, variable: str) -> dict[bool, list[dict[str, Any]]]:
    """Records of `deepstone run` with the plant and without it, in turns."""
    found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    words = [options.model, f"batch={options.batch}", f"processes={options.processes}", f"threads={options.threads}"]
    words += ["device=cpu", *filter(None, options.axes.split(","))]
    words += ["--budget", str(options.seconds / 2 / options.pairs / 1.5), "--target", "0.05"]
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs):
            for planted in (True, False) if pair % 2 else (False, True):
                path = os.pathsep.join([str(PLANTED)] * planted + [str(ROOT), os.environ.get("PYTHONPATH", "")])
                variables = {**os.environ, "PYTHONPATH": path, variable: str(options.ms if planted else 0)}
                command = [sys.executable, "-m", "deepstone", "run", *words, "--json", "--store", folder]
                done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True)
                found[planted].append(json.loads(done.stdout))
    return found


if __name__ == "__main__":
    main()
