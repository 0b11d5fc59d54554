"""The fields of a run for people and tables: each listed once, with its column, label, value and text.

The terminal, the CSV, data frames and the report page all use this list.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from deepstone.absent import Absent
from deepstone.results import view_parallel
from deepstone.results.parts import Part
from deepstone.results.quantity import Quantity
from deepstone.results.record import Energy, Record, Setup, ShareOfPeak, StepPhases, Summary
from deepstone.setups.axes import AXES
from deepstone.units import bytes_, count, digits, percent, seconds

Cell: TypeAlias = str | int | float | bool
Content: TypeAlias = "Cell | Part | Absent | Sequence[Content] | Mapping[str, Content] | None"

_MACHINE_PART: Final = 12
_STARTUP: Final = ("import_s", "build_s", "first_step_s")
_MEMORY: Final = ("host_peak_bytes", "device_allocated_bytes", "device_reserved_bytes", "analytic_bytes")
_PEAKS: Final = ("device_allocated_bytes", "host_peak_bytes")  # the first that is known
_PHASES: Final = sorted(StepPhases.__struct_fields__)
_VERSIONS: Final = ("python", "numpy", "cuda", "cudnn", "jaxlib", "cpu_capability")
_OWN_FIELDS: Final = frozenset({"framework", "device", "batch", "phase"})
_READ_BACK: Final = {"observed": "", "set": "*"}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a run. A value with parts has a column `name_part` for each of them; if `columns` is None, it has no
    column. `words` is empty if there is no value."""

    name: str
    label: str
    words: Callable[[Record], str]
    columns: Callable[[Record], Content] | None


def _field(
    name: str, label: str, value: Callable[[Record], Content] | None, words: Callable[[Record], str] | None = None
) -> Field:
    return Field(name=name, label=label, columns=value, words=words or (lambda record: _word(value, record)))


def _word(value: Callable[[Record], Content] | None, record: Record) -> str:
    content = value(record) if value else None
    return "" if content is None or isinstance(content, Absent) else str(content)


def label(name: str) -> str:
    return FIELDS[name].label


def words(record: Record, name: str) -> str:
    """Return a field as text; empty if there is no value."""
    return FIELDS[name].words(record)


def flat(record: Record) -> dict[str, Cell]:
    """Return the columns of a run, the most important first; raw samples stay in the JSON."""
    cells: dict[str, Cell] = {}
    for field in FIELDS.values():
        if field.columns is not None:
            cells |= _under(field.name, field.columns(record))
    return cells


def _under(prefix: str, value: Content) -> dict[str, Cell]:
    """Return the single values below a name, named by their path; lists and absent values have no column."""
    if isinstance(value, Quantity) and not value.has_interval:
        return _under(prefix, {"median": value.median, "n": value.n})
    if isinstance(value, Part):
        return _under(prefix, {each.encode_name: getattr(value, each.name) for each in msgspec.structs.fields(value)})
    if isinstance(value, (str, int, float, bool)):
        return {prefix: value}
    cells: dict[str, Cell] = {}
    for key, item in sorted(value.items()) if isinstance(value, Mapping) else ():
        cells |= _under(f"{prefix}_{key}", item)
    return cells


def counted(number: int, thing: str, plural: str = "") -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {plural or f'{thing}s'}"


def setup_words(setup: Setup | None, *axes: str) -> str:
    """Format as "torch 2.11.0 on cpu (fp32, nchw, onednn)": framework, device, and the effective values of `axes`."""
    if setup is None:
        return ""
    done = setup.effective
    details = [_axis_words(axis, str(done[axis].value)) for axis in axes if axis in done]
    where = f"{setup.value('framework').replace('@', ' ')} on {setup.value('device')}"
    return f"{where} ({', '.join(word for word in details if word)})"


