"""`deepstone doctor`: what this machine has, what runs, what can be measured, and what cannot and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import examples
from deepstone.cli.findings import FindingStore
from deepstone.cli.jobs import noise_at_start, quiet_machine
from deepstone.cli.options import Json, StorePath, WaitUntilQuiet
from deepstone.cli.output import Column, print_json, print_lines, print_table
from deepstone.cli.progress import Bar, progress_bar
from deepstone.errors import UsageError
from deepstone.units import bytes_, count, seconds

if TYPE_CHECKING:
    from deepstone.results.ceilings import Ceiling
    from deepstone.results.environment import Machine as DescribedMachine
    from deepstone.runner.examine import Examination
    from deepstone.runner.launcher_trial import LauncherFound, Trial
    from deepstone.runner.quiet import QuietMachine

EXAMPLES = examples(
    "deepstone doctor", "deepstone doctor --peaks", "deepstone doctor --launchers", "deepstone doctor --json"
)

_INDENT = 11  # of what follows the name of a thing


def doctor(
    ctx: typer.Context,
    peaks: Annotated[
        bool, typer.Option("--peaks", help="Also measure this machine's ceilings, and keep them for later runs.")
    ] = False,
    launchers: Annotated[
        bool, typer.Option("--launchers", help="Also have each launcher start two processes that train together.")
    ] = False,
    wait_until_quiet: WaitUntilQuiet = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """What this machine has, which frameworks run, what can be measured and what cannot and why.

    Features that can crash a framework are tried in processes of their own. With --peaks every framework that runs
    also measures the fastest matrix product of each precision and the fastest copy, which takes a minute or two; the
    store keeps them. With --launchers every launcher that is here starts two processes, which train some steps
    together by every transport that it offers.
    """
    from msgspec.structs import replace

    from deepstone.environments.find import installed
    from deepstone.runner.examine import examine
    from deepstone.runner.job import Machine
    from deepstone.runner.launcher_trial import find_launchers, try_launchers
    from deepstone.setups.axes import AXES

    if wait_until_quiet is not None and not peaks:
        raise UsageError("--wait-until-quiet: only --peaks measures; give it as well")
    source = ctx.get_parameter_source("store")
    if source is not None and source.name == "COMMANDLINE" and not peaks:  # not where a variable names the store
        raise UsageError("--store: only --peaks measures; give it as well")
    kept = FindingStore.open(store) if peaks else None

    with progress_bar(1 + peaks + launchers) as bar:
        bar.begin("examining")
        found = examine(bar.advance)
        able = AXES["processes"].honoured_by
        parallel = next((each for name, each in installed().items() if name in able and each is not None), None)
        engines, missing = find_launchers(parallel)
        found = replace(found, missing=[*found.missing, *missing])
        bar.end()
        if launchers and parallel is not None:
            bar.begin("trying launchers")
            engines = try_launchers(engines, parallel, Machine.here(), bar.advance)
            bar.end()
        ceilings: list[tuple[Ceiling, str]] = []
        if kept is not None:
            bar.begin("measuring ceilings")
            ceilings = _measure_peaks(found, bar, quiet_machine(noise_at_start(), wait_until_quiet), kept)
    if json:
        measured = {"peaks": [entry for entry, _ in ceilings], "findings": [id for _, id in ceilings if id]}
        of_launchers = {"launchers": {name: engine.to_json() for name, engine in engines.items()}}
        print_json({**found.to_json(), **of_launchers, **(measured if peaks else {})})
    else:
        print_lines(_lines(found, engines), hang=_INDENT)
        if peaks:
            print_lines([""])
            show_peaks([entry for entry, _ in ceilings])
            print_lines(["Kept for `run` and `layers`, which hold what they measure against the highest of each."])
    if kept is not None:
        kept.leave_if_failed()


def _measure_peaks(found: Examination, bar: Bar, quiet: QuietMachine, store: FindingStore) -> list[tuple[Ceiling, str]]:
    """One for each framework and device, stored as soon as it is measured, with its id; no id where nothing was."""
    from msgspec.structs import replace

    from deepstone.environments.find import installed
    from deepstone.runner.assemble import now
    from deepstone.runner.examine import probe_job
    from deepstone.runner.findings import ceilings_finding, peaks_finding
    from deepstone.runner.job import Machine

    machine = Machine.here()
    running = {name: environment for name, environment in installed().items() if found.frameworks[name].runs}
    ceilings: list[tuple[Ceiling, str]] = []
    for name, environment in running.items():
        assert environment is not None
        for device in found.devices:
            where = str(device.name)
            job = replace(
                probe_job(environment, machine, {"framework": name, "device": where}),
                command=("deepstone", "doctor", "--peaks"),
            )
            quiet.before([job], bar.say)
            started_at = now()
            entry = peaks_finding(environment, machine, where, bar.advance)
            if entry.absent is not None:
                ceilings.append((replace(entry, framework=name), ""))
                continue
            stored = store.keep(ceilings_finding(entry), job, started_at=started_at, say=bar.say)
            ceilings.append((entry, stored.id or ""))
    return ceilings


def show_peaks(ceilings: Sequence[Ceiling]) -> None:
    columns = [
        Column(heading="device"),
        Column(heading="framework", rank=1),
        Column(heading="threads", right=True, rank=1),
        Column(heading="what"),
        Column(heading="ceiling", right=True),
        Column(heading="95 % interval", right=True, rank=1),
        Column(heading="why not", rank=1, wraps=20),
    ]
    print_table(columns, [row for each in ceilings for row in _rows(each)])
    doubts = [
        f"doubt: {each.framework}: {doubt.code}: {doubt.detail}" for each in ceilings for doubt in each.doubts or []
    ]
    print_lines(["", *doubts])


def _rows(found: Ceiling) -> Iterator[list[str]]:
    if found.absent is not None:
        yield [found.device, found.framework, "", "", "", "", found.absent]
        return
    head = [found.device, found.framework, str(found.threads) if isinstance(found.threads, int) else ""]
    rates = [(f"{precision} product", "FLOP/s", rate) for precision, rate in (found.flops_per_s or {}).items()]
    rates += [("copy, read + written", "B/s", rate) for rate in (found.bytes_per_s or {}).values()]
    if found.link is not None and not isinstance(found.link, Absent):
        rates += [(f"link to {peer}", "B/s", rate) for peer, rate in found.link.items()]
    for what, unit, rate in rates:
        if isinstance(rate, Absent):
            yield [*head, what, "", "", rate.reason]
        else:
            yield [*head, what, count(rate.median, unit), rate.span_in_words(count), ""]


def _lines(found: Examination, launchers: Mapping[str, LauncherFound]) -> list[str]:
    lines = [f"machine    {_machine(found.machine)}"]
    lines += [f"device     {device.name}: {_told(device.what)}" for device in found.devices]
    for name, framework in found.frameworks.items():
        state = "runs" if framework.runs else f"does not run: {framework.why}"
        lines.append(f"framework  {' '.join(filter(None, (name, framework.version)))}: {state}")
        for feature, probe in (framework.features or {}).items():
            lines.append(f"             {feature}: {'works' if probe.works else probe.why}")
    for name, launcher in launchers.items():
        version = " ".join(part for part in (launcher.kind, launcher.version) if part and part != name)
        library = f"; mpi4py loads {launcher.library}" if launcher.library else ""
        state = f"{version or 'Deepstone itself'}{library}" if launcher.here else f"not there: {launcher.why}"
        lines.append(f"launcher   {name}: {state}")
        for transport, trial in (launcher.trials or {}).items():
            lines.append(f"             2 processes by {transport}: {_trial(trial)}")
    for name, meter in found.meters.items():
        lines.append(f"meter      {name}: {meter.reason if isinstance(meter, Absent) else meter.covers}")
    lines += [f"missing    {entry.what}: {entry.why} → {entry.remedy}" for entry in found.missing]
    return lines


def _trial(trial: Trial) -> str:
    if not trial.works or isinstance(trial.start_s, Absent):
        return trial.why
    return f"train together; they took {seconds(trial.start_s)} to start and meet"


def _machine(machine: DescribedMachine) -> str:
    from deepstone.results.environment import Cpu, OperatingSystem

    cpu = machine.cpu if isinstance(machine.cpu, Cpu) else Cpu()
    system = machine.os if isinstance(machine.os, OperatingSystem) else OperatingSystem()
    cores = f"{_told(cpu.physical_cores)} cores ({_told(cpu.usable_cores)} usable)"
    memory = bytes_(machine.memory_bytes) if isinstance(machine.memory_bytes, int) else "memory not known"
    return f"{_told(cpu.model)}, {cores}, {memory}, {_told(system.distribution)}"


def _told(value: str | int | Absent | None) -> str:
    return f"not known ({value.reason})" if isinstance(value, Absent) else str(value)
