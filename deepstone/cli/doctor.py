"""`deepstone doctor`: what this machine has, what runs, what can be measured, and what cannot and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.jobs import first_look, quiet_machine
from deepstone.cli.options import Json, WaitUntilQuiet, examples
from deepstone.cli.output import Column, print_json, print_lines, print_table
from deepstone.cli.progress import Bar, progress_bar
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.runner.quiet import QuietMachine

EXAMPLES = examples("deepstone doctor", "deepstone doctor --peaks", "deepstone doctor --json")

_INDENT = 11  # of what follows the name of a thing


def doctor(
    peaks: Annotated[
        bool, typer.Option("--peaks", help="Also measure this machine's ceilings, and keep them for later runs.")
    ] = False,
    wait_until_quiet: WaitUntilQuiet = None,
    json: Json = False,
) -> None:
    """What this machine has, which frameworks run, what can be measured and what cannot and why.

    Features that can crash a framework are tried in processes of their own. With --peaks every framework that runs
    also measures the fastest matrix product of each precision and the fastest copy, which takes a minute or two.
    """
    from deepstone.runner.examine import examine

    if wait_until_quiet is not None and not peaks:
        raise UsageError("--wait-until-quiet: only --peaks measures; give it as well")

    with progress_bar(2 if peaks else 1) as bar:
        bar.begin("examining")
        found = examine(bar.tell).to_json()
        bar.end()
        if peaks:
            bar.begin("measuring ceilings")
            found["peaks"] = _measure_peaks(found, bar, quiet_machine(first_look(), wait_until_quiet))
    if json:
        print_json(found)
        return
    print_lines(_lines(found), hang=_INDENT)
    if peaks:
        _show_peaks(found["peaks"])


def _measure_peaks(found: dict[str, Any], bar: Bar, quiet: QuietMachine) -> list[dict[str, Any]]:
    """One entry for each framework and device, kept as soon as it is measured."""
    from deepstone.environments.find import installed
    from deepstone.runner.examine import probe_job
    from deepstone.runner.findings import peaks_finding
    from deepstone.runner.job import Machine

    machine = Machine.here()
    running = {name: environment for name, environment in installed().items() if found["frameworks"][name]["runs"]}
    devices = [str(device["name"]) for device in found["devices"]]
    entries: list[dict[str, Any]] = []
    for name, environment in running.items():
        assert environment is not None
        for device in devices:
            quiet.before([probe_job(environment, machine, {"framework": name, "device": device})], bar.say)
            entry = peaks_finding(environment, machine, device, bar.tell)
            entries.append({**entry, "framework": name} if "absent" in entry else entry)
    return entries


def _show_peaks(entries: list[dict[str, Any]]) -> None:
    from deepstone.records.schema import is_absent

    columns = [
        Column(heading="device"),
        Column(heading="framework", rank=1),
        Column(heading="threads", right=True, rank=1),
        Column(heading="what"),
        Column(heading="ceiling", right=True),
        Column(heading="95 % interval", right=True, rank=1),
        Column(heading="why not", rank=1, wraps=20),
    ]
    rows: list[list[str]] = []
    for entry in entries:
        if is_absent(entry):
            rows.append([entry["device"], entry["framework"], "", "", "", "", entry["absent"]])
            continue
        threads = "" if is_absent(entry["threads"]) else str(entry["threads"])
        head = [entry["device"], entry["framework"], threads]
        rows += [
            [*head, *_ceiling(f"{precision} product", "FLOP/s", quantity)]
            for precision, quantity in entry["flops_per_s"].items()
        ]
        rows += [[*head, *_ceiling("copy, read + written", "B/s", entry["bytes_per_s"]["copy"])]]
        if not is_absent(entry["link"]):
            rows += [[*head, *_ceiling(f"link to {peer}", "B/s", rate)] for peer, rate in entry["link"].items()]
    print_lines([""])
    print_table(columns, rows)
    doubts = [
        f"doubt: {entry['framework']}: {doubt['code']}: {doubt['detail']}"
        for entry in entries
        for doubt in entry.get("doubts", [])
    ]
    print_lines(["", *doubts, "Kept for `run` and `layers`, which hold what they measure against the highest of each."])


def _ceiling(what: str, unit: str, quantity: dict[str, Any]) -> list[str]:
    from deepstone.records.quantity import span_in_words
    from deepstone.records.schema import is_absent
    from deepstone.units import count

    if is_absent(quantity):
        return [what, "", "", quantity["absent"]]
    return [what, count(quantity["median"], unit), span_in_words(quantity, count), ""]


def _lines(found: dict[str, Any]) -> list[str]:
    from deepstone.records.schema import is_absent
    from deepstone.units import bytes_

    machine = found["machine"]
    cpu = machine["cpu"]
    lines = [
        f"machine    {cpu['model']}, {cpu['physical_cores']} cores ({cpu['usable_cores']} usable), "
        f"{bytes_(machine['memory_bytes'])}, {machine['os']['distribution']}"
    ]
    lines += [f"device     {device['name']}: {device['what']}" for device in found["devices"]]
    for name, framework in found["frameworks"].items():
        state = "runs" if framework["runs"] else f"does not run: {framework['why']}"
        lines.append(f"framework  {' '.join(filter(None, (name, framework['version'])))}: {state}")
        for feature, probe in framework.get("features", {}).items():
            lines.append(f"             {feature}: {'works' if probe['works'] else probe['why']}")
    for name, meter in found["meters"].items():
        lines.append(f"meter      {name}: {meter['absent'] if is_absent(meter) else meter['covers']}")
    lines += [f"missing    {entry['what']}: {entry['why']} → {entry['remedy']}" for entry in found["missing"]]
    return lines