def headline(record: Record) -> str:
    """Format as "resnet50 · batch 256 · train · torch 2.11.0 on gpu:0 (tf32, nhwc, cudnn)"."""
    workload, setup = record.workload, record.setup
    on_host = ("threads", "isa") if setup.value("device") == "cpu" else ()
    if {"framework", "device"} <= set(setup.effective):
        where = setup_words(setup, "precision", "layout", "engine", *on_host, "compile")
    else:
        where = str(setup.requested.get("framework", "framework unknown"))
    return f"{workload.model} · batch {workload.batch} · {workload.phase} · {where}"


def _axis_words(axis: str, value: str) -> str:
    if axis == "threads":
        return counted(int(value), "thread") if value.isdecimal() else ""
    if axis == "compile":
        return "" if value == "off" else f"compile={value}"
    return value


def chosen_words(setup: Setup, *, but: frozenset[str] = frozenset()) -> list[str]:
    """Return the requested values that are not defaults, as AXIS=VALUE, without the axes `but`."""
    requested = setup.requested
    ordered = [axis for axis in AXES if axis in requested] + [axis for axis in requested if axis not in AXES]
    other = [
        axis for axis in ordered if axis not in but and (axis not in AXES or requested[axis] != AXES[axis].default)
    ]
    return [f"{axis}={requested[axis]}" for axis in other]


def _span(record: Record) -> str:
    return "" if isinstance(record.summary, Absent) else record.summary.samples_per_s.span_in_words(digits)


def rate(record: Record) -> Quantity | None:
    """Of what people count in a second of this workload: see `Workload.things`."""
    summary = record.summary
    return None if isinstance(summary, Absent) else summary.units_per_s or summary.samples_per_s


def _speed(record: Record) -> str:
    summary = record.summary
    if isinstance(summary, Absent):
        return ""
    rate = summary.samples_per_s
    interval = f"{rate.interval_in_words(digits)}, {summary.interval}"
    step, sustained = seconds(summary.step_s.median), digits(summary.sustained_samples_per_s)
    things, units = record.workload.samples, _rate_of_units(record)
    whole = f"{digits(rate.median)} {things}/s ({interval}), step {step}, sustained {sustained} {things}/s"
    return f"{whole}, {units}" if units else whole


def _units(record: Record) -> str:
    """Return the rate of the units of samples, with its interval; empty if samples have no units."""
    summary = record.summary
    if isinstance(summary, Absent) or summary.units_per_s is None:
        return ""
    return f"{_rate_of_units(record)}    {summary.units_per_s.interval_in_words(digits)}"


def _rate_of_units(record: Record) -> str:
    """Format as "12,800 tokens/s"."""
    summary = record.summary
    if isinstance(summary, Absent) or summary.units_per_s is None:
        return ""
    return f"{digits(summary.units_per_s.median)} {record.workload.unit}s/s"


def _samples(record: Record) -> str:
    summary = record.summary
    if isinstance(summary, Absent):
        return ""
    launches = counted(len(record.samples.launches), "launch", "launches")
    warm_up = f"{record.samples.warmup_steps:,} steps of warm-up"
    return f"{summary.step_s.n:,} samples, {launches}, {warm_up}, ended since: {summary.stopped}"


def _phases_words(record: Record) -> str:
    """Return the timed phases, or why there are none."""
    if isinstance(record.phases, Absent):
        return record.phases.reason
    timed = [(name, time) for name, time in record.phases.items() if not isinstance(time, Absent)]
    return " · ".join(f"{name} {time.time_in_words()}" for name, time in timed)


def _phase_words(phase: Quantity | str) -> str:
    return phase if isinstance(phase, str) else phase.time_in_words()


def _amounts(
    found: Mapping[str, float | Absent] | Absent, names: Sequence[str], unit: str, shown: Callable[[float], str]
) -> str:
    """Return the known ones of these, in this order."""
    values = [] if isinstance(found, Absent) else [(name, found.get(name)) for name in names]
    known = [(name.removesuffix(unit).replace("_", " "), value) for name, value in values]
    return " · ".join(f"{name} {shown(value)}" for name, value in known if isinstance(value, (int, float)))


