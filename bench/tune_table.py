"""Records a table for `tune_replay.py`: many setups of one workload, each measured in several rounds.

    python bench/tune_table.py alexnet-owt batch=4 --minutes 45 -o bench/results/tune-table-two-cores.json
    python bench/tune_table.py resnet50 batch=256 --points 48 --rounds 1 --top-rounds 2 --minutes 9 -o …
    python bench/tune_table.py alexnet-owt batch=4 --cpus 0-1 -o slice-0.json     (side by side with --cpus 2-3 …)

Round 1 measures every point once, in random order, then round 2, and so on; then the fastest fifth (`--top-share`)
and the default get more rounds. A table is saved after every launch, and a call goes on with what its file holds. A
point that fails is kept with its reason and not tried again. `--cpus` binds everything to these CPUs, so that several
slices of a large machine record at the same time; each slice draws other points with another `--seed`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepstone.durable import write_whole
from deepstone.exchange.load import load_model
from deepstone.results.advice import Facts as AdviceFacts
from deepstone.results.advice import MatrixUnits
from deepstone.runner.scratch import scratch_folder
from deepstone.runner.standby import Standby
from deepstone.setups.axes import AUTO, Value, cpu_list
from deepstone.setups.request import parse_words
from deepstone.setups.tuning import Facts, meaning_of_auto
from deepstone.store.store import Store
from deepstone.tuner.facts import facts_of
from deepstone.tuner.quick_starts import NO_QUICK_STARTS, QuickStarts, quick_starts
from deepstone.tuner.space import Point, SearchAxis

SCHEMA = 1


@dataclass(kw_only=True)
class Table:
    """Points with their rounds; what a search sees of a space."""

    head: dict[str, Any]  # model, words, machine, when
    axes: tuple[SearchAxis, ...]
    facts: Facts
    rounds: dict[Point, list[dict[str, Any]]] = field(default_factory=dict)  # {round, samples_per_s | failed, took_s}

    @property
    def default(self) -> Point:
        return tuple(axis.values[0] for axis in self.axes)

    @property
    def points(self) -> list[Point]:
        return list(self.rounds)

    def framework(self, point: Point) -> str:
        for axis, value in zip(self.axes, point, strict=True):
            if axis.name == "framework":
                return self.facts.frameworks[0] if value == AUTO and self.facts.frameworks else str(value)
        return "one"

    def resolved(self, point: Point) -> tuple[Value, ...]:
        means = meaning_of_auto(self.framework(point), self.facts)
        named = zip(self.axes, point, strict=True)
        return tuple(means.get(axis.name, value) if value == AUTO else value for axis, value in named)

    def with_value(self, point: Point, name: str, value: Value) -> Point:
        return tuple(value if axis.name == name else old for axis, old in zip(self.axes, point, strict=True))

    def why_not(self, point: Point) -> str | None:
        return None if point in self.rounds else "it is not in the table"

    def speeds(self, point: Point) -> list[float]:
        return [each["samples_per_s"] for each in self.rounds[point] if "samples_per_s" in each]

    def advice_facts(self) -> AdviceFacts:
        """What the rules of advice ask about."""
        choices = parse_words(self.head["words"])
        return facts_of(
            load_model(self.head["model"]).graph,
            device="gpu" if self.facts.device == "gpu" else "cpu",
            phase="train",
            batch=int(choices["batch"][0]),
            cores=self.facts.cores,
            matrix_units=self._matrix_units,
        )

    @property
    def _matrix_units(self) -> MatrixUnits:
        """As `units_of_cpu` says it of the flags of a CPU: one with AMX has bf16 instructions too."""
        if self.facts.device == "gpu":
            return "bf16"
        if any("amx" in isa for isa in self.facts.isa):
            return "amx"
        return "bf16" if any("bf16" in isa for isa in self.facts.isa) else "none"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": "tune-table",
            **self.head,
            "facts": {name: getattr(self.facts, name) for name in Facts.__dataclass_fields__},
            "axes": [
                {"name": axis.name, "values": axis.values, "rank": axis.rank, "ordered": axis.ordered}
                for axis in self.axes
            ],
            "points": [{"values": point, "rounds": rounds} for point, rounds in self.rounds.items()],
        }

    @staticmethod
    def read(path: Path) -> Table:
        found = json.loads(path.read_text())
        lists = {name: tuple(value) if isinstance(value, list) else value for name, value in found["facts"].items()}
        return Table(
            head={name: found[name] for name in found if name not in ("schema", "kind", "facts", "axes", "points")},
            axes=tuple(SearchAxis(**{**axis, "values": tuple(axis["values"])}) for axis in found["axes"]),
            facts=Facts(**lists),
            rounds={tuple(point["values"]): point["rounds"] for point in found["points"]},
        )

    def write(self, path: Path) -> None:
        write_whole(json.dumps(self.to_json(), indent=None, separators=(",", ":")).encode(), path.resolve())


def main() -> None:
    options = _options()
    if options.cpus:
        os.sched_setaffinity(0, cpu_list(options.cpus))
    recorder = _Recorder(options)
    with _quick_starts(recorder.table.facts, options.standby) as recorder.quick_starts:
        recorder.record()
    print(f"{options.output}: {recorder.summary()}")


@contextmanager
def _quick_starts(facts: Facts, most: int | None) -> Generator[QuickStarts, None, None]:
    """As the product has them; or with so many workers that wait, because a table launches more than a search."""
    if most is None:
        with quick_starts(facts.device, facts.cores) as found:
            yield found
        return
    with scratch_folder() as folder, Standby(most) as standby:
        yield QuickStarts(standby=standby, folder=folder)


class _Recorder:
    def __init__(self, options: argparse.Namespace) -> None:
        # Only now, because some of these count the CPUs.
        from deepstone.tuner.workload import Workload

        self._options = options
        self.quick_starts = NO_QUICK_STARTS
        self._end_s = time.monotonic() + 60 * options.minutes
        self._workload = Workload.of(
            options.model, options.words, level=options.same, limit_bytes=None, seed=options.seed
        )
        space = self._workload.space
        if options.output.exists():
            self.table = Table.read(options.output)
            return
        chosen = list(space.points)
        random.Random(options.seed).shuffle(chosen)
        others = [point for point in chosen if point != space.default and _is_wanted(space, point, options.leave_out)]
        points = [space.default, *others[: options.points - 1]]
        head = {
            "model": self._workload.model.name,
            "words": options.words,
            "machine": self._workload.machine_name,
            "cpus": options.cpus,
            "budget_s": options.budget,
            "setups_in_space": space.count,
        }
        self.table = Table(head=head, axes=space.axes, facts=space.facts, rounds={point: [] for point in points})

    def record(self) -> None:
        for number in range(1, self._options.rounds + 1):
            self._round(number, list(self.table.rounds))
        for number in range(self._options.rounds + 1, self._options.rounds + self._options.top_rounds + 1):
            self._round(number, self._top())

    def _top(self) -> list[Point]:
        """The fastest share by the first rounds, and the default. They are the same in every later round."""
        first = self._options.rounds
        means = {
            point: math.fsum(math.log(each["samples_per_s"]) for each in rounds if each["round"] <= first)
            / sum(each["round"] <= first for each in rounds)
            for point, rounds in self.table.rounds.items()
            if rounds and all("samples_per_s" in each for each in rounds)
        }
        best = sorted(means, key=lambda point: -means[point])[
            : max(1, int(self._options.top_share * len(self.table.rounds)))
        ]
        return list(dict.fromkeys([self.table.default, *best]))

    def _round(self, number: int, points: list[Point]) -> None:
        random.Random(1000 * self._options.seed + number).shuffle(points)
        for place, point in enumerate(points, start=1):
            done = self.table.rounds[point]
            if any(each["round"] == number for each in done) or any("failed" in each for each in done):
                continue
            if time.monotonic() > self._end_s:
                print(f"time is up in round {number}; the same command goes on", file=sys.stderr)
                return
            found = self._look(point)
            done.append({"round": number, **found})
            self.table.write(self._options.output)
            setup = " ".join(f"{name}={value}" for name, value in self._workload.space.given(point).items())
            shown = found.get("failed") or f"{found['samples_per_s']:.4g} samples/s"
            left = (self._end_s - time.monotonic()) / 60
            print(
                f"round {number}, {place}/{len(points)}, {left:.0f} min left: {setup or 'default'}: {shown}",
                file=sys.stderr,
            )

    def _look(self, point: Point) -> dict[str, Any]:
        begin = time.monotonic()
        # Of the quick starts only the imports: each launch compiles anew, since what a compiler picks is part of noise.
        found = self._workload.look(
            point,
            timed_s=self._options.budget,
            timeout_s=self._options.timeout,
            standby=self.quick_starts.standby,
            compile_cache=tempfile.mkdtemp(dir=self.quick_starts.folder) if self.quick_starts.folder else "",
        )
        took_s = round(time.monotonic() - begin, 3)
        if self._options.store is not None:
            Store.open(self._options.store).add(found.draft)
        if found.samples_per_s is None:
            return {"failed": f"{found.outcome}: {found.reason}"[:200], "took_s": took_s}
        return {"samples_per_s": found.samples_per_s, "took_s": took_s}

    def summary(self) -> str:
        rounds = [len(self.table.speeds(point)) for point in self.table.points]
        failed = sum(any("failed" in each for each in each_rounds) for each_rounds in self.table.rounds.values())
        return f"{len(rounds)} points, {sum(rounds)} launches, {failed} points failed, most rounds {max(rounds)}"


def _is_wanted(space: Any, point: Point, left_out: list[str]) -> bool:
    """Whether a point has none of these values; those joined by + only count together."""
    named = {f"{axis.name}={value}" for axis, value in zip(space.axes, point, strict=True)}
    return not any(set(words.split("+")) <= named for words in left_out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("words", nargs="*", help="AXIS=VALUE, AXIS=A,B: as in `deepstone tune`")
    parser.add_argument("--points", type=int, default=220)
    parser.add_argument("--rounds", type=int, default=2, help="of all points")
    parser.add_argument("--top-rounds", type=int, default=8, help="more rounds, of the fastest fifth")
    parser.add_argument("--top-share", type=float, default=0.2, help="how many points have these rounds")
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of timed steps of a launch")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--same", default="close", choices=("exact", "close", "any"))
    parser.add_argument("--leave-out", action="append", default=[], metavar="AXIS=VALUE[+…]", help="no points with it")
    parser.add_argument("--store", type=Path, help="keep the record of every launch here, too")
    parser.add_argument("--standby", type=int, help="workers that import at once before there is a launch for them")
    parser.add_argument("--cpus", default="", help="as in 0-1: bind everything to these CPUs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
