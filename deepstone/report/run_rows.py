"""Runs as lines of a table, and what is told of one when it is opened: words, no raw samples."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from deepstone.records.schema import Record, is_absent
from deepstone.report.lookup import number_at, text_at
from deepstone.report.setup_words import chosen, effective, in_effect
from deepstone.report.wording import harmless
from deepstone.units import bytes_, count, digits, percent, seconds

_LONGEST: Final = 1500
_PHASES: Final = ("data", "forward", "backward", "communication", "update")
_MEMORY: Final = ("host_peak", "device_allocated", "device_reserved", "analytic")
_STARTUP: Final = ("import", "build", "first_step")
_VERSIONS: Final = ("python", "numpy", "cuda", "cudnn", "jaxlib", "cpu_capability")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """`rest` are labels and words for who wants to know more. Speeds are empty where nothing was measured."""

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
    images_per_s: str
    interval: str
    doubts: tuple[str, ...]
    rest: tuple[tuple[str, str], ...]

    @property
    def anchor(self) -> str:
        return f"run-{self.id}"


def run_row(record: Record, machine: str) -> RunRow:
    summary = cast(dict[str, Any], record["summary"])
    rate = None if is_absent(summary) else summary["samples_per_s"]
    return RunRow(
        id=record["id"],
        started_at=record["started_at"],
        model=harmless(record["workload"]["model"]),
        framework=effective(record, "framework").replace("@", " "),
        device=effective(record, "device"),
        machine=machine,
        setup=chosen(record),
        batch=record["workload"]["batch"],
        phase=record["workload"]["phase"],
        outcome=record["outcome"],
        images_per_s=digits(rate["median"]) if rate else "",
        interval=f"{digits(rate['low'])} – {digits(rate['high'])}" if rate else "",
        doubts=tuple(doubt["code"] for doubt in record["doubts"]),
        rest=tuple((label, words) for label, words in _rest(record, machine) if words),
    )


def _rest(record: Record, machine: str) -> list[tuple[str, str]]:
    return [
        ("why it failed", _failure(record)),
        ("speed", _speed(record)),
        ("samples", _samples(record)),
        ("phases", _phases(record)),
        ("memory", _amounts(record["memory"], _MEMORY, "_bytes", bytes_)),
        ("start-up", _amounts(record["startup"], _STARTUP, "_s", seconds)),
        ("energy", _energy(record)),
        ("share of peak", _share(record)),
        ("doubts", _doubts(record)),
        ("asked for", chosen(record) or "the defaults"),
        ("in effect", in_effect(record)),
        ("environment", _environment(record["environment"])),
        ("machine", machine),
        ("started", record["started_at"][:19].replace("T", " ") + " UTC"),
        ("round", str(record["identity"]["repetition"])),
        ("run", record["id"]),
        ("command", harmless(shlex.join(record["command"]), _LONGEST)),
    ]


def _failure(record: Record) -> str:
    failure = cast(dict[str, Any], record["failure"])
    return "" if is_absent(failure) else harmless(f"{record['outcome']}: {failure['reason']}", _LONGEST)


def _speed(record: Record) -> str:
    summary = cast(dict[str, Any], record["summary"])
    if is_absent(summary):
        return ""
    rate, step = summary["samples_per_s"], summary["step_s"]
    interval = f"{digits(rate['low'])} – {digits(rate['high'])}, 95 %, {summary['interval']}"
    sustained = digits(summary["sustained_samples_per_s"])
    speed = f"{digits(rate['median'])} images/s ({interval})"
    return f"{speed}, step {seconds(step['median'])}, sustained {sustained} images/s"


def _samples(record: Record) -> str:
    summary = cast(dict[str, Any], record["summary"])
    if is_absent(summary):
        return ""
    launches = len(record["samples"]["launches"])
    words = [f"{summary['step_s']['n']:,} samples", f"{launches} launch{'' if launches == 1 else 'es'}"]
    words += [f"{record['samples']['warmup_steps']:,} steps of warm-up", f"ended since: {summary['stopped']}"]
    return harmless(", ".join(words))


def _phases(record: Record) -> str:
    phases = cast(dict[str, Any], record["phases"])
    if is_absent(phases):
        return ""
    found = [(name, phases.get(f"{name}_s")) for name in _PHASES]
    known = [f"{name} {seconds(value['median'])}" for name, value in found if value and not is_absent(value)]
    return harmless(f"{' · '.join(known)} ({phases['method']})") if known else ""


def _amounts(found: object, names: tuple[str, ...], unit: str, shown: Any) -> str:
    values = [(name.replace("_", " "), number_at(found, f"{name}{unit}")) for name in names]
    return " · ".join(f"{name} {shown(value)}" for name, value in values if value is not None)


def _energy(record: Record) -> str:
    energy = cast(dict[str, Any], record["energy"])
    if is_absent(energy):
        return harmless(f"not measured: {energy['absent']}")
    step, rate, power = (number_at(energy, key) for key in ("joules_per_step", "samples_per_j", "average_power_w"))
    if step is None or rate is None or power is None:
        return ""
    return f"{digits(step)} J a step, {digits(rate)} images/J, {digits(power)} W"


def _share(record: Record) -> str:
    share = number_at(record["share_of_peak"], "share")
    flops = record["cost"]["flops"]
    precision = text_at(record["share_of_peak"], "precision")
    told = [f"{percent(share)} of the {precision} peak"] if share is not None else []
    step = number_at(record["summary"], "step_s", "median")
    told += [count(flops / step, "FLOP/s")] if isinstance(flops, int) and step else []
    return ", ".join(told)


def _doubts(record: Record) -> str:
    return harmless("; ".join(f"{doubt['code']}: {doubt['detail']}" for doubt in record["doubts"]), _LONGEST)


def _environment(environment: Mapping[str, Any]) -> str:
    """Versions; neither host nor user."""
    framework = environment.get("framework")
    name = " ".join(word for word in (text_at(framework, "name"), text_at(framework, "version")) if word)
    versions = [f"{key} {text_at(framework, key)}" for key in _VERSIONS if text_at(framework, key)]
    own = text_at(environment, "deepstone")
    return ", ".join(word for word in (name, *versions, f"deepstone {own}" if own else "") if word)