def _peak(record: Record) -> str:
    if isinstance(record.memory, Absent):
        return ""
    known = [size for name in _PEAKS if isinstance(size := record.memory.get(name), int)]
    return bytes_(known[0]) if known else ""


def _energy(record: Record) -> str:
    energy = record.energy
    return (
        f"not measured: {energy.reason}"
        if isinstance(energy, Absent)
        else _energy_words(energy, record.workload.samples)
    )


def _energy_words(energy: Energy, things: str) -> str:
    covered = [f"± {percent(energy.resolution_share)}", *(meter.covers for meter in energy.meters)]
    return (
        f"{digits(energy.joules_per_step)} J a step, {digits(energy.samples_per_j)} {things}/J, "
        f"{digits(energy.average_power_w)} W over {seconds(energy.window_s)} ({'; '.join(covered)})"
    )


def _flops(record: Record) -> str:
    """Return the operations per step and per second, and the share of the fastest matrix product if it is known."""
    flops, summary, share = record.cost.flops, record.summary, record.share_of_peak
    if isinstance(flops, Absent) or isinstance(summary, Absent) or not summary.step_s.median:
        return ""
    rate = count(flops / summary.step_s.median)
    of_peak = ""
    if isinstance(share, ShareOfPeak) and share.share <= 1:  # more than all of it is no share, but a doubt
        of_peak = f" ({percent(share.share)} of the {share.precision or ''} peak)"
    return f"{count(flops)}FLOP a step, {rate}FLOP/s{of_peak}"


def _in_effect(record: Record) -> str:
    """Return the effective value of every axis; a star marks values that were set but not read back."""
    effects = record.setup.effective.items()
    return " ".join(f"{axis}={effect.value}{_READ_BACK[effect.source]}" for axis, effect in effects)


def _versions(record: Record) -> str:
    """Return the versions, without host and user."""
    environment = record.environment
    facts = () if isinstance(environment.framework, Absent) else environment.framework.items()
    known = {key: str(value) for key, value in facts if isinstance(value, str | int | float)}
    name = " ".join(known[key] for key in ("name", "version") if key in known)
    versions = [f"{key} {known[key]}" for key in _VERSIONS if key in known]
    own = f"deepstone {environment.deepstone}" if isinstance(environment.deepstone, str) else ""
    return ", ".join(word for word in (name, *versions, own) if word)


def _median(shown: Callable[[float], str]) -> Callable[[Quantity], str]:
    return lambda quantity: shown(quantity.median)


def _part(
    name: str,
    label: str,
    whole: Callable[[Record], Part | Absent],
    key: str,
    shown: Callable[[Any], str] = str,
) -> Field:
    """A field of a part of the record, such as its summary, which may be absent."""

    def value(record: Record) -> Content:
        found = whole(record)
        return found if isinstance(found, Absent) else getattr(found, key)

    def text(record: Record) -> str:
        found = value(record)
        return "" if isinstance(found, Absent) else shown(found)

    return _field(name, label, value, text)


def _summary(record: Record) -> Summary | Absent:
    return record.summary


def _phases(record: Record) -> StepPhases | Absent:
    return record.phases


