"""`deepstone tune`: find the best setup of a workload here, and say why it is the best."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct

from deepstone.absent import Absent
from deepstone.cli.declare import examples, file
from deepstone.cli.draw import check_figure, check_folder, draw_figure
from deepstone.cli.findings import FindingStore
from deepstone.cli.jobs import image_size, image_words, noise_at_start, quiet_machine, wait_limit_s
from deepstone.cli.options import Axes, Image, Model, OutputOptions, Timeout, WaitUntilQuiet
from deepstone.cli.output import note, print_json, write
from deepstone.cli.progress import Bar, progress_bar
from deepstone.cli.show_tune import show_plan, show_tuned
from deepstone.cli.stopped import Stopped
from deepstone.cli.stores import named_store
from deepstone.cli.studying import given_words
from deepstone.errors import BusyMachineError, DeepstoneError, UsageError, nearest, shown
from deepstone.setups.request import changed
from deepstone.units import bytes_, digits

if TYPE_CHECKING:
    from deepstone.results.findings import Finding
    from deepstone.results.tune import Look, ObjectiveName, SameLevel, Tuned
    from deepstone.runner.job import Job
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.axes import Value
    from deepstone.tuner.tune import Tuner
    from deepstone.tuner.wanted import Wanted
    from deepstone.tuner.workload import Workload

EXAMPLES = examples(
    "deepstone tune alexnet-owt --budget 5m -o tune.html",
    "deepstone compare alexnet-owt -- @best.toml",
    "deepstone tune resnet50 batch=256 precision=auto,bf16-mixed --limit memory=40G",
    "deepstone tune cifarnet batch=32..256 --objective energy",
    "deepstone tune my_model.py:make --budget 3m --same exact",
    "deepstone tune alexnet-owt --emit torch > train.py",
    "deepstone tune alexnet-owt @best.toml --emit tensorflow --dry-run > train.py",
)
BEST: Final = "best.toml"
_WRITTEN: Final = "# Written by `deepstone tune`."
_LEVELS: Final = ("exact", "close", "any")


def tune(
    ctx: typer.Context,
    model: Model,
    axes: Axes = None,
    image: Image = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget", help="The time for all of it, as in 5m, 300s or '5 min'; a number is seconds.", metavar="TIME"
        ),
    ] = "10m",
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help="What a setup may use at most: memory=40G, power=500W. May be repeated.",
            metavar="NAME=MOST",
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="What is sought: throughput, energy (samples per joule) or memory. energy:slowdown=1.05: the least "
            "energy among setups at most 1.05 times slower than the fastest.",
            metavar="NAME",
        ),
    ] = "throughput",
    same: Annotated[
        str,
        typer.Option(
            "--same",
            help="What may change of the training: exact: the order of operations; close: rounding too, as bf16-mixed; "
            "any: also what training keeps.",
            metavar="LEVEL",
        ),
    ] = "close",
    output: Annotated[
        Path | None,
        file("-o", "--output", help=f"Draw it: .html, .svg or .png. {BEST} goes into the same folder."),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            help="Print a training program of the best setup in this framework, torch, jax or tensorflow: the network "
            "itself, as plain code. The answer goes to standard error. With --dry-run, of the setup that you give.",
            metavar="FRAMEWORK",
        ),
    ] = None,
    timeout: Timeout = 900.0,
    wait_until_quiet: WaitUntilQuiet = None,
    *,
    out: OutputOptions,
) -> None:
    """Search for the best setup of a model here, within a time; then decide in finals, and explain the gain.

    An axis with one value is fixed, one with several (precision=auto,bf16-mixed or threads=1..8) is searched over
    these, and every other one over what this machine has. The batch stays as it is unless you give it a range: another
    batch is other training. Every launch is stored, and the same command goes on after a kill. A setup that is better
    than the default goes to best.toml, in the folder of -o or else in this one; wherever AXIS=VALUE stands, @best.toml
    stands for it.
    """
    from deepstone.studies.durations import parse_duration
    from deepstone.tuner.log import check_meter
    from deepstone.tuner.wanted import LEAST_BUDGET_S, Wanted
    from deepstone.tuner.words import parse_limits, parse_objective

    begin = noise_at_start()
    budget_s = parse_duration(budget)
    if budget_s < LEAST_BUDGET_S:
        raise UsageError(
            f"--budget {shown(budget)}: a search takes at least {LEAST_BUDGET_S:g} s; some minutes are usual"
        )
    limits = [*(limit or ()), *(word for word in axes or () if _is_limit(word))]
    wanted = Wanted(
        objective=parse_objective(objective),
        limits=tuple(parse_limits(limits)),
        budget_s=budget_s,
        level=_level(same),
        timeout_s=timeout,
    )
    wait_limit_s(wait_until_quiet)
    check_figure(output)
    given = [word for word in axes or () if not _is_limit(word)]
    options = [*image_words(image), *changed(("--timeout", timeout, 900.0))]
    emitted = None if emit is None else _emitted_framework(emit, as_json=out.json)
    if emitted is not None and not any(word.startswith("framework=") for word in given):
        given.append(f"framework={emitted}")
        if not out.dry_run:
            note(f"searches framework={emitted} only, because of --emit; give framework=A,B to search over others too")
    workload = _workload(model, given, wanted, image_size(image), options)
    if emitted is not None:
        _check_searched(emitted, workload, is_given=out.dry_run)
    words = _command_words(budget, limits, objective, same, output)
    command = ("deepstone", "tune", model, *given, *options, *words)
    if out.dry_run and emitted is not None:
        _print_given(workload, given, emitted, command)
        return
    best = _best_file(output)
    check_meter(workload, wanted)
    if out.dry_run:
        show_plan(workload, wanted, command, as_json=out.json)
        return
    finding_store = FindingStore.open(out.store)
    quiet = quiet_machine(begin, wait_until_quiet)
    more = (("--emit", emit), ("--wait-until-quiet", wait_until_quiet), ("--store", named_store(ctx, out.store)))
    again = [*command, *given_words(more), *(["--json"] if out.json else [])]
    finding = _tuned(workload, wanted, finding_store, quiet, command, again)
    answer = _content(finding)
    if isinstance(answer.best.samples_per_s, Absent) and not answer.has_speeds:
        raise DeepstoneError(f"no setup could be measured; the default: {answer.best.samples_per_s.reason}")
    files = _write_best(best, answer, [model, *image_words(image)], command)
    if out.json:
        print_json({**finding.to_json(), "doubts": answer.doubts})  # JSON leaves out an empty list
    else:
        with nullcontext() if emitted is None else redirect_stdout(sys.stderr):
            show_tuned(answer, workload.job(workload.space.default).workload, files=files)
    _draw(_as_stored(finding, finding_store), output)
    if emitted is not None and not answer.nothing_within_limits:
        _print_code(answer, workload, emitted)
    finding_store.leave_if_failed()
    if answer.why_none:
        raise DeepstoneError(answer.why_none)


def _draw(finding: Finding, path: Path | None) -> None:
    """What cannot be drawn makes no search fail that has its answer."""
    from deepstone.report.figure import NothingToDrawError

    try:
        draw_figure(finding, path)
    except NothingToDrawError as error:
        note(f"{path} was not drawn: {error}")


def _emitted_framework(text: str, *, as_json: bool) -> str:
    """Check it before anything is measured."""
    from deepstone.tuner.emit import check_emitted

    framework = check_emitted(text)
    if as_json:
        raise UsageError("--emit and --json both print to standard output; choose one")
    return framework


def _check_searched(framework: str, workload: Workload, *, is_given: bool) -> None:
    """Raise UsageError if no setup of the space is in this framework. `is_given`: one setup, and no search."""
    space = workload.space
    values = next((axis.values for axis in space.axes if axis.name == "framework"), ())
    points = [space.default, *(space.with_value(space.default, "framework", value) for value in values)]
    known = sorted({workload.environments[space.framework(point)].framework for point in points})
    if framework in known:
        return
    others = ", ".join(known)
    if is_given:
        instead = f"use --emit {others}, or " if len(known) == 1 else ""
        raise UsageError(
            f"--emit {framework}: the setup that you give is one of {others}; {instead}give framework={framework}"
        )
    raise UsageError(
        f"--emit {framework}: this search has no setup in {framework}, only in {others}; give framework={framework}"
    )


def _print_code(answer: Tuned, workload: Workload, framework: str) -> None:
    from deepstone.tuner.emit import chosen_setup, emit

    space = workload.space

    def job_of(setup: Mapping[str, Value]) -> Job:
        return workload.job(space.point_of(setup) or space.default)

    samples = workload.job(space.default).workload.samples
    chosen = chosen_setup(answer, framework, lambda setup: job_of(setup).environment.framework, samples)
    write(emit(job_of(chosen.setup), chosen.found))


def _print_given(workload: Workload, words: Sequence[str], framework: str, command: Sequence[str]) -> None:
    """The code of the setup that the user gave, of which nothing was measured."""
    from deepstone.runner.new_job import make_job
    from deepstone.setups.request import expand, parse_words
    from deepstone.tuner.emit import emit
    from deepstone.tuner.words import expand_ranges

    choices = parse_words(expand_ranges(words))
    several = next((name for name, values in choices.items() if len(values) > 1 and name != "framework"), None)
    if several is not None:
        raise UsageError(
            f"--emit with --dry-run prints the code of one setup: give {several} one value, or leave out --dry-run"
        )
    name = next(name for name, each in workload.environments.items() if each.framework == framework)
    request = expand({**choices, "framework": [name]})[0]
    job = make_job(workload.model, request, workload.machine, command, environment=workload.environments[name])
    if job.broken_rule is not None:
        raise UsageError(f"--emit {framework}: {job.broken_rule}")
    write(emit(job, "It was not measured."))


def _is_limit(word: str) -> bool:
    """`--limit memory=40G power=500W`: the second of them comes as a word, and no axis has its name."""
    return word.partition("=")[0] in ("memory", "power")


def _level(text: str) -> SameLevel:
    match text.lower():
        case "exact":
            return "exact"
        case "close":
            return "close"
        case "any":
            return "any"
        case other:
            raise UsageError(f"--same {shown(text)}: {nearest(other, _LEVELS)}")


def _best_file(output: Path | None) -> Path:
    """Where the best setup goes. Refuses to overwrite a file that is not ours, before anything is measured."""
    path = (output.expanduser().parent if output is not None else Path()) / BEST
    check_folder(path)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            if not file.readline().startswith(_WRITTEN):
                raise UsageError(f"{path} is there and was not written by `deepstone tune`; rename it first")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; rename it first") from None
    return path


def _workload(
    model: str, words: Sequence[str], wanted: Wanted, image: tuple[int, int, int] | None, options: Sequence[str]
) -> Workload:
    from deepstone.tuner.workload import Workload

    memory = next((limit.most for limit in wanted.limits if limit.name == "memory"), None)
    return Workload.of(
        model,
        words,
        level=wanted.level,
        limit_bytes=None if memory is None else int(memory),
        saves_memory=wanted.objective.name == "memory",
        image=image,
        options=options,
        timeout_s=wanted.timeout_s,
    )


def _command_words(budget: str, limits: Sequence[str], objective: str, same: str, output: Path | None) -> list[str]:
    words = ["--budget", budget]
    for limit in limits:
        words += ["--limit", limit]
    words += ["--objective", objective] if objective != "throughput" else []
    words += ["--same", same] if same != "close" else []
    return words + (["-o", str(output)] if output is not None else [])


def _tuned(
    workload: Workload,
    wanted: Wanted,
    stored: FindingStore,
    quiet: QuietMachine,
    command: Sequence[str],
    again: Sequence[str],
) -> Finding:
    """`again`: the command that goes on, if this one is stopped or the machine does not become quiet."""
    from deepstone.results.findings import Finding
    from deepstone.results.record import SCHEMA
    from deepstone.tuner.log import open_log
    from deepstone.tuner.tune import Tuner

    default, kept = workload.job(workload.space.default), f"every look is stored; go on with: {shlex.join(again)}"
    try:
        with open_log(stored.store, workload, wanted, command) as log, progress_bar(1) as bar:
            if log.looks:
                bar.say(f"goes on after {len(log.looks)} looks of an earlier call")
            tuner = Tuner(
                workload=workload,
                wanted=wanted,
                store=stored.store,
                log=log,
                progress=_Progress(bar, default.workload.samples),
                before_look=lambda point: quiet.before([workload.job(point)], bar.say),
            )
            answer = tuner.tune()
            found = Finding(
                schema=SCHEMA,
                kind=answer.KIND,
                model=default.model.name,
                outcome="ok",
                command=list(command),
                content=answer,
            )
            finding = stored.keep(found, default, started_at=log.started_at, say=bar.say)
            if not stored.failed:
                tuner.finish()
            return finding
    except BusyMachineError as error:
        raise BusyMachineError(f"{error}; {kept}") from error
    except Stopped as stopped:
        stopped.kept = kept
        raise


def _as_stored(finding: Finding, stored: FindingStore) -> Finding:
    """With the machine and the workload, which the page shows."""
    return finding if finding.id is None else stored.store.findings.get(finding.id)


def _content(finding: Finding) -> Tuned:
    from deepstone.results.tune import Tuned

    assert isinstance(finding.content, Tuned)
    return finding.content


def _write_best(path: Path, answer: Tuned, model: Sequence[str], command: Sequence[str]) -> list[str]:
    """Write the best setup as `@FILE` reads it; return what was written. The default needs no file. `model`: with the
    size of its images, where the user gave it."""
    if not answer.is_better:
        if path.exists():
            note(f"{path} is of an earlier search and stays as it is: nothing better was shown here")
        return []
    said = answer.ratio.reason if isinstance(answer.ratio, Absent) else answer.gain_in_words(answer.ratio)
    lines = [
        _WRITTEN,
        f"# {shlex.join(command)}",
        f"# {said}.",
        f"# Use it: deepstone run {shlex.join([*model, f'@{BEST}'])}",
    ]
    lines += ["", "[setup]"]
    for name, value in answer.best.setup.items():
        lines.append(f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"')
    try:
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    except OSError as error:
        note(f"deepstone: {path}: cannot be written: {error.strerror}")
        return []
    return [str(path)]


class _Progress(Struct, frozen=True):
    """A line for each look, with the best so far; on a terminal also a bar."""

    bar: Bar
    samples: str

    def begin(self, title: str) -> None:
        self.bar.begin(title)

    def advance(self, stage: str, share: float) -> None:
        self.bar.advance(stage, share)

    def say(self, message: str) -> None:
        self.bar.say(message)

    def looked(self, look: Look, tuner: Tuner) -> None:
        from deepstone.studies.durations import duration
        from deepstone.tuner.answer import words_of

        space = tuner.workload.space
        result = self._result(look, tuner.wanted.objective.name)
        left = f"{duration(tuner.left_s)} left" if tuner.left_s > 0 else "time is over"
        number = f"round {look.round}" if look.round is not None else look.kind
        setup = words_of({name: value for name, value in look.setup.items() if name not in space.base})
        best, so_far = tuner.best_so_far, ""
        if look.kind not in ("final", "explain") and best is not None and best[0] != space.default:
            is_this = space.point_of(look.setup) == best[0]
            gain = _gain(best[1], tuner.wanted.objective.name)
            so_far = f", {gain} the default: the best so far" if is_this else f"; best so far {gain} the default"
        self.bar.say(f"[{len(tuner.log.looks)}, {left}] {number}: {setup}: {result}{so_far}")

    def _result(self, look: Look, sought: ObjectiveName) -> str:
        """What was measured of what is sought, and the speed."""
        speed, energy, peak = look.samples_per_s, look.samples_per_j, look.peak_bytes
        if isinstance(speed, Absent):
            return speed.reason
        rate = f"{digits(speed)} {self.samples}/s"
        if sought == "memory" and not isinstance(peak, Absent):
            return f"{bytes_(peak)}, {rate}"
        if sought == "energy" and not isinstance(energy, Absent):
            return f"{digits(energy)} {self.samples}/J, {rate}"
        return rate


def _gain(ratio: float, sought: ObjectiveName) -> str:
    """As in `1.2x` the speed of the default; less memory is a share of it."""
    if sought == "memory":
        return f"{digits(1 / ratio)}x the memory of"
    return f"{digits(ratio)}x the samples per joule of" if sought == "energy" else f"{digits(ratio)}x"
