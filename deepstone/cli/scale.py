"""`deepstone scale`: how much faster several processes train than one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.cli.declare import examples, file, seconds
from deepstone.cli.draw import check_figure, draw_figure
from deepstone.cli.jobs import image_size, image_words, noise_at_start, quiet_machine
from deepstone.cli.options import Axes, Image, MeasuringOptions, Model, NoPhases, OutputOptions
from deepstone.cli.output import Column, print_json, print_lines, print_table
from deepstone.cli.plans import Planned, expected_s, print_setups
from deepstone.cli.progress import Bar, progress_bar
from deepstone.cli.stores import store_folder
from deepstone.errors import UsageError, nearest, shown
from deepstone.setups.request import changed
from deepstone.units import digits
from deepstone.units import seconds as in_seconds

if TYPE_CHECKING:
    from deepstone.measure.effort import Effort
    from deepstone.measure.scaling import ScalingPoint
    from deepstone.models.load import LoadedModel
    from deepstone.results.quantity import Quantity
    from deepstone.results.record import Record
    from deepstone.results.scaling import Scaling, ScalingEntry
    from deepstone.runner.job import Job
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.axes import Value
    from deepstone.setups.request import Choices
    from deepstone.store.store import Store

EXAMPLES = examples(
    "deepstone scale cifarnet processes=1,2,4 mode=strong batch=96 -o scale.svg",
    "deepstone scale alexnet-owt processes=1,2 mode=weak batch=8/process --json",
    before="mode=strong (the default) keeps the batch of the whole job, mode=weak that of each process.",
)
_NEAR_THE_BEST: Final = 0.85  # of its rate in the first round: what is slower is not the base
_SURELY_SLOWER: Final = 0.9  # of that rate in the fastest of a few steps
_LONG_STEP_S: Final = 0.5
_WORDS: Final = {"mode": ("strong", "weak"), "base": ("best", "all", "same")}
_LEAST_SAMPLES: Final = 3  # of a run among as many rounds: the interval is that of rounds


def scale(
    model: Model,
    axes: Axes = None,
    image: Image = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="So often each is measured, in turns.", metavar="N", min=1, max=100)
    ] = 3,
    budget: Annotated[float, seconds("--budget", "Stop a run after so many seconds of timed steps.")] = 10.0,
    no_phases: NoPhases = False,
    *,
    measuring: MeasuringOptions,
    output: Annotated[Path | None, file("-o", "--output", help="Draw it: .svg, .png or .html.", metavar="FILE")] = None,
    source: Annotated[
        Path | None,
        file("--from", help="Measure nothing: answer from the runs of an export, maybe of another machine."),
    ] = None,
    out: OutputOptions,
) -> None:
    """Measure how much faster several processes train than one: speed-up and efficiency, with intervals.

    Every round measures the base and all numbers of processes; ratios are taken within a round. base=best (the
    default) is the fastest single process over numbers of threads: all cores, half of them, and so on while that
    helps. base=all is one process with all cores, base=same one with as many threads as each of the most processes has.
    What is stored already is not measured again.
    """
    begin = noise_at_start()
    check_figure(output)
    options = [*image_words(image), *changed(("--rounds", rounds, 3), ("--budget", budget, 10.0))]
    options += ["--no-phases"] if no_phases else []
    options += [] if source is None else ["--from", str(source)]
    published = [] if source is None else _read(source)
    plan = _planned(model, list(axes or []), image, rounds, options, measuring.timeout, cores=_cores(published))
    if out.dry_run:
        print_setups(plan.setups, "what", plan.expected(budget), named=("processes", "threads"), as_json=out.json)
        return
    from deepstone.measure.effort import Effort

    effort = Effort(target_share=0.02, budget_s=budget, timeout_s=measuring.timeout, phases=not no_phases)
    if rounds >= _LEAST_SAMPLES:
        effort = replace(effort, least_samples=_LEAST_SAMPLES)
    if source is None:
        records = _measured(plan, effort, store_folder(out.store), quiet_machine(begin, measuring.wait_until_quiet))
    else:
        records = _published(plan, published, source)
    answer = _answer(plan, records)
    if out.json:
        print_json(answer.result)
    else:
        _show(answer)
    if answer.failed:
        raise typer.Exit(1)
    draw_figure(answer.result, output)


class _Plan(Struct, frozen=True, kw_only=True):
    """`points`: by number of processes, one job for each round. `bases`: the same of every candidate, by its name."""

    title: str
    command: tuple[str, ...]
    mode: Literal["strong", "weak"]
    points: Mapping[int, Sequence[Job]]
    bases: Mapping[str, Sequence[Job]]

    @property
    def setups(self) -> list[Planned]:
        """At most, each job once: one process may be a point and a candidate for the base."""
        found = [Planned(name=f"base, {name}", jobs=jobs) for name, jobs in self.bases.items()]
        known = {job.id for each in found for job in each.jobs}
        points = {count: jobs for count, jobs in self.points.items() if jobs[0].id not in known}
        return [*found, *(Planned(name=_processes(count), jobs=jobs) for count, jobs in points.items())]

    @property
    def all_jobs(self) -> list[Job]:
        return [job for each in self.setups for job in each.jobs]

    def expected(self, budget_s: float) -> str:
        """How many launches, and how long they take, as far as one can know."""
        from deepstone.studies.durations import duration

        jobs = self.all_jobs
        about = duration(sum(expected_s(job, budget_s) for job in jobs))
        fewer = "; candidates for the base that are slower in the first round are left out" * (len(self.bases) > 1)
        return (
            f"at most {len(jobs)} launches in {_rounds(self.rounds)}: about {about} if all budgets are spent "
            f"({len(jobs)} × {budget_s:g} s), start-up included{fewer}"
        )

    @property
    def rounds(self) -> int:
        return len(next(iter(self.points.values())))


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _read(path: Path) -> list[Record]:
    from deepstone.store.importing import read_records

    return read_records(path)


def _cores(records: Sequence[Record]) -> int:
    """Of the machine that measured: the one of the records, or this one."""
    from deepstone.analysis.elsewhere import cores_of
    from deepstone.runner.job import Machine

    return cores_of(records) or Machine.here().usable_cores


def _published(plan: _Plan, records: Sequence[Record], path: Path) -> dict[str, Record]:
    """By job. All numbers of processes must be there, and one process, in every round."""
    from deepstone.analysis.elsewhere import runs_elsewhere

    found = runs_elsewhere({job.id: job.identity for job in plan.all_jobs}, records)
    for count, jobs in plan.points.items():
        for number, job in enumerate(jobs, start=1):
            if job.id not in found:
                raise UsageError(
                    f"{path}: has no run of processes={count} in round {number} with this setup on the machine with "
                    "most of the others; name the setup as the commands of its records do, or fewer --rounds"
                )
    if not any(all(job.id in found for job in jobs) for jobs in plan.bases.values()):
        raise UsageError(f"{path}: has no run of the one process to compare with; give base=all or base=same")
    return found


def _planned(
    model: str,
    words: list[str],
    image: str | None,
    rounds: int,
    options: Sequence[str],
    timeout_s: float,
    *,
    cores: int,
) -> _Plan:
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import parse_words

    asked = _own_words(words)
    choices = parse_words([word for word in words if word.partition("=")[0] not in _WORDS])
    counts = _counts(choices)
    given = {name: values[0] for name, values in choices.items() if name != "processes"}
    if asked["mode"] == "weak" and not str(given.get("batch", "")).endswith("/process"):
        raise UsageError("mode=weak keeps the batch of each process; give it as batch=8/process")
    loaded = load_model(model, frameworks=choices.get("framework", ()), timeout_s=timeout_s, image=image_size(image))
    command = ("deepstone", "scale", model, *words, *options)
    points = {count: _jobs(loaded, {**given, "processes": count}, rounds, command) for count in counts}
    bases = {
        name: _jobs(loaded, {**given, **threads, "processes": 1}, rounds, command)
        for name, threads in _base_threads(given, asked["base"], max(counts), cores).items()
    }
    mode = "weak" if asked["mode"] == "weak" else "strong"
    return _Plan(title=loaded.graph.name, command=command, mode=mode, points=points, bases=bases)


def _own_words(words: Sequence[str]) -> dict[str, str]:
    """What is no axis: `mode` and `base`."""
    from deepstone.setups.axes import AXES

    found = {"mode": "strong", "base": "best"}
    for word in words:
        name, _, value = word.partition("=")
        if name in _WORDS:
            if value not in _WORDS[name]:
                raise UsageError(f"{word}: not a value of {name}; {nearest(value, _WORDS[name])}")
            found[name] = value
        elif "=" in word and name not in AXES:
            raise UsageError(f"{shown(name)}: no such axis; {nearest(name, [*_WORDS, *AXES])}")
    return found


def _counts(choices: Choices) -> list[int]:
    for name, values in choices.items():
        if name != "processes" and len(values) > 1:
            raise UsageError(f"{name}: scale takes one value; only processes may list several")
    counts = choices.get("processes", [])
    if not counts or not all(isinstance(count, int) for count in counts):
        raise UsageError("scale needs numbers of processes, as in processes=1,2,4")
    return sorted(int(count) for count in counts)


def _base_threads(given: Mapping[str, Value], base: str, most: int, cores: int) -> dict[str, dict[str, Value]]:
    """Candidates for the one process that others are compared with, from all cores to one."""
    if "threads" in given:
        return {f"threads={given['threads']}": {}}
    if base == "same":
        threads = max(1, cores // most)
        return {f"threads={threads}": {"threads": threads}}
    found: dict[str, dict[str, Value]] = {"threads=auto": {}}
    threads = cores // 2 if base == "best" else 0
    while threads:
        found[f"threads={threads}"] = {"threads": threads}
        threads //= 2
    return found


def _jobs(loaded: LoadedModel, given: Mapping[str, Value], rounds: int, command: Sequence[str]) -> list[Job]:
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job
    from deepstone.setups.request import complete
    from deepstone.setups.world import BETWEEN_PROCESSES

    if given["processes"] == 1:  # it exchanges nothing, whatever the others do
        given = {name: value for name, value in given.items() if name not in (*BETWEEN_PROCESSES, "launcher")}
    machine, request = Machine.here(), complete(given)
    return [make_job(loaded, request, machine, command, repetition=number) for number in range(1, rounds + 1)]


class _Measuring:
    """Measures jobs into the store. A run that is stored already is taken as it is: what was stopped goes on."""

    def __init__(self, effort: Effort, store: Store, quiet: QuietMachine, bar: Bar) -> None:
        self._effort = effort
        self._store = store
        self._quiet = quiet
        self._bar = bar
        self.records: dict[str, Record] = {}  # by job

    def measure(self, job: Job) -> Record:
        from deepstone.runner.job import title
        from deepstone.runner.run import run_job

        if job.id not in self.records:
            self._bar.begin(f"{title(job)} processes={job.request['processes']}")
            known = _stored(self._store, job)
            if known is None:
                self._quiet.before([job], self._bar.say)
                known = self._store.add(run_job(job, self._effort_for(job), self._bar.advance))
                self._bar.say(f"stored {known.id}")
            self.records[job.id] = known
            self._bar.end()
        return self.records[job.id]

    def is_surely_slower(self, job: Job, than_per_s: float) -> bool:
        """Where steps are long, a look at a few of them spares a run that cannot be the base."""
        from deepstone.runner.run import steps_at_a_glance

        if job.id in self.records or _stored(self._store, job) is not None or not self._has_long_steps:
            return False
        self._bar.say(f"looking at threads={job.request['threads']}")
        fastest_s = steps_at_a_glance(job, timeout_s=self._effort.timeout_s)
        return fastest_s is not None and job.batch / fastest_s < _SURELY_SLOWER * than_per_s

    @property
    def _has_long_steps(self) -> bool:
        known = [each.summary.step_s.median for each in self.records.values() if not isinstance(each.summary, Absent)]
        return max(known, default=0.0) >= _LONG_STEP_S

    def _effort_for(self, job: Job) -> Effort:
        """Where steps are long, phases and communication are those of the first round: they take most of a run."""
        first = self.records.get(replace(job, repetition=1).id)
        if first is None or isinstance(first.summary, Absent) or first.summary.step_s.median < _LONG_STEP_S:
            return self._effort
        return replace(self._effort, phases=False)


def _measured(plan: _Plan, effort: Effort, folder: Path, quiet: QuietMachine) -> dict[str, Record]:
    """By job: round by round, in another order each time. What cannot be the base is left out after the first round."""
    from deepstone.store.store import Store

    store = Store.open(folder)
    store.probe()
    order = random.Random(0)
    with progress_bar(len(plan.points) * plan.rounds + len(plan.bases)) as bar:
        measuring = _Measuring(effort, store, quiet, bar)
        bases = _possible_bases(plan, measuring)
        for number in range(plan.rounds):
            of_round = [*(plan.bases[name][number] for name in bases), *(jobs[number] for jobs in plan.points.values())]
            for job in order.sample(of_round, len(of_round)):
                measuring.measure(job)
    return measuring.records


def _possible_bases(plan: _Plan, measuring: _Measuring) -> list[str]:
    """In the first round, fewer and fewer threads are tried as long as that is faster; those near the best stay."""
    rates: dict[str, float] = {}
    for name, jobs in plan.bases.items():
        if rates and measuring.is_surely_slower(jobs[0], _NEAR_THE_BEST * max(rates.values())):
            break
        rates[name] = _rate(measuring.measure(jobs[0]))
        if rates[name] < _NEAR_THE_BEST * max(rates.values()):
            break
    return [name for name, rate in rates.items() if rate >= _NEAR_THE_BEST * max(rates.values())]


def _stored(store: Store, job: Job) -> Record | None:
    good = [record for run in store.runs_of(job.id) if (record := store.get(run)).outcome == "ok"]
    return good[-1] if good else None


class _Answer(Struct, frozen=True, kw_only=True):
    plan: _Plan
    base: str
    base_records: Sequence[Record]
    points: Sequence[ScalingPoint]
    records: Mapping[int, Sequence[Record]]
    failed: Mapping[int, str]

    @property
    def result(self) -> Scaling:
        from deepstone.analysis.step_parts import middle_of
        from deepstone.results.scaling import Scaling, ScalingBase, ScalingFailure

        runs = [record.id for record in self.base_records]
        return Scaling(
            schema=1,
            kind="scale",
            model=self.plan.title,
            mode=self.plan.mode,
            command=list(self.plan.command),
            base=ScalingBase(
                setup=self.base,
                samples_per_s=list(_rate_of(self.base_records)),
                step=middle_of(self.base_records),
                runs=runs,
            ),
            points=[self._entry(point) for point in self.points],
            failed=[ScalingFailure(processes=count, reason=reason) for count, reason in self.failed.items()],
        )

    def _entry(self, point: ScalingPoint) -> ScalingEntry:
        from deepstone.analysis.step_parts import middle_of
        from deepstone.results.scaling import ScalingEntry

        records = self.records[point.processes]
        return ScalingEntry(
            processes=point.processes,
            nodes=int(records[0].setup.requested.get("nodes", 1)),
            batch=records[0].workload.batch,
            samples_per_s=point.samples_per_s,
            speedup=point.speedup,
            efficiency=point.efficiency,
            exposed_s=exposed_of(records),
            step=middle_of(records),
            doubts=self.doubts(point),
            runs=[record.id for record in records],
        )

    def doubts(self, point: ScalingPoint) -> list[str]:
        found = {doubt.code for record in self.records[point.processes] for doubt in record.doubts}
        return sorted(found | ({"base_too_slow"} if point.is_beyond_ideal else set()))


def exposed_of(records: Sequence[Record]) -> Quantity | Absent:
    """What communication adds to a step: of the middle one of the rounds that measured it."""
    found = [
        record.phases.communication_s
        for record in records
        if not isinstance(record.phases, Absent) and not isinstance(record.phases.communication_s, Absent)
    ]
    if found:
        return sorted(found, key=lambda each: each.median)[len(found) // 2]
    return Absent("one process") if records[0].parallel is None else Absent("not measured in these runs")


def _rate_of(records: Sequence[Record]) -> list[float]:
    return [rate for record in records if (rate := _rate(record))]


def _rate(record: Record) -> float:
    return 0.0 if isinstance(record.summary, Absent) else record.summary.samples_per_s.median


def _answer(plan: _Plan, records: Mapping[str, Record]) -> _Answer:
    from statistics import median

    from deepstone.measure.scaling import scaling_points

    bases = {
        name: [records[job.id] for job in jobs]
        for name, jobs in plan.bases.items()
        if all(job.id in records for job in jobs)
    }
    usable = {name: found for name, found in bases.items() if all(record.outcome == "ok" for record in found)}
    if not usable:
        reason = next(iter(bases.values()))[0].failure
        raise UsageError(f"one process could not be measured: {'' if isinstance(reason, Absent) else reason.reason}")
    base = max(usable, key=lambda name: median(_rate_of(usable[name])))
    of_points = {count: [records[job.id] for job in jobs] for count, jobs in plan.points.items()}
    good = {count: found for count, found in of_points.items() if all(record.outcome == "ok" for record in found)}
    failed = {count: _why(found) for count, found in of_points.items() if count not in good}
    rates = {count: _rate_of(found) for count, found in good.items()}
    return _Answer(
        plan=plan,
        base=base,
        base_records=usable[base],
        points=scaling_points(rates, _rate_of(usable[base])),
        records=good,
        failed=failed,
    )


def _why(records: Sequence[Record]) -> str:
    found = [record.failure for record in records]
    return next((f"{each.reason}" for each in found if not isinstance(each, Absent)), "")


def _show(answer: _Answer) -> None:
    workload = answer.base_records[0].workload
    columns = [
        Column(heading="processes", right=True),
        Column(heading="batch", right=True),
        Column(heading=f"{workload.things}/s", right=True),
        Column(heading="speed-up", right=True),
        Column(heading="efficiency", right=True),
        Column(heading="exposed\ncommunication", right=True, rank=1),
        Column(heading="doubts", rank=2, wraps=20, below=True),
    ]
    rows = [
        (
            str(point.processes),
            str(answer.records[point.processes][0].workload.batch),
            digits(point.samples_per_s.median * workload.things_per_sample),
            _in_words(point.speedup),
            _in_words(point.efficiency),
            _seconds(exposed_of(answer.records[point.processes])),
            ", ".join(answer.doubts(point)),
        )
        for point in answer.points
    ]
    plan = answer.plan
    rounds = _rounds(plan.rounds)
    print_lines([f"{plan.title}, {plan.mode} scaling over one process with {answer.base}, {rounds}", ""])
    print_table(columns, rows)
    print_lines([f"{count} processes failed: {reason}" for count, reason in answer.failed.items()])


def _in_words(quantity: Quantity) -> str:
    if not quantity.has_interval:
        return digits(quantity.median)
    return f"{digits(quantity.median)} ({digits(quantity.low)} – {digits(quantity.high)})"


def _seconds(quantity: Quantity | Absent) -> str:
    return "–" if isinstance(quantity, Absent) else in_seconds(quantity.median)