FIELDS: Final[Mapping[str, Field]] = {
    field.name: field
    for field in (
        _field("id", "run", lambda record: record.id),
        _field("origin", "run elsewhere", lambda record: record.origin),
        _field(
            "started_at",
            "started",
            lambda record: record.started_at,
            lambda record: record.started_at[:19].replace("T", " ") + " UTC",
        ),
        _field("model", "model", lambda record: record.workload.model),
        _field(
            "framework",
            "framework",
            lambda record: record.setup.value("framework"),
            lambda record: record.setup.value("framework").replace("@", " "),
        ),
        _field("device", "device", lambda record: record.setup.value("device")),
        _field("batch", "batch", lambda record: record.workload.batch),
        _field("phase", "phase", lambda record: record.workload.phase),
        _field("input", "input", lambda record: record.workload.input),
        _field("repetition", "round", lambda record: record.identity.repetition),
        _field("outcome", "outcome", lambda record: record.outcome),
        _field(
            "failure",
            "why it failed",
            lambda record: record.failure,
            lambda record: "" if isinstance(record.failure, Absent) else f"{record.outcome}: {record.failure.reason}",
        ),
        _part("interval", "kind of interval", _summary, "interval"),
        _part("samples_per_s", "images/s", _summary, "samples_per_s", _median(digits)),
        _part("step_s", "step", _summary, "step_s", _median(seconds)),
        _field(
            "units_per_s",
            "units/s",
            lambda record: None if isinstance(record.summary, Absent) else record.summary.units_per_s,
            _rate_of_units,
        ),
        _part("stopped", "stopped", _summary, "stopped"),
        _part("sustained_samples_per_s", "sustained images/s", _summary, "sustained_samples_per_s", digits),
        _field("span", "95 % interval", None, _span),
        _field("speed", "speed", None, _speed),
        _field("units", "units", None, _units),
        _field("samples", "samples", None, _samples),
        *(_part(f"phase_{key}", key.removesuffix("_s"), _phases, key, _phase_words) for key in _PHASES),
        _field("phases", "phases", None, _phases_words),
        _field(
            "startup",
            "start-up",
            lambda record: record.startup,
            lambda record: _amounts(record.startup, _STARTUP, "_s", seconds),
        ),
        _field(
            "memory",
            "memory",
            lambda record: record.memory,
            lambda record: _amounts(record.memory, _MEMORY, "_bytes", bytes_),
        ),
        _field("peak", "peak memory", None, _peak),
        _field("parallel", "processes", view_parallel.columns, view_parallel.processes_words),
        _field("communication", "communication", None, view_parallel.communication_words),
        _field("account", "processes add", None, view_parallel.account_words),
        _field("pipeline", "pipeline", None, view_parallel.pipeline_words),
        _field("ranks", "ranks", None, view_parallel.ranks_words),
        _field("rank_memory", "memory of steps, by rank", None, view_parallel.memory_words),
        _field("energy", "energy", lambda record: record.energy, _energy),
        _field("cost", "operations", lambda record: record.cost, _flops),
        _field("share_of_peak", "share of peak", lambda record: record.share_of_peak, _flops),
        _field(
            "requested",
            "asked for",
            lambda record: record.setup.requested,
            lambda record: " ".join(chosen_words(record.setup, but=_OWN_FIELDS)),
        ),
        _field(
            "effective",
            "in effect",
            lambda record: {axis: effect.value for axis, effect in record.setup.effective.items()},
            _in_effect,
        ),
        _field("doubts", "doubts", lambda record: " ".join(doubt.code for doubt in record.doubts)),
        _field("warmup_steps", "steps of warm-up", lambda record: record.samples.warmup_steps),
        _field("launches", "launches", lambda record: len(record.samples.launches)),
        # The machine by a prefix of its hash, which is unique, and by names, which may not be.
        _field("machine", "machine", lambda record: record.identity.machine_sha[:_MACHINE_PART]),
        _field("cpu", "CPU", lambda record: record.environment.cpu_model or None),
        _field("gpu", "GPU", lambda record: record.environment.framework_text("gpu") or None),
        _field("framework_version", "version", lambda record: record.environment.framework_text("version") or None),
        _field("deepstone", "deepstone", lambda record: record.environment.deepstone or None),
        _field("environment", "environment", None, _versions),
        _field("source", "source", lambda record: record.workload.source),
        _field("graph_sha", "graph", lambda record: record.graph_sha),
        _field("job", "job", lambda record: record.job),
        _field("command", "command", lambda record: shlex.join(record.command)),
    )
}
