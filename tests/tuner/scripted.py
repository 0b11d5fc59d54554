"""A workload whose launches are scripted: speeds by setup, noise, and a clock of its own. Nothing is started."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from factory import typed_draft
from msgspec import structs

from deepstone.absent import Absent
from deepstone.environments.find import find_environment
from deepstone.models.load import load_in_process
from deepstone.results.tune import Look, SameLevel, SameSetup, TuneLog
from deepstone.runner.job import Job, Machine
from deepstone.setups.axes import Value
from deepstone.setups.tuning import Facts
from deepstone.store.store import Store
from deepstone.tuner.search import Search
from deepstone.tuner.space import Point, Space, make_space
from deepstone.tuner.tune import Tuner
from deepstone.tuner.wanted import Wanted
from deepstone.tuner.workload import Looked

NOT_DONE = Absent("not measured")


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(kw_only=True)
class Scripted:
    """`speed`: of a setup, in samples a second; text is the reason of a failure. `compile_s`: how much longer its first
    launch takes, and its first one of the finals; later ones find most of that. It stands for a `Workload`."""

    space: Space
    speed: Callable[[Mapping[str, Value]], float | str]
    noise: float = 0.0
    took_s: Callable[[Mapping[str, Value]], float] = lambda _setup: 5.0
    compile_s: Callable[[Mapping[str, Value]], float] = lambda _setup: 0.0
    clock: Clock = field(default_factory=Clock)
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    asked: list[Mapping[str, Value]] = field(default_factory=list[Mapping[str, Value]])
    die_after: int | None = None
    timeouts: list[float] = field(default_factory=list[float])
    advised: tuple[Mapping[str, Value], ...] = ()
    compiled: set[tuple[str, Point]] = field(default_factory=set[tuple[str, Point]])

    reference = "cifarnet"
    machine = Machine.here()
    model = load_in_process("cifarnet")

    def expected_s(self, point: Point, timed_s: float) -> float:
        return 5.0

    def job(self, point: Point, repetition: int = 1) -> Job:
        command = ("deepstone", "run", "cifarnet")
        request, environment = self.space.request(point), find_environment("fake")
        return Job(model=self.model, request=request, environment=environment, machine=self.machine, command=command)

    def look(
        self, point: Point, *, timeout_s: float, repetition: int = 1, compile_cache: str = "", **_options: Any
    ) -> Looked:
        if self.die_after is not None and len(self.asked) >= self.die_after:
            raise KeyboardInterrupt
        setup = self.space.given(point)
        self.asked.append(setup)
        self.timeouts.append(timeout_s)
        is_compiled = bool(compile_cache) and (compile_cache, point) in self.compiled
        self.compiled.add((compile_cache, point))
        first_step_s = self.compile_s(setup) * (0.25 if is_compiled else 1.0)
        speed, took_s = self.speed(setup), self.took_s(setup) + first_step_s
        outcome = "ok"
        if took_s > timeout_s:
            speed, took_s, outcome, first_step_s = "it ran too long", timeout_s, "timeout", 0.0
        elif isinstance(speed, str):
            outcome = "oom"
        self.clock.now_s += took_s
        value = None if isinstance(speed, str) else speed * math.exp(self.chance.gauss(0, self.noise))
        requested = {**self.space.request(point)}
        draft = typed_draft(
            model="cifarnet",
            batch=int(requested["batch"]),
            requested=requested,
            repetition=repetition,
            outcome=outcome,
            step_s=int(requested["batch"]) / (value or 1.0),
        )
        return Looked(
            outcome=outcome,
            reason=speed if isinstance(speed, str) else "",
            samples_per_s=value,
            samples_per_j=NOT_DONE if value is None else value / self.power(setup),
            peak_bytes=self.memory(setup),
            took_s=took_s,
            draft=structs.replace(draft, startup={"first_step_s": first_step_s}),
        )

    def power(self, setup: Mapping[str, Value]) -> float:
        return 100.0

    def memory(self, setup: Mapping[str, Value]) -> int:
        return 2**20


def all_the_same(
    default: Job,
    candidates: Mapping[str, Job],
    level: SameLevel,
    *,
    deadline_s: float,
    spares: Any = None,
    on_progress: Any = None,
) -> dict[str, SameSetup]:
    return {
        name: SameSetup(setup={}, ok=True, gradient=NOT_DONE, loss=NOT_DONE, update=NOT_DONE, why_not="")
        for name in candidates
    }


@dataclass
class Told:
    said: list[str] = field(default_factory=list[str])
    looks: list[Look] = field(default_factory=list[Look])

    def begin(self, title: str) -> None: ...
    def advance(self, stage: str, share: float) -> None: ...

    def say(self, message: str) -> None:
        self.said.append(message)

    def looked(self, look: Look, tuner: Tuner) -> None:
        self.looks.append(look)


def a_space(choices: Mapping[str, list[Value]] | None = None, **facts: Any) -> Space:
    """Five axes with 96 setups of one framework, as if the user had left them free."""
    given: dict[str, list[Value]] = {
        "framework": ["fake"],
        "layout": ["auto", "nchw", "nhwc"],
        "precision": ["auto", "bf16-mixed"],
        "threads": ["auto", 1, 2, 4],
        "engine": ["auto", "native"],
        "compile": ["auto", "default"],
    }
    for name in ("processes", "affinity", "accumulate", "isa", "inter_threads", "optimizer", "space_to_depth"):
        given.setdefault(name, [_default(name)])
    space = make_space({**given, **(choices or {})}, Facts(device="cpu", cores=4, frameworks=("fake",), **facts))
    return replace(space, axes=tuple(structs.replace(axis, named=False) for axis in space.axes))


def _default(name: str) -> Value:
    from deepstone.setups.axes import AXES

    return AXES[name].default


def a_log(name: str = "a", budget_s: float = 600.0) -> TuneLog:
    return TuneLog(
        name=name,
        model="cifarnet",
        command=["deepstone", "tune", "cifarnet"],
        started_at="2026-11-15T03:40:12.123456Z",
        finished_at=Absent("not finished"),
        budget_s=budget_s,
        spent_s=0.0,
        calls=1,
        looks=[],
    )


def a_tuner(
    scripted: Scripted, folder: Path, wanted: Wanted, *, log: TuneLog | None = None, check: Any = all_the_same
) -> Tuner:
    workload: Any = scripted
    store = Store.open(folder)
    return Tuner(
        workload=workload,
        wanted=wanted,
        store=store,
        log=log or a_log(budget_s=wanted.budget_s),
        progress=Told(),
        check=check,
        clock=scripted.clock,
    )


def a_search(space: Space, **settings: Any) -> Search:
    return Search(landscape=space, starts=[space.default], noise_sd=0.05, **settings)
