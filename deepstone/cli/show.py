"""Records as people read them: one in a few lines, several in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from deepstone.cli.output import Column, print_lines, print_table
from deepstone.cli.progress import progress_bar
from deepstone.records.quantity import interval_in_words, span_in_words, time_in_words
from deepstone.records.schema import Record, is_absent
from deepstone.setups.axes import AUTO, AXES
from deepstone.setups.effective import LEFT_TO_FRAMEWORKS
from deepstone.units import bytes_, count, digits, percent, seconds

if TYPE_CHECKING:
    from deepstone.checks.comparable import Comparable
    from deepstone.measure.statistics import Quantity
    from deepstone.runner.job import Job

_STARTUP = ("import_s", "build_s", "first_step_s")
_MEMORY = ("host_peak_bytes", "device_allocated_bytes", "device_reserved_bytes", "analytic_bytes")
_ENERGY = ("joules_per_step", "samples_per_j", "average_power_w", "window_s", "resolution_share")
_PHASES = ("data", "forward", "backward", "communication", "update")


def show_records(records: Sequence[Record]) -> None:
    if len(records) == 1:
        show_record(records[0])
    else:
        show_table(records)


def show_record(record: Record) -> None:
    """The answer first, then what it rests on."""
    print_lines(record_lines(record), hang=4)


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
            f"  {digits(rate['median'])} images/s    {interval_in_words(rate, digits)} ({summary['interval']}, "
            f"{counted(step['n'], 'sample')} after {counted(record['samples']['warmup_steps'], 'step')} of warm-up; "
            f"{summary['stopped']})",
            f"  step {seconds(step['median'])}    {_phases_in_words(record)}",
            f"  sustained {digits(summary['sustained_samples_per_s'])} images/s{_flops_in_words(record)}",
        ]
    lines += [f"  {line}" for line in (_startup_in_words(record), _memory_in_words(record)) if line]
    if not is_absent(summary):
        lines.append(f"  {_energy_in_words(record)}")
    unread = _not_read_back(record)
    if unread and record["outcome"] == "ok":
        lines.append(f"  not read back: {unread}; the framework does not tell whether it did so")
    lines += [f"  doubt: {doubt['code']}: {doubt['detail']}" for doubt in record["doubts"]]
    lines.append(f"  run {record['id']}")
    return lines


def show_table(records: Sequence[Record], *, extra: tuple[str, Mapping[str, str]] | None = None) -> None:
    """One line per run, with a column for every axis in which they differ, and a further one by run if given."""
    varying = [axis for axis in AXES if len({str(record["setup"]["requested"].get(axis)) for record in records}) > 1]
    models = {record["workload"]["model"] for record in records}
    columns = [Column(heading="model")] if len(models) > 1 else []
    columns += [Column(heading=axis) for axis in varying]
    columns += [
        Column(heading="images/s", right=True),
        Column(heading="95 % interval", right=True),
        *([Column(heading=extra[0], right=True)] if extra else []),
        Column(heading="outcome", rank=1),
        Column(heading="doubts", rank=2, wraps=20),
        Column(heading="step", right=True, rank=3),
        *(Column(heading=phase, right=True, rank=5) for phase in ("forward", "backward", "update")),
        Column(heading="peak\nmemory", right=True, rank=4),
        Column(heading="run", rank=6),
    ]
    if len(models) == 1:
        print_lines([_common_in_words(records), ""])
    rows = [
        _row(record, varying, with_model=len(models) > 1, extra=extra[1][record["id"]] if extra else None)
        for record in records
    ]
    print_table(columns, rows)


def _common_in_words(records: Sequence[Record]) -> str:
    """What all records share, as far as it was asked for."""
    first = records[0]["setup"]["requested"]
    same = [
        f"{axis}={first[axis]}"
        for axis in AXES
        if axis in first
        and first[axis] != AXES[axis].default
        and all(record["setup"]["requested"].get(axis) == first[axis] for record in records)
    ]
    return " · ".join([records[0]["workload"]["model"], *same])


def _row(record: Record, varying: Sequence[str], *, with_model: bool, extra: str | None) -> list[str]:
    cells = [record["workload"]["model"]] if with_model else []
    cells += [str(record["setup"]["requested"].get(axis, "")) for axis in varying]
    summary = cast(dict[str, Any], record["summary"])
    measured = not is_absent(summary)
    cells += (
        [digits(summary["samples_per_s"]["median"]), span_in_words(summary["samples_per_s"], digits)]
        if measured
        else ["–", "–"]
    )
    cells += [] if extra is None else [extra]
    cells += [record["outcome"], " ".join(doubt["code"] for doubt in record["doubts"])]
    cells.append(seconds(summary["step_s"]["median"]) if measured else "–")
    cells += [_phase(record, name) for name in ("forward", "backward", "update")]
    cells += [_peak(record), record["id"]]
    return cells


def _setup_in_words(record: Record) -> str:
    value = {axis: str(effect["value"]) for axis, effect in record["setup"]["effective"].items()}
    if not {"framework", "device"} <= set(value):
        return str(record["setup"]["requested"].get("framework", "framework unknown"))
    details = [value[axis] for axis in ("precision", "layout", "engine") if axis in value]
    if value["device"] == "cpu":
        threads = value.get("threads", "")
        details += [counted(int(threads), "thread")] if threads.isdecimal() else []
        details += [value["isa"]] if "isa" in value else []
    if value.get("compile", "off") != "off":
        details.append(f"compile={value['compile']}")
    return f"{value['framework'].replace('@', ' ')} on {value['device']} ({', '.join(details)})"


def _not_read_back(record: Record) -> str:
    """What was asked of the framework, and nothing it did shows."""
    asked, done = record["setup"]["requested"], record["setup"]["effective"]
    chosen = [axis for axis in LEFT_TO_FRAMEWORKS if asked.get(axis, AUTO) != AUTO and axis in done]
    return ", ".join(f"{axis}={asked[axis]}" for axis in chosen if done[axis]["source"] == "set")


def _failure_lines(record: Record) -> list[str]:
    failure = cast(dict[str, Any], record["failure"])
    lines = [f"{record['outcome']}: {failure['reason']}"]
    tail = failure["stderr_tail"].strip().splitlines()[-8:]
    return lines + [f"| {line}" for line in tail]


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _phases_in_words(record: Record) -> str:
    phases = cast(dict[str, Any], record["phases"])
    if is_absent(phases):
        return phases["absent"]
    shown = [f"{name} {_phase(record, name)}" for name in _PHASES if _phase(record, name)]
    return " · ".join(shown)


def _phase(record: Record, name: str) -> str:
    phases = cast(dict[str, Any], record["phases"])
    value = phases.get(f"{name}_s")
    return "" if value is None or is_absent(value) else time_in_words(value)


def _flops_in_words(record: Record) -> str:
    """Nothing where they are not known."""
    flops, summary = record["cost"]["flops"], cast(dict[str, Any], record["summary"])
    if not isinstance(flops, int):
        return ""
    rate = f"{count(flops / summary['step_s']['median'])}FLOP/s"
    return f"    {count(flops)}FLOP a step, {rate}{_share_in_words(record['share_of_peak'])}"


def _share_in_words(share: object) -> str:
    """Of the fastest matrix product; nothing where that is not known, or written as this version does not."""
    found = cast(dict[str, Any], share) if isinstance(share, dict) else {}
    if not isinstance(found.get("share"), float):
        return ""
    return f" ({percent(found['share'])} of the {found.get('precision', '')} peak)"


def _startup_in_words(record: Record) -> str:
    return _listed("start-up", record["startup"], _STARTUP, "_s", seconds)


def _peak(record: Record) -> str:
    memory = cast(dict[str, Any], record["memory"])
    for name in ("device_allocated_bytes", "host_peak_bytes"):
        if not is_absent(memory.get(name, {"absent": ""})):
            return bytes_(memory[name])
    return ""


def _memory_in_words(record: Record) -> str:
    return _listed("memory", record["memory"], _MEMORY, "_bytes", bytes_)


def _listed(what: str, found: object, names: Sequence[str], unit: str, shown: Callable[[float], str]) -> str:
    """What is known of these, in this order; nothing when nothing is."""
    values = cast(dict[str, Any], found)
    known = [name for name in names if name in values and not is_absent(values[name])]
    words = [f"{name.removesuffix(unit).replace('_', ' ')} {shown(values[name])}" for name in known]
    return f"{what}: {' · '.join(words)}" if words else ""


def _energy_in_words(record: Record) -> str:
    energy = cast(dict[str, Any], record["energy"])
    if is_absent(energy):
        return f"energy: not measured: {energy['absent']}"
    if not all(isinstance(energy.get(name), (int, float)) for name in _ENERGY):
        return "energy: in a form that this version does not show; --json has it"
    known_to = f"± {percent(energy['resolution_share'])}"
    return (
        f"energy: {digits(energy['joules_per_step'])} J a step, {digits(energy['samples_per_j'])} images/J, "
        f"{digits(energy['average_power_w'])} W over {seconds(energy['window_s'])} "
        f"({'; '.join([known_to, *_covered(energy)])})"
    )


def _covered(energy: dict[str, Any]) -> list[str]:
    """What each meter includes."""
    return [str(meter["covers"]) for meter in energy.get("meters", []) if "covers" in meter]


def show_with_ratios(records: Sequence[Record], jobs: Sequence[Job], *, timeout_s: float) -> None:
    """Raises MissingError, but then everything is measured and stored already."""
    checks = _checks(records, jobs, timeout_s)
    base = str(records[0]["setup"]["requested"]["framework"])
    ratios = {record["id"]: _ratio(record, _counterpart(record, records, base), checks) for record in records}
    show_table(records, extra=(f"images/s\nagainst {base}", ratios))
    print_lines(["", *_remarks(checks), *_training_remarks(records, base)], hang=4)


def _checks(records: Sequence[Record], jobs: Sequence[Job], timeout_s: float) -> dict[str, Comparable]:
    """What shows that they compute the same, of every run that went well, by job."""
    from deepstone.checks.comparable import comparable

    measured = {record["job"] for record in records if not is_absent(record["summary"])}
    wanted = {job.id: job for job in jobs if job.id in measured}
    with progress_bar(1) as bar:
        bar.begin("do they compute the same?")
        return comparable(wanted, timeout_s=timeout_s, on_progress=bar.tell)


def _counterpart(record: Record, records: Sequence[Record], base: str) -> Record | None:
    """The run of the first framework with everything else the same."""
    wanted = {**record["setup"]["requested"], "framework": base}
    return next((other for other in records if other["setup"]["requested"] == wanted), None)


def _ratio(record: Record, base: Record | None, checks: Mapping[str, Comparable]) -> str:
    from deepstone.analysis.contrast import not_the_same_training
    from deepstone.analysis.wording import span
    from deepstone.measure.statistics import ratio_of_bounds
    from deepstone.results.codec import typed_records

    if base is None or is_absent(record["summary"]) or is_absent(base["summary"]):
        return "–"
    if not (checks[record["job"]].ok and checks[base["job"]].ok):
        return "not the same"
    if not_the_same_training(*([one] for one in typed_records([record, base]))):
        return "not the same"
    if record is base:
        return "1"
    # The intervals are independent, so the ends of both give bounds that are wide enough.
    ratio = ratio_of_bounds(_rate(record), _rate(base))
    return f"{digits(ratio.median)} ({span(ratio)})"


def _rate(record: Record) -> Quantity:
    from deepstone.measure.statistics import Quantity

    return Quantity.from_json(cast(dict[str, Any], record["summary"])["samples_per_s"])


def _training_remarks(records: Sequence[Record], base: str) -> list[str]:
    """What the timed steps themselves have against a ratio."""
    from deepstone.analysis.contrast import not_the_same_training
    from deepstone.results.codec import typed_records

    measured = [record for record in records if not is_absent(record["summary"])]
    pairs = [(record, _counterpart(record, measured, base)) for record in measured]
    found = [not_the_same_training(*([one] for one in typed_records(pair))) for pair in pairs if pair[1] is not None]
    return sorted({f"not compared: {reason}" for reason in found if reason})


def _remarks(checks: Mapping[str, Comparable]) -> list[str]:
    remarks = {f"not compared: {check.why_not()}" for check in checks.values() if not check.ok}
    if any(check.ok for check in checks.values()):
        remarks.add(
            "Ratios are of runs measured apart, one after the other; `deepstone compare` interleaves two of them and "
            "gives a verdict. Every layer and a whole step were checked to compute the same."
        )
    return sorted(remarks)
