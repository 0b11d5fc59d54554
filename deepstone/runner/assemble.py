"""From what launches gave to the record that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import deepstone
from deepstone.absent import Absent, as_json
from deepstone.environments.years import year_of
from deepstone.launchers.local import telling
from deepstone.measure import doubts
from deepstone.measure.doubts import Doubt
from deepstone.measure.roofline import REMEDY, product_precision
from deepstone.measure.statistics import Quantity, median_of
from deepstone.records.schema import (
    SCHEMA,
    Draft,
    Effect,
    Failure,
    Launch,
    Phases,
    Samples,
    Summary,
    absent,
)
from deepstone.records.schema import Absent as AbsentJson
from deepstone.records.schema import Doubt as DoubtJson
from deepstone.records.schema import Quantity as QuantityJson
from deepstone.runner.conversation import JobFailed, variables_of
from deepstone.runner.job import Job, storable
from deepstone.runner.launch import Effort, Launched, clock_cost_s
from deepstone.runner.peaks import known_peaks

_PHASES = ("data", "forward", "backward", "communication", "update")
_IN_PHASE = {
    "forward": ("data", "forward"),
    "gradient": ("data", "forward", "backward"),
    "train": ("data", "forward", "backward", "update"),
}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def draft(
    job: Job,
    launches: Sequence[Launched],
    *,
    started_at: str,
    effort: Effort,
    failure: JobFailed | None = None,
    comparison: dict[str, Any] | None = None,
) -> Draft:
    """The record, but for the id that the store gives it."""
    measured = [launched for launched in launches if launched.blocks]
    complete = failure is None or failure.outcome == "diverged"
    step = _step_time(measured) if measured and complete else None
    summary = None if step is None else _summary(job, measured, step)
    last = launches[-1] if launches else Launched()
    return {
        "schema": SCHEMA,
        "job": job.id,
        "started_at": started_at,
        "graph_sha": job.model.graph.sha,
        "command": [storable(word) for word in job.command],
        "identity": job.identity,
        "workload": job.workload,
        "setup": {"requested": dict(job.request), "effective": _effective(last)},
        "outcome": "ok" if failure is None else failure.outcome,
        "failure": absent("the run succeeded") if failure is None else _failure(failure),
        "samples": _samples(measured),
        "summary": summary or absent("nothing was measured to the end"),
        "phases": _phases(job, last),
        "startup": _startup(last),
        "memory": _memory(job, last),
        "energy": last.energy.to_json(),
        "cost": as_json({"flops": job.flops, "bytes": job.bytes}),
        "share_of_peak": _share_of_peak(job, last, step),
        "environment": environment_of(job, last),
        "comparison": comparison or absent("measured by itself"),
        "doubts": [cast(DoubtJson, doubt.to_json()) for doubt in _doubts(measured, step, effort)] if step else [],
    }


def _samples(launches: Sequence[Launched]) -> Samples:
    written: list[Launch] = [
        {
            "ranks": [
                {
                    "blocks": [
                        {"start_s": block.start_s, "steps_per_sample": block.steps_per_sample, "step_s": block.step_s}
                        for block in launched.blocks
                    ]
                }
            ],
            "warmup_steps": launched.warmup_steps,
        }
        for launched in launches
    ]
    return {"launches": written, "warmup_steps": sum(launch["warmup_steps"] for launch in written)}


def _step_time(launches: Sequence[Launched]) -> Quantity:
    if len(launches) == 1 and launches[0].step is not None:
        return launches[0].step
    return median_of([launched.steady() for launched in launches])


def _summary(job: Job, launches: Sequence[Launched], step: Quantity) -> Summary:
    steps, total_s = 0, 0.0
    for launched in launches:
        skipped = launched.warmup_samples
        for block in launched.blocks:
            kept = block.step_s[skipped:]
            skipped = max(0, skipped - len(block.step_s))
            steps += len(kept) * block.steps_per_sample
            total_s += sum(kept) * block.steps_per_sample
    return {
        "step_s": _quantity(step),
        "samples_per_s": _quantity(step.inverse(job.batch)),
        "sustained_samples_per_s": job.batch * steps / total_s,
        "interval": "within process" if len(launches) == 1 else "across launches",
        "stopped": launches[-1].stopped,
    }


def _quantity(quantity: Quantity) -> QuantityJson:
    return cast(QuantityJson, quantity.to_json())


def _phases(job: Job, launched: Launched) -> Phases | AbsentJson:
    if not launched.phase_s:
        return absent("phases were not measured in this run")
    phases: dict[str, Any] = {"method": launched.phase_method}
    for name in _PHASES:
        if name in launched.phase_s:
            phases[f"{name}_s"] = _quantity(launched.phase_s[name])
        elif name == "communication":
            phases["communication_s"] = absent("one process does not communicate")
        elif name in _IN_PHASE[job.phase]:
            phases[f"{name}_s"] = absent("not apart from the rest in a step that is one program")
        else:
            phases[f"{name}_s"] = absent(f"phase={job.phase} has none")
    return cast(Phases, phases)


def _startup(launched: Launched) -> dict[str, float | AbsentJson]:
    late = absent("the run ended before this")
    hello, prepared = launched.hello, launched.prepared
    return {
        "import_s": late if hello is None else hello.import_s,
        "build_s": late if prepared is None else prepared.build_s,
        "first_step_s": late if prepared is None else prepared.first_step_s,
    }


def _memory(job: Job, launched: Launched) -> dict[str, int | AbsentJson]:
    late = absent("the run ended before memory was read")
    measured = dict.fromkeys(("host_peak_bytes", "device_allocated_bytes", "device_reserved_bytes"), late)
    return {**measured, **launched.memory, "analytic_bytes": as_json(job.need_bytes)}


def _share_of_peak(job: Job, launched: Launched, step: Quantity | None) -> dict[str, Any] | AbsentJson:
    """FLOP/s reached over those of the best matrix product in the precision of the step."""
    if step is None or launched.prepared is None:
        return absent("nothing was measured to the end")
    flops = job.flops
    if isinstance(flops, Absent):
        return absent(flops.reason)
    peaks = known_peaks(job, launched.prepared.effective)
    if isinstance(peaks, Absent):
        return absent(peaks.reason)
    precision = product_precision(str(launched.prepared.effective["precision"]["value"]))
    if precision not in peaks.flops_per_s:
        return absent(f"the {precision} product of {peaks.device} is not known; {REMEDY}")
    peak_flops_per_s = peaks.flops_per_s[precision].median
    return {
        "share": flops / step.median / peak_flops_per_s,
        "precision": precision,
        "peak_flops_per_s": peak_flops_per_s,
        "measured_with": peaks.measured_with,
        "measured_at": peaks.measured_at,
    }


def _effective(launched: Launched) -> dict[str, Effect]:
    return {} if launched.prepared is None else cast(dict[str, Effect], launched.prepared.effective)


def environment_of(job: Job, launched: Launched) -> dict[str, Any]:
    """Where it ran and with what."""
    variables = variables_of(job)
    framework: dict[str, Any] = dict(job.environment.lock)
    if launched.hello is not None:
        framework |= {**launched.hello.framework, "python": launched.hello.python}
    details = {} if launched.prepared is None else launched.prepared.details
    return {
        "machine": dict(job.machine.description),
        "framework": framework,
        "details": details,
        "variables": {name: storable(value) for name, value in telling(variables).items()},
        "year": as_json(year_of(job.environment)),
        "deepstone": deepstone.__version__,
    }


def _failure(failure: JobFailed) -> Failure:
    written: Failure = {"reason": failure.reason, "stage": failure.stage, "stderr_tail": failure.stderr_tail}
    if failure.signal is not None:
        written["signal"] = failure.signal
    if failure.exit_code is not None:
        written["exit_code"] = failure.exit_code
    return written


def _doubts(launches: Sequence[Launched], step: Quantity, effort: Effort) -> list[Doubt]:
    found: list[Doubt | None] = []
    for launched in launches:
        if launched.noise is not None:
            found.extend(doubts.noise_doubts(*launched.noise))
        found.append(doubts.trend([sample for block in launched.steady() for sample in block]))
        last = launched.blocks[-1]
        sample_s = min(last.step_s) * last.steps_per_sample
        if launched.on_gpu:
            found.append(doubts.host_bound(enqueue_s=last.enqueue_s, block_s=last.total_s))
        else:
            found.append(doubts.too_short_to_time(sample_s, clock_cost_s=clock_cost_s()))
    found.append(doubts.interval_too_wide(step.relative_half_width, target=effort.target))
    found.append(doubts.few_samples(step.n))
    if len(launches) > 1:
        found.append(doubts.diverging_launches([median_of([launched.steady()]) for launched in launches]))
    return _once_each([doubt for doubt in found if doubt is not None])


def _once_each(found: Sequence[Doubt]) -> list[Doubt]:
    """One doubt of each kind, the first: several launches would repeat it."""
    first: dict[str, Doubt] = {}
    for doubt in found:
        first.setdefault(doubt.code, doubt)
    return list(first.values())
