"""Runs as lines of a table, and what is told of one when it is opened: words, no raw samples."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import Value, value_of
from deepstone.report.wording import interval_words
from deepstone.results.environment import Environment
from deepstone.results.record import Record, ShareOfPeak
from deepstone.setups.axes import AXES
from deepstone.units import bytes_, count, digits, percent, seconds

_MEMORY: Final = ("host_peak", "device_allocated", "device_reserved", "analytic")
_STARTUP: Final = ("import", "build", "first_step")
_VERSIONS: Final = ("python", "numpy", "cuda", "cudnn", "jaxlib", "cpu_capability")
_OWN_COLUMNS: Final = frozenset({"framework", "device", "batch", "phase"})
_TOLD: Final = ("precision", "layout", "engine", "compile", "threads")
_READ_BACK: Final = {"observed": "", "set": "*"}
_SAYS_NOTHING: Final = frozenset({"not used", "off", "auto", ""})


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """`rest` are labels and words for who wants to know more. `speed` is in images/s."""

    id: str
    started_at: str
    model: str
    framework: str
    device: str
    machine: str
    setup: str
    batch: int
    phase: str
    outcome: str
    speed: Value | None
    doubts: tuple[str, ...]
    record: Record
    rest: tuple[tuple[str, str], ...]

    @property
    def anchor(self) -> str:
        return f"run-{self.id}"

    @property
    def samples_per_s(self) -> str:
        return "" if self.speed is None else digits(self.speed.middle)

    @property
    def interval(self) -> str:
        return "" if self.speed is None else interval_words(self.speed, digits)


def run_row(record: Record, machine: str) -> RunRow:
    speed = None if isinstance(record.summary, Absent) else value_of(record.summary.samples_per_s)
    return RunRow(
        id=record.id,
        started_at=record.started_at,
        model=record.workload.model,
        framework=framework_words(record),
        device=record.setup.value("device"),
        machine=machine,
        setup=chosen(record),
        batch=record.workload.batch,
        phase=record.workload.phase,
        outcome=record.outcome,
        speed=None if isinstance(speed, Absent) else speed,
        doubts=tuple(doubt.code for doubt in record.doubts),
        record=record,
        rest=tuple((label, words) for label, words in _rest(record, machine) if words),
    )


def framework_words(record: Record) -> str:
    """As in "torch 2.11.0"."""
    return record.setup.value("framework").replace("@", " ")


def workload_and_setup(record: Record) -> str:
    """As in "resnet50 · batch 256 · train · torch 2.11.0 on gpu:0 · tf32, nhwc, cudnn"."""
    workload = record.workload
    details = [_in_words(axis, record.setup.value(axis)) for axis in _TOLD]
    parts = [
        workload.model,
        f"batch {workload.batch}",
        workload.phase,
        f"{framework_words(record)} on {record.setup.value('device')}",
        ", ".join(words for words in details if words),
    ]
    return " · ".join(part for part in parts if part)


def chosen(record: Record) -> str:
    """What was asked for beyond the defaults, as one would type it; what has a column of its own is left out."""
    asked = record.setup.requested
    ordered = [axis for axis in AXES if axis in asked] + [axis for axis in asked if axis not in AXES]
    words = [
        f"{axis}={asked[axis]}"
        for axis in ordered
        if axis not in _OWN_COLUMNS and (axis not in AXES or asked[axis] != AXES[axis].default)
    ]
    return " ".join(words)


def _in_words(axis: str, value: str) -> str:
    if value in _SAYS_NOTHING:
        return ""
    if axis == "threads":
        return "1 thread" if value == "1" else f"{value} threads"
    return f"compile={value}" if axis == "compile" else value


def _rest(record: Record, machine: str) -> list[tuple[str, str]]:
    return [
        ("why it failed", "" if isinstance(record.failure, Absent) else f"{record.outcome}: {record.failure.reason}"),
        ("speed", _speed(record)),
        ("samples", _samples(record)),
        ("phases", _phases(record)),
        ("memory", _amounts(record.memory, _MEMORY, "_bytes", bytes_)),
        ("start-up", _amounts(record.startup, _STARTUP, "_s", seconds)),
        ("energy", _energy(record)),
        ("share of peak", _share(record)),
        ("doubts", "; ".join(f"{doubt.code}: {doubt.detail}" for doubt in record.doubts)),
        ("asked for", chosen(record) or "the defaults"),
        ("in effect", _in_effect(record)),
        ("environment", _environment(record.environment)),
        ("machine", machine),
        ("started", record.started_at[:19].replace("T", " ") + " UTC"),
        ("round", str(record.identity.repetition)),
        ("run", record.id),
        ("command", shlex.join(record.command)),
    ]


def _speed(record: Record) -> str:
    summary = record.summary
    if isinstance(summary, Absent):
        return ""
    rate = summary.samples_per_s
    speed = f"{digits(rate.median)} images/s ({rate.interval_in_words(digits)}, {summary.interval})"
    sustained = digits(summary.sustained_samples_per_s)
    return f"{speed}, step {seconds(summary.step_s.median)}, sustained {sustained} images/s"


def _samples(record: Record) -> str:
    if isinstance(record.summary, Absent):
        return ""
    launches = len(record.samples.launches)
    words = [f"{record.summary.step_s.n:,} samples", f"{launches} launch{'' if launches == 1 else 'es'}"]
    words += [f"{record.samples.warmup_steps:,} steps of warm-up", f"ended since: {record.summary.stopped}"]
    return ", ".join(words)


def _phases(record: Record) -> str:
    if isinstance(record.phases, Absent):
        return ""
    known = [f"{name} {time.time_in_words()}" for name, time in record.phases.items() if not isinstance(time, Absent)]
    return f"{' · '.join(known)} ({record.phases.method})" if known else ""


def _amounts(
    found: Mapping[str, float | Absent] | Absent, names: tuple[str, ...], unit: str, shown: Callable[[float], str]
) -> str:
    if isinstance(found, Absent):
        return ""
    values = [(name.replace("_", " "), found.get(f"{name}{unit}")) for name in names]
    return " · ".join(f"{name} {shown(value)}" for name, value in values if isinstance(value, int | float))


def _energy(record: Record) -> str:
    energy = record.energy
    if isinstance(energy, Absent):
        return f"not measured: {energy.reason}"
    rate, power = digits(energy.samples_per_j), digits(energy.average_power_w)
    return f"{digits(energy.joules_per_step)} J a step, {rate} images/J, {power} W"


def _share(record: Record) -> str:
    share, flops = record.share_of_peak, record.cost.flops
    told = [f"{percent(share.share)} of the {share.precision or ''} peak"] if isinstance(share, ShareOfPeak) else []
    if not isinstance(flops, Absent) and not isinstance(record.summary, Absent) and record.summary.step_s.median:
        told.append(count(flops / record.summary.step_s.median, "FLOP/s"))
    return ", ".join(told)


def _in_effect(record: Record) -> str:
    """Every axis as it was in effect; a star marks what was set and could not be read back."""
    effects = record.setup.effective.items()
    return " ".join(f"{axis}={effect.value}{_READ_BACK[effect.source]}" for axis, effect in effects)


def _environment(environment: Environment) -> str:
    """Versions; neither host nor user."""
    facts = () if isinstance(environment.framework, Absent) else environment.framework.items()
    told = {key: str(value) for key, value in facts if isinstance(value, str | int | float)}
    name = " ".join(told[key] for key in ("name", "version") if key in told)
    versions = [f"{key} {told[key]}" for key in _VERSIONS if key in told]
    own = f"deepstone {environment.deepstone}" if isinstance(environment.deepstone, str) else ""
    return ", ".join(word for word in (name, *versions, own) if word)
