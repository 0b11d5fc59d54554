"""Plans the tasks of a study. It counts them first, and refuses a study with no tasks or too many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from deepstone.backends.registry import BEST_FIRST
from deepstone.environments.environment import Environment
from deepstone.environments.find import environments, find_environment, installed, not_installed
from deepstone.errors import MissingError, UsageError
from deepstone.exchange.load import load_model
from deepstone.models.load import LoadedModel
from deepstone.results.environment import Gpu
from deepstone.runner.convolutions.lab import equal_convolutions
from deepstone.runner.examine import probe_job
from deepstone.runner.job import Job, Machine
from deepstone.runner.new_job import make_job
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.request import as_words, changed, complete
from deepstone.studies.busy import Device, busy_batch
from deepstone.studies.state import Task, names_of
from deepstone.studies.study import Measure, Study, Sweep
from deepstone.studies.values import EVERY_VERSION, FRAMEWORK_WORDS, INSTALLED, Here, Listed, count, names_busy, resolve

MOST_TASKS: Final = 10_000
ROUNDS: Final = 3
BUDGET_S: Final[Mapping[Measure, float]] = {"run": 5.0, "layers": 5.0, "conv": 0.5}  # others take what they need


class Plan(Struct, frozen=True, kw_only=True):
    """`tasks` are in the order of the file; `excluded` counts the points that the study itself leaves out. `addable`:
    frameworks that a study of every version would also measure if they were installed."""

    study: Study
    machine: Machine
    tasks: tuple[Task, ...]
    base: Mapping[str, Value]
    excluded: int
    addable: tuple[str, ...] = ()


def rounds_of(sweep: Sweep) -> int:
    return sweep.effort.repetitions or (ROUNDS if sweep.measure == "run" else 1)


def make_plan(study: Study, machine: Machine | None = None) -> Plan:
    """Raises UsageError for a plan that is empty, impossible or too large, MissingError if nothing can run it."""
    machine = machine or Machine.here()
    return _Planner(study, machine, _survey(machine)).plan()


class _Planner:
    def __init__(self, study: Study, machine: Machine, here: Here) -> None:
        self._study = study
        self._machine = machine
        self._here = here
        self._models: dict[str, LoadedModel] = {}
        self._environments: dict[str, Environment | MissingError] = {}
        self._excluded = 0
        self._count = 0

    def plan(self) -> Plan:
        sweeps = [_spelt_out(sweep, self._machine) for sweep in self._study.sweeps if self._is_for_here(sweep)]
        if not sweeps:
            raise UsageError(
                f"{self._study.name}: nothing to measure on this machine: all its jobs are for a {self._other_device}"
            )
        self._refuse_too_much(sweeps)
        tasks: dict[str, Task] = {}
        for number, sweep in enumerate(sweeps):
            for task in self._tasks(number, sweep):
                known = tasks.get(task.id)
                if known is None or task.priority < known.priority:
                    tasks[task.id] = task
        self._refuse_nothing(sweeps, tasks)
        return Plan(
            study=self._study,
            machine=self._machine,
            tasks=tuple(tasks.values()),
            base=self._base(sweeps),
            excluded=self._excluded,
            addable=tuple(not_installed()) if any(_names(sweep, EVERY_VERSION) for sweep in sweeps) else (),
        )

    def _refuse_too_much(self, sweeps: list[Sweep]) -> None:
        counted = sum(_count_points(sweep, self._here) * rounds_of(sweep) for sweep in sweeps)
        if counted > MOST_TASKS:
            largest = max(sweeps, key=lambda sweep: _count_points(sweep, self._here) * rounds_of(sweep))
            raise UsageError(
                f"{largest.where or self._study.name}: the study would have {counted:,} tasks, and more than "
                f'{MOST_TASKS:,} are not planned; list fewer values, write vary = "one", or make several studies of it'
            )

    def _refuse_nothing(self, sweeps: list[Sweep], tasks: Mapping[str, Task]) -> None:
        if not tasks:
            if any(_names(sweep, word) for sweep in sweeps for word in FRAMEWORK_WORDS):
                find_environment(AUTO)  # raises, with the remedy, if none is installed
            raise UsageError(
                f"{sweeps[0].where or self._study.name}: nothing is left to measure: "
                f"all {self._excluded} combinations are excluded"
            )
        if all(task.hopeless for task in tasks.values()):
            first = next(iter(tasks.values()))
            if all(task.missing for task in tasks.values()):
                raise MissingError(first.hopeless)
            where = sweeps[first.sweep].where or self._study.name
            raise UsageError(f"{where}: none of the {len(tasks)} tasks can run; the first: {first.hopeless}")

    def _tasks(self, number: int, sweep: Sweep) -> Iterator[Task]:
        for model in sweep.models or ("",):
            for point in _points(sweep, self._here_for(sweep, model)):
                if _is_excluded(sweep, model, point.given, self._here):
                    self._excluded += 1
                    continue
                for round in range(1, rounds_of(sweep) + 1):
                    yield self._task(number, sweep, model, point, round)

    def _is_for_here(self, sweep: Sweep) -> bool:
        return sweep.on in ("any", "cpu" if self._gpu is None else "gpu")

    @property
    def _other_device(self) -> str:
        return "GPU" if self._gpu is None else "CPU"

    @cached_property
    def _gpu(self) -> Gpu | None:
        """The one that device=auto takes in the framework that framework=auto takes."""
        environment, _ = self._environment(AUTO)
        return next(iter(self._machine.gpus), None) if environment.can_use_gpu else None

    def _here_for(self, sweep: Sweep, model: str) -> Here:
        """With the batch that keeps the device busy with this network, where the study asks for it."""
        batch = sweep.axes.get("batch")
        if batch is None or not names_busy(batch) or not model:
            return self._here
        graph = self._model(sweep, model).graph
        if graph.opaque:
            where = sweep.where or self._study.name
            raise UsageError(f"{where}: batch=busy needs to know the layers, and {model} is a module; give a number")
        return replace(self._here, busy=busy_batch(graph, self._device(sweep)))

    def _device(self, sweep: Sweep) -> Device:
        asked = sweep.axes.get("device")
        on_cpu = isinstance(asked, Listed) and asked.values == ("cpu",)
        if self._gpu is not None and not on_cpu:
            return Device.of_gpu(self._gpu)
        memory = self._machine.description.memory_bytes
        return Device.of_cpu(self._machine.usable_cores, memory if isinstance(memory, int) else None)

    def _task(self, number: int, sweep: Sweep, model: str, point: _Point, round: int) -> Task:
        environment, missing = self._environment(str(point.given.get("framework", AUTO)))
        budget_s = sweep.effort.budget_s or BUDGET_S.get(sweep.measure, 0.0)
        if sweep.measure == "peaks":
            job = replace(
                probe_job(environment, self._machine, point.given),
                command=("deepstone", "doctor", "--peaks"),
                repetition=round,
            )
        else:
            request = complete(point.given)
            command = ("deepstone", sweep.measure, model, *as_words(request), *_options(sweep, budget_s))
            job = make_job(
                self._model(sweep, model),
                request,
                self._machine,
                command,
                environment=environment,
                repetition=round,
            )
        id, setup, setup_but_batch = names_of(sweep.measure, job, sweep.method)
        self._count += 1
        return Task(
            id=id,
            kind=sweep.measure,
            job=job,
            round=round,
            tier=sweep.tier,
            number=self._count,
            sweep=number,
            given=point.given,
            changed=point.changed,
            effort=sweep.effort,
            budget_s=budget_s,
            method=sweep.method,
            setup=setup,
            setup_but_batch=setup_but_batch,
            hopeless=missing or _hopeless(sweep.measure, job),
            missing=bool(missing),
        )

    def _model(self, sweep: Sweep, reference: str) -> LoadedModel:
        if reference not in self._models:
            try:
                self._models[reference] = load_model(reference, timeout_s=sweep.effort.timeout_s)
            except UsageError as error:
                raise UsageError(f"{sweep.where}: {error}" if sweep.where else str(error)) from error
        return self._models[reference]

    def _environment(self, framework: str) -> tuple[Environment, str]:
        """Return the environment; if it is missing, a placeholder and the reason."""
        if framework not in self._environments:
            try:
                self._environments[framework] = find_environment(framework)
            except MissingError as error:
                self._environments[framework] = error
        found = self._environments[framework]
        if isinstance(found, Environment):
            return found, ""
        name = framework.partition("@")[0]
        return Environment(framework=name, version="", program=Path(), lock={"python": ""}, name=framework), str(found)

    def _base(self, sweeps: list[Sweep]) -> dict[str, Value]:
        """Return the base of the first sweep of runs; its other setups are compared with it."""
        first = next((sweep for sweep in sweeps if sweep.measure == "run"), None)
        model = "" if first is None or not first.models else first.models[0]
        point = None if first is None else next(_points(first, self._here_for(first, model)), None)
        return {} if point is None else dict(point.given)


def _spelt_out(sweep: Sweep, machine: Machine) -> Sweep:
    """Without a choice in the study, measure ceilings with every framework on every device."""
    if sweep.measure != "peaks":
        return sweep
    devices = ("cpu", *(f"gpu:{gpu.index}" for gpu in machine.gpus))
    every = {"framework": Listed(values=(INSTALLED,)), "device": Listed(values=devices)}
    return replace(sweep, axes={**every, **sweep.axes})


def _names(sweep: Sweep, word: str) -> bool:
    frameworks = sweep.axes.get("framework")
    return isinstance(frameworks, Listed) and word in frameworks.values


def _options(sweep: Sweep, budget_s: float) -> list[str]:
    """Return the options of the command with this name that are not at their defaults."""
    effort = sweep.effort
    if sweep.measure == "run":
        return changed(
            ("--target", _percent(effort.target_share), 2.0),
            ("--budget", budget_s, 20.0),
            ("--timeout", effort.timeout_s, 900.0),
        )
    if sweep.measure == "memory":
        return changed(("--timeout", effort.timeout_s, 900.0))
    options = changed(
        ("--budget", budget_s, 20.0 if sweep.measure == "layers" else 0.5), ("--timeout", effort.timeout_s, 1800.0)
    )
    return options + ([] if sweep.method == "both" else ["--method", sweep.method])


def _percent(share: float) -> float:
    """Return the value for the command line; rounded, so that 0.03 is 3 and not 3.0000000000000004."""
    return round(100 * share, 9)


def _hopeless(measure: Measure, job: Job) -> str:
    reason = job.broken_rule
    if reason:
        return f"unsupported: {reason}"
    if measure == "conv" and job.model.graph.opaque:
        return f"unsupported: {job.model.name} is a module of your own; conv needs a graph"
    if measure == "conv" and not equal_convolutions(job.model.graph, 1):
        return f"unsupported: {job.model.name} has no convolution layer"
    return ""


Given: TypeAlias = dict[str, Value]


class _Point(Struct, frozen=True, kw_only=True):
    """Values of the axes that the sweep names, and those that differ from the first of their list."""

    given: Given
    changed: Given


def _count_points(sweep: Sweep, here: Here) -> int:
    """Count the points of all models, before exclusions."""
    counts = [count(values, here) for values in sweep.axes.values()]
    by_model = prod(counts) if sweep.vary == "grid" else 1 + sum(max(0, each - 1) for each in counts)
    return by_model * max(1, len(sweep.models))


def _points(sweep: Sweep, here: Here) -> Iterator[_Point]:
    """Yield the points, the base first, the last axis changing fastest; none if an axis has no value here."""
    axes = {axis: resolve(values, here) for axis, values in sweep.axes.items()}
    if any(not values for values in axes.values()):
        return
    base = {axis: values[0] for axis, values in axes.items()}
    if sweep.vary == "grid":
        for values in product(*axes.values()):
            given = dict(zip(axes, values, strict=True))
            yield _Point(given=given, changed={axis: given[axis] for axis in axes if given[axis] != base[axis]})
        return
    yield _Point(given=base, changed={})
    for axis, values in axes.items():
        for value in values[1:]:
            yield _Point(given={**base, axis: value}, changed={axis: value})


def _is_excluded(sweep: Sweep, model: str, given: Mapping[str, Value], here: Here) -> bool:
    return any(
        all(
            _matches(axis, excluded_value, _value(axis, model, given), here)
            for axis, excluded_value in excluded.items()
        )
        for excluded in sweep.exclude
    )


def _value(axis: str, model: str, given: Mapping[str, Value]) -> Value:
    return model if axis == "model" else given.get(axis, AXES[axis].default)


def _matches(axis: str, excluded_value: Value, value: Value, here: Here) -> bool:
    if excluded_value == "cores" and axis != "model":
        return value == here.cores
    if axis == "framework" and "@" not in str(excluded_value):  # any version of it
        return str(value).partition("@")[0] == excluded_value
    return value == excluded_value


def _survey(machine: Machine) -> Here:
    """List the frameworks by name, the choice of framework=auto first; versions as users request them."""
    found = [name for name in BEST_FIRST if any(each.program.exists() for each in environments(name))]
    versions = [name for name, each in installed().items() if each is not None and each.program.exists()]
    return Here(cores=machine.usable_cores, frameworks=tuple(found), versions=tuple(versions))
