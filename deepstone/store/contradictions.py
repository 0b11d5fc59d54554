"""Checks that the numbers of an imported record follow from its samples.

Medians, rates and the doubts about them are computed again, with the functions that make a record. An interval comes
from a bootstrap, which draws at random: it may differ by as much as the bootstrap differs from itself. What was done
must be what was asked, and a verdict must follow from its ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NoReturn, TypeAlias

import numpy as np
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError
from deepstone.measure.doubts import ABOVE_PEAK, DERIVED, DIVERGING, derived_doubts
from deepstone.measure.effort import DEFAULT_TARGET_SHARE
from deepstone.measure.ratios import B_FASTER, Ratio, verdict_of
from deepstone.measure.statistics import REPLICATES, median_of
from deepstone.measure.training import fault_in_record
from deepstone.results.paths import PATH
from deepstone.results.plain import shown
from deepstone.results.quantity import Quantity
from deepstone.results.record import Block, Comparison, Launch, Record, ShareOfPeak, Summary, Workload
from deepstone.results.redact import HOST, USER
from deepstone.setups.axes import AUTO, AXES
from deepstone.setups.effective import fits

_MEASURED: Final = ("ok", "diverged")  # runs with other outcomes did not complete
_NOT_TRAINING: Final = "not_training"
_ROUNDING: Final = 1e-9
_SEEDS: Final = range(1, 9)
_MARGIN_SHARE: Final = 0.05  # of the width of an interval: eight seeds do not show the whole spread of the bootstrap
_MOST_DRAWS: Final = 10_000_000  # of blocks; a file may have a million of them, and the bootstrap draws them all
_FEWEST_REPLICATES: Final = 20

Times: TypeAlias = Sequence[Sequence[float]]  # of one launch, by block


def check_consistent(record: Record) -> None:
    """Raise RefusedInputError for the first number or doubt that contradicts the samples."""
    if record.outcome in _MEASURED:
        _check_effective(record)
    if not isinstance(record.comparison, Absent):
        _check_comparison(record.comparison)
    summary = record.summary
    if isinstance(summary, Absent):
        return
    if record.outcome not in _MEASURED:
        _refuse("summary", f"a run that ended as {record.outcome} has none")
    launches = [_steady(launch, number) for number, launch in enumerate(record.samples.launches)]
    if not launches or not all(launches):
        _refuse("summary", "there are no samples after warm-up from which it could come")
    step_s = [[block.step_s for block in launch] for launch in launches]
    try:
        with np.errstate(all="ignore"):  # a value that overflows is refused below
            _check_step(summary.step_s, step_s)
            _check_rates(record.workload, summary, launches)
            _check_share(record, summary)
            _check_parallel(record, summary)
            _check_doubts(record, summary, step_s)
    except ValueError as error:  # from an impossible quantity
        _refuse("summary.step_s", str(error))
    _check_training(record)


def _check_effective(record: Record) -> None:
    """Check the axes that the record has on both sides and that this version knows."""
    for name, effect in record.setup.effective.items():
        requested, effective = record.setup.requested.get(name, AUTO), effect.value
        redacted = any(placeholder in str(effective) for placeholder in (HOST, USER, PATH))
        if name in AXES and not redacted and not fits(name, requested, effective):
            _refuse(f"setup.effective.{name}", f"is {shown(effective)}, and {requested} was asked for")


def _check_comparison(comparison: Comparison) -> None:
    try:
        follows: str = verdict_of(Ratio.of_times(comparison.ratio))
    except (ArithmeticError, ValueError):
        _refuse("comparison.ratio", "is no ratio of two times")
    if comparison.side not in ("a", "b") and follows == B_FASTER:
        follows = f"{comparison.side} faster"
    if comparison.verdict != follows:
        _refuse("comparison.verdict", f"is {shown(comparison.verdict)}, and its ratio gives {follows!r}")


def _steady(launch: Launch, number: int) -> list[Block]:
    """Return the samples after warm-up, in their blocks."""
    where = f"samples.launches[{number}]"
    left, blocks = launch.warmup_steps, list[Block]()
    for block in launch.blocks:
        skipped = min(len(block.step_s), left // block.steps_per_sample)
        left -= skipped * block.steps_per_sample
        if left and skipped < len(block.step_s):
            _refuse(f"{where}.warmup_steps", "ends in the middle of a sample")
        if rest := block.step_s[skipped:]:
            blocks.append(replace(block, step_s=rest))
    return blocks


def _check_step(recorded: Quantity, launches: Sequence[Times]) -> None:
    again = _median_of(launches)
    if not 0 < again.median < math.inf:
        _refuse("samples", "steps that take no time")
    _same("summary.step_s.n", recorded.n, again.n)
    _same("summary.step_s.median", recorded.median, again.median)
    if recorded.has_interval != again.has_interval:
        _refuse("summary.step_s", "one sample has no interval, and several have one")
    if not recorded.has_interval or (_close(recorded.low, again.low) and _close(recorded.high, again.high)):
        return
    others = [again, *(_median_of(launches, seed=seed) for seed in _SEEDS)]
    width = max(other.high for other in others) - min(other.low for other in others)
    for end in ("low", "high"):
        ends = [float(getattr(other, end)) for other in others]
        slack = max(ends) - min(ends) + _MARGIN_SHARE * width + _ROUNDING * again.median
        if not min(ends) - slack <= getattr(recorded, end) <= max(ends) + slack:
            _differs(f"summary.step_s.{end}", getattr(recorded, end), getattr(again, end))


def _median_of(launches: Sequence[Times], *, seed: int = 0) -> Quantity:
    blocks = sum(map(len, launches))
    return median_of(launches, seed=seed, replicates=min(REPLICATES, max(_FEWEST_REPLICATES, _MOST_DRAWS // blocks)))


def _check_rates(workload: Workload, summary: Summary, launches: Sequence[Sequence[Block]]) -> None:
    batch = workload.batch
    _check_rate("samples_per_s", summary.samples_per_s, summary.step_s.inverse(batch))
    if (summary.units_per_s is None) != (workload.units_per_sample is None):
        _refuse("summary.units_per_s", "must be there exactly where the workload has units_per_sample")
    if summary.units_per_s is not None and workload.units_per_sample is not None:
        _check_rate("units_per_s", summary.units_per_s, summary.step_s.inverse(batch * workload.units_per_sample))
    _same("summary.sustained_samples_per_s", summary.sustained_samples_per_s, batch / _mean_step_s(launches))
    interval = "within process" if len(launches) == 1 else "across launches"
    if summary.interval != interval:
        _refuse("summary.interval", f"is {summary.interval!r}, and {len(launches)} launches give {interval!r}")


def _check_rate(name: str, recorded: Quantity, rate: Quantity) -> None:
    _same(f"summary.{name}.n", recorded.n, rate.n)
    if recorded.has_interval != rate.has_interval:
        _refuse(f"summary.{name}", "must have an interval exactly where step_s has one")
    for part in ("median", "low", "high") if rate.has_interval else ("median",):
        _same(f"summary.{name}.{part}", getattr(recorded, part), getattr(rate, part))


def _mean_step_s(launches: Sequence[Sequence[Block]]) -> float:
    blocks = [block for launch in launches for block in launch]
    steps = sum(len(block.step_s) * block.steps_per_sample for block in blocks)
    return sum(sum(block.step_s) * block.steps_per_sample for block in blocks) / steps


def _check_share(record: Record, summary: Summary) -> None:
    share, flops = record.share_of_peak, record.cost.flops
    if not isinstance(share, ShareOfPeak):
        return
    if isinstance(flops, Absent) or share.peak_flops_per_s <= 0:
        _refuse("share_of_peak", "there are no FLOPs of which it could be a share")
    _same("share_of_peak.share", share.share, flops / summary.step_s.median / share.peak_flops_per_s)


def _check_parallel(record: Record, summary: Summary) -> None:
    """Check the rates of several processes; early records have plain numbers."""
    parallel = record.parallel
    if parallel is None or isinstance(parallel, Absent) or isinstance(parallel.rates, Absent):
        return
    total, rates = summary.samples_per_s, parallel.rates
    shares = (("total", rates.total, 1), ("per_process", rates.per_process, parallel.world))
    for name, recorded, share in (*shares, ("per_node", rates.per_node, parallel.nodes)):
        rate = recorded.median if isinstance(recorded, Quantity) else recorded
        _same(f"parallel.rates.{name}", rate, total.median / share)


def _check_doubts(record: Record, summary: Summary, launches: Sequence[Times]) -> None:
    recorded = {doubt.code for doubt in record.doubts}
    share = record.share_of_peak if isinstance(record.share_of_peak, ShareOfPeak) else None
    phases = () if isinstance(record.phases, Absent) else (phase for _, phase in record.phases.items())
    known_phases = [phase for phase in phases if not isinstance(phase, Absent)]

    def found(seed: int = 0) -> dict[str, str]:
        derived = derived_doubts(
            launches,
            summary.step_s,
            target_share=_target_share(record.command),
            phases=known_phases,
            share_of_peak=None if share is None else (share.share, share.precision or ""),
            seed=seed,
        )
        return {doubt.code: doubt.detail for doubt in derived}

    again = found()
    for code in (*DERIVED, *(() if share is None else (ABOVE_PEAK,))):
        if (code in recorded) == (code in again) or _written_earlier(summary, code):
            continue
        if code == DIVERGING and any((code in found(seed)) == (code in recorded) for seed in _SEEDS):
            continue  # so near the limit that the seed of the bootstrap decides
        if code in recorded:
            _refuse("doubts", f"{code} does not follow from the record's own numbers")
        _refuse("doubts", f"{code} is missing: {again[code]}")


def _written_earlier(summary: Summary, code: str) -> bool:
    """Earlier versions gave one sample an interval of no width."""
    step = summary.step_s
    return code == "interval_too_wide" and step.n == 1 and not isinstance(step.lower, Absent)


def _check_training(record: Record) -> None:
    effective, training = record.setup.effective, record.training
    if training is None or isinstance(training, Absent):
        return
    precision = str(effective["precision"].value) if "precision" in effective else ""
    fault = fault_in_record(training, phase=record.workload.phase, precision=precision)
    if fault and all(doubt.code != _NOT_TRAINING for doubt in record.doubts):
        _refuse("doubts", f"{_NOT_TRAINING} is missing: {fault}")


def _target_share(command: Sequence[str]) -> float:
    """Return the target of the command, which has it in per cent."""
    for word, value in zip(command, (*command[1:], ""), strict=True):
        name, _, joined = word.partition("=")
        if name == "--target":
            try:
                return float(joined or value) / 100
            except ValueError:
                _refuse("command", "--target must be followed by a number")
    return DEFAULT_TARGET_SHARE


def _same(where: str, recorded: float, again: float) -> None:
    if not _close(recorded, again):
        _differs(where, recorded, again)


def _close(recorded: float, again: float) -> bool:
    return math.isclose(recorded, again, rel_tol=_ROUNDING)


def _differs(where: str, recorded: float, again: float) -> NoReturn:
    _refuse(where, f"is {recorded:.6g}, and the record's own numbers give {again:.6g}")


def _refuse(where: str, why: str) -> NoReturn:
    raise RefusedInputError(f"{where}: {why}")
