"""Whether the numbers of a record that someone hands us follow from its samples.

Medians, rates and the doubts about them are computed again, with the functions that make a record. An interval comes
from a bootstrap, which draws at random: it may differ by as much as the bootstrap differs from itself. What was done
must be what was asked, and a verdict must follow from its ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

import numpy as np

from deepstone.errors import RefusedInputError
from deepstone.measure.doubts import ABOVE_PEAK, DERIVED, DIVERGING, derived_doubts
from deepstone.measure.effort import DEFAULT_TARGET_SHARE
from deepstone.measure.ratios import Ratio, verdict_of
from deepstone.measure.statistics import REPLICATES, Launch, Quantity, median_of
from deepstone.measure.training import fault_in_record
from deepstone.records.schema import Record, is_absent
from deepstone.records.shape import shown
from deepstone.results.paths import PATH
from deepstone.results.redact import HOST, USER
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.effective import fits

_MEASURED: Final = ("ok", "diverged")  # what other runs measured was not measured to the end
_NOT_TRAINING: Final = "not_training"
_ROUNDING: Final = 1e-9
_SEEDS: Final = range(1, 9)
_MARGIN_SHARE: Final = 0.05  # of the width of an interval: eight seeds do not show the whole spread of the bootstrap
_MOST_DRAWS: Final = 10_000_000  # of blocks; a file may hold a million of them, and the bootstrap draws them all
_FEWEST_REPLICATES: Final = 20


def check_consistent(record: Record) -> None:
    """RefusedInputError tells the first number or doubt that contradicts the samples."""
    if record["outcome"] in _MEASURED:
        _check_effective(record)
    _check_comparison(cast(Mapping[str, Any], record["comparison"]))
    summary = cast(Mapping[str, Any], record["summary"])
    if is_absent(summary):
        return
    if record["outcome"] not in _MEASURED:
        _refuse("summary", f"a run that ended as {record['outcome']} has none")
    launches = [_steady(launch, number) for number, launch in enumerate(record["samples"]["launches"])]
    if not launches or not all(launches):
        _refuse("summary", "there are no samples after warm-up from which it could come")
    try:
        with np.errstate(all="ignore"):  # what overflows is no time, and is refused below
            _check_step(summary["step_s"], launches)
            _check_rates(record, summary)
            _check_share(record, summary)
            _check_doubts(record, launches)
    except ValueError as error:  # of a quantity that cannot be
        _refuse("summary.step_s", str(error))
    _check_training(record)


def _check_effective(record: Record) -> None:
    """Of the axes that both sides tell and this version knows: records of other versions have others."""
    requested = record["setup"]["requested"]
    for name, effect in record["setup"]["effective"].items():
        asked, done = requested.get(name, AUTO), cast(Value, effect["value"])
        redacted = any(placeholder in str(done) for placeholder in (HOST, USER, PATH))
        if name in AXES and not redacted and not fits(name, asked, done):
            _refuse(f"setup.effective.{name}", f"is {shown(done)}, and {asked} was asked for")


def _check_comparison(comparison: Mapping[str, Any]) -> None:
    if is_absent(comparison):
        return
    try:
        follows = verdict_of(Ratio.of_times(Quantity.from_json(comparison["ratio"])))
        verdict = comparison["verdict"]
    except (ArithmeticError, KeyError, TypeError, ValueError):
        _refuse("comparison", "must tell a ratio and a verdict")
    if verdict != follows:
        _refuse("comparison.verdict", f"is {shown(verdict)}, and its ratio gives {follows!r}")


def _steady(launch: Mapping[str, Any], number: int) -> list[list[float]]:
    """The samples after warm-up, in their blocks."""
    where = f"samples.launches[{number}]"
    if len(launch["ranks"]) != 1:
        _refuse(f"{where}.ranks", f"has {len(launch['ranks'])}; this version of Deepstone reads runs of one rank")
    left, blocks = int(launch["warmup_steps"]), list[list[float]]()
    for block in launch["ranks"][0]["blocks"]:
        skipped = min(len(block["step_s"]), left // block["steps_per_sample"])
        left -= skipped * block["steps_per_sample"]
        if left and skipped < len(block["step_s"]):
            _refuse(f"{where}.warmup_steps", "ends in the middle of a sample")
        if kept := block["step_s"][skipped:]:
            blocks.append(kept)
    return blocks


def _check_step(step: Mapping[str, Any], launches: Sequence[Launch]) -> None:
    again = _median_of(launches)
    if not 0 < again.median < math.inf:
        _refuse("samples", "steps that take no time")
    _same("summary.step_s.n", step["n"], again.n)
    _same("summary.step_s.median", step["median"], again.median)
    told = Quantity.from_json(step)
    if told.has_interval != again.has_interval:
        _refuse("summary.step_s", "one sample has no interval, and several have one")
    if not told.has_interval or (_close(told.low, again.low) and _close(told.high, again.high)):
        return
    others = [again, *(_median_of(launches, seed=seed) for seed in _SEEDS)]
    width = max(other.high for other in others) - min(other.low for other in others)
    for end in ("low", "high"):
        ends = [float(getattr(other, end)) for other in others]
        slack = max(ends) - min(ends) + _MARGIN_SHARE * width + _ROUNDING * again.median
        if not min(ends) - slack <= getattr(told, end) <= max(ends) + slack:
            _differs(f"summary.step_s.{end}", getattr(told, end), getattr(again, end))


def _median_of(launches: Sequence[Launch], *, seed: int = 0) -> Quantity:
    blocks = sum(map(len, launches))
    return median_of(launches, seed=seed, replicates=min(REPLICATES, max(_FEWEST_REPLICATES, _MOST_DRAWS // blocks)))


def _check_rates(record: Record, summary: Mapping[str, Any]) -> None:
    batch, launches = record["workload"]["batch"], record["samples"]["launches"]
    told, rate = Quantity.from_json(summary["samples_per_s"]), Quantity.from_json(summary["step_s"]).inverse(batch)
    _same("summary.samples_per_s.n", told.n, rate.n)
    if told.has_interval != rate.has_interval:
        _refuse("summary.samples_per_s", "must have an interval exactly where step_s has one")
    for part in ("median", "low", "high") if rate.has_interval else ("median",):
        _same(f"summary.samples_per_s.{part}", getattr(told, part), getattr(rate, part))
    _same("summary.sustained_samples_per_s", summary["sustained_samples_per_s"], batch / _mean_step_s(launches))
    interval = "within process" if len(launches) == 1 else "across launches"
    if summary["interval"] != interval:
        _refuse("summary.interval", f"is {summary['interval']!r}, and {len(launches)} launches give {interval!r}")


def _mean_step_s(launches: Sequence[Mapping[str, Any]]) -> float:
    steps, total_s = 0, 0.0
    for launch in launches:
        left = launch["warmup_steps"]
        for block in launch["ranks"][0]["blocks"]:
            each = block["steps_per_sample"]
            skipped = min(len(block["step_s"]), left // each)
            left -= skipped * each
            steps += (len(block["step_s"]) - skipped) * each
            total_s += sum(block["step_s"][skipped:]) * each
    return total_s / steps


def _check_share(record: Record, summary: Mapping[str, Any]) -> None:
    share, flops = record["share_of_peak"], record["cost"]["flops"]
    if not isinstance(share, dict) or is_absent(share):
        return
    told = cast(Mapping[str, Any], share)
    if not all(isinstance(told.get(key), int | float) for key in ("share", "peak_flops_per_s")):
        _refuse("share_of_peak", "must tell share and peak_flops_per_s, two numbers")
    if not isinstance(flops, int) or told["peak_flops_per_s"] <= 0:
        _refuse("share_of_peak", "there are no FLOPs of which it could be a share")
    _same("share_of_peak.share", told["share"], flops / summary["step_s"]["median"] / told["peak_flops_per_s"])


def _check_doubts(record: Record, launches: Sequence[Launch]) -> None:
    told = {doubt["code"] for doubt in record["doubts"]}
    share = cast(Mapping[str, Any], record["share_of_peak"])
    known = isinstance(share, dict) and "share" in share
    step = Quantity.from_json(cast(Mapping[str, Any], record["summary"])["step_s"])

    def found(seed: int = 0) -> dict[str, str]:
        derived = derived_doubts(
            launches,
            step,
            target_share=_target_share(record["command"]),
            phases=_phases(record),
            share_of_peak=(share["share"], str(share.get("precision", ""))) if known else None,
            seed=seed,
        )
        return {doubt.code: doubt.detail for doubt in derived}

    again = found()
    for code in (*DERIVED, *((ABOVE_PEAK,) if known else ())):
        if (code in told) == (code in again) or _written_earlier(record, code):
            continue
        if code == DIVERGING and any((code in found(seed)) == (code in told) for seed in _SEEDS):
            continue  # so near the limit that the bootstrap decides
        if code in told:
            _refuse("doubts", f"{code} does not follow from the record's own numbers")
        _refuse("doubts", f"{code} is missing: {again[code]}")


def _written_earlier(record: Record, code: str) -> bool:
    """One sample once had an interval, of no width; it was not too wide."""
    step = cast(Mapping[str, Any], record["summary"])["step_s"]
    return code == "interval_too_wide" and step["n"] == 1 and not is_absent(step["low"])


def _check_training(record: Record) -> None:
    effective = record["setup"]["effective"]
    fault = fault_in_record(
        cast(Mapping[str, Any], record.get("training", {})),
        phase=record["workload"]["phase"],
        precision=str(effective["precision"]["value"]) if "precision" in effective else "",
    )
    if fault and all(doubt["code"] != _NOT_TRAINING for doubt in record["doubts"]):
        _refuse("doubts", f"{_NOT_TRAINING} is missing: {fault}")


def _phases(record: Record) -> list[Quantity]:
    phases = cast(Mapping[str, Any], record["phases"])
    if is_absent(phases):
        return []
    told = [value for name, value in phases.items() if name != "method" and not is_absent(value)]
    return [Quantity.from_json(value) for value in told]


def _target_share(command: Sequence[str]) -> float:
    """What the command asked for, in per cent there."""
    for word, value in zip(command, (*command[1:], ""), strict=True):
        name, _, joined = word.partition("=")
        if name == "--target":
            try:
                return float(joined or value) / 100
            except ValueError:
                _refuse("command", "--target must be followed by a number")
    return DEFAULT_TARGET_SHARE


def _same(where: str, told: float, again: float) -> None:
    if not _close(told, again):
        _differs(where, told, again)


def _close(told: float, again: float) -> bool:
    return math.isclose(told, again, rel_tol=_ROUNDING)


def _differs(where: str, told: float, again: float) -> NoReturn:
    _refuse(where, f"is {told:.6g}, and the record's own numbers give {again:.6g}")


def _refuse(where: str, why: str) -> NoReturn:
    raise RefusedInputError(f"{where}: {why}")
