"""Records as people read them: one in a few lines, several in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from deepstone.cli.output import console, table
from deepstone.records.schema import Quantity, Record, is_absent
from deepstone.setups.axes import AXES
from deepstone.units import bytes_, count, digits, percent, seconds

_PHASES = ("data", "forward", "backward", "communication", "update")


def show_records(records: Sequence[Record]) -> None:
    if len(records) == 1:
        show_record(records[0])
    else:
        show_table(records)


def show_record(record: Record) -> None:
    """The answer first, then what it rests on."""
    out = console()
    for line in record_lines(record):
        out.print(line, markup=False, soft_wrap=True)


def record_lines(record: Record) -> list[str]:
    workload = record["workload"]
    lines = [
        f"{workload['model']} · batch {workload['batch']} · {workload['phase']} · {_setup_in_words(record)}",
    ]
    if record["outcome"] != "ok":
        lines += [f"  {line}" for line in _failure_lines(record)]
    summary = cast(dict[str, Any], record["summary"])
    if not is_absent(summary):
        rate, step = summary["samples_per_s"], summary["step_s"]
        lines += [
            f"  {digits(rate['median'])} images/s    95 % interval {_span(rate)} ({summary['interval']}, "
            f"{step['n']} samples after {record['samples']['warmup_steps']} steps of warm-up; {summary['stopped']})",
            f"  step {seconds(step['median'])}    {_phases_in_words(record)}",
            f"  sustained {digits(summary['sustained_samples_per_s'])} images/s    "
            f"{count(record['cost']['flops'])}FLOP a step, {count(record['cost']['flops'] / step['median'])}FLOP/s",
        ]
    lines += [f"  {_startup_in_words(record)}", f"  {_memory_in_words(record)}", f"  {_energy_in_words(record)}"]
    lines += [f"  doubt: {doubt['code']}: {doubt['detail']}" for doubt in record["doubts"]]
    lines.append(f"  run {record['id']}")
    return lines


def show_table(records: Sequence[Record]) -> None:
    """One line per run, with a column for every axis in which they differ."""
    varying = [axis for axis in AXES if len({str(record["setup"]["requested"].get(axis)) for record in records}) > 1]
    models = {record["workload"]["model"] for record in records}
    columns = [("model", "left")] if len(models) > 1 else []
    columns += [(axis, "left") for axis in varying]
    columns += [("images/s", "right"), ("95 % interval", "right"), ("step", "right")]
    columns += [(phase, "right") for phase in ("forward", "backward", "update")]
    columns += [("peak memory", "right"), ("outcome", "left"), ("doubts", "left"), ("run", "left")]
    rows = [_row(record, varying, with_model=len(models) > 1) for record in records]
    first = records[0]["workload"]
    title = None if len(models) > 1 else f"{first['model']}"
    console().print(table(columns, rows, title=title))


def _row(record: Record, varying: Sequence[str], *, with_model: bool) -> list[str]:
    cells = [record["workload"]["model"]] if with_model else []
    cells += [str(record["setup"]["requested"].get(axis, "")) for axis in varying]
    summary = cast(dict[str, Any], record["summary"])
    if is_absent(summary):
        cells += ["–", "–", "–"]
    else:
        rate = summary["samples_per_s"]
        cells += [digits(rate["median"]), _span(rate), seconds(summary["step_s"]["median"])]
    cells += [_phase(record, name) for name in ("forward", "backward", "update")]
    cells.append(_peak(record))
    cells.append(record["outcome"])
    cells.append(" ".join(doubt["code"] for doubt in record["doubts"]))
    cells.append(record["id"])
    return cells


def _setup_in_words(record: Record) -> str:
    effective = record["setup"]["effective"]
    if not effective:
        return str(record["setup"]["requested"]["framework"])
    value = {axis: str(effect["value"]) for axis, effect in effective.items()}
    parts = [value["framework"].replace("@", " "), "on", value["device"]]
    details = [value["precision"], value["layout"], value["engine"]]
    if value["device"] == "cpu":
        details += [f"{value['threads']} threads", value["isa"]]
    if value["compile"] != "off":
        details.append(f"compile={value['compile']}")
    return f"{' '.join(parts)} ({', '.join(details)})"


def _failure_lines(record: Record) -> list[str]:
    failure = cast(dict[str, Any], record["failure"])
    lines = [f"{record['outcome']}: {failure['reason']}"]
    tail = failure["stderr_tail"].strip().splitlines()[-8:]
    return lines + [f"| {line}" for line in tail]


def _span(quantity: Quantity) -> str:
    return f"{digits(quantity['low'])} – {digits(quantity['high'])}"


def _phases_in_words(record: Record) -> str:
    phases = cast(dict[str, Any], record["phases"])
    if is_absent(phases):
        return phases["absent"]
    shown = [f"{name} {_phase(record, name)}" for name in _PHASES if _phase(record, name)]
    return " · ".join(shown)


def _phase(record: Record, name: str) -> str:
    phases = cast(dict[str, Any], record["phases"])
    value = phases.get(f"{name}_s")
    return "" if value is None or is_absent(value) else seconds(value["median"])


def _startup_in_words(record: Record) -> str:
    startup = cast(dict[str, Any], record["startup"])
    known = [(name, value) for name, value in startup.items() if not is_absent(value)]
    words = [f"{name.removesuffix('_s').replace('_', ' ')} {seconds(value)}" for name, value in known]
    return "start-up: " + (" · ".join(words) or "none")


def _peak(record: Record) -> str:
    memory = cast(dict[str, Any], record["memory"])
    for name in ("device_allocated_bytes", "host_peak_bytes"):
        if not is_absent(memory.get(name, {"absent": ""})):
            return bytes_(memory[name])
    return ""


def _memory_in_words(record: Record) -> str:
    memory = cast(dict[str, Any], record["memory"])
    known = [(name, value) for name, value in memory.items() if not is_absent(value)]
    words = [f"{name.removesuffix('_bytes').replace('_', ' ')} {bytes_(value)}" for name, value in known]
    return "memory: " + " · ".join(words)


def _energy_in_words(record: Record) -> str:
    energy = cast(dict[str, Any], record["energy"])
    if is_absent(energy):
        return f"energy: not measured: {energy['absent']}"
    return (
        f"energy: {digits(energy['joules_per_step'])} J a step, {digits(energy['samples_per_j'])} images/J, "
        f"{digits(energy['average_power_w'])} W over {seconds(energy['window_s'])} "
        f"(± {percent(energy['resolution_share'])}; {', '.join(meter['covers'] for meter in energy['meters'])})"
    )
