"""Builds the record of a run from its launches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Final

import msgspec

import deepstone
from deepstone.absent import Absent
from deepstone.environments.cookbook import year_of
from deepstone.hardware.reach import reach
from deepstone.launchers.local import recorded_variables
from deepstone.measure import doubts
from deepstone.measure.doubts import derived_doubts
from deepstone.measure.effort import Effort
from deepstone.measure.energy.window import energy_of_all
from deepstone.measure.roofline import REMEDY, product_precision
from deepstone.measure.skew import skew_of
from deepstone.measure.statistics import across_launches, median_of
from deepstone.measure.training import fault
from deepstone.results.ceilings import is_low_ceiling
from deepstone.results.doubt import Doubt
from deepstone.results.environment import Environment
from deepstone.results.findings import Content, Finding
from deepstone.results.parallel import Bucket, Communication, Parallel, RankFacts, Rates, Skew
from deepstone.results.parts import Json
from deepstone.results.quantity import Quantity
from deepstone.results.record import (
    SCHEMA,
    STEP_PHASES,
    Block,
    Comparison,
    Cost,
    Draft,
    Energy,
    Launch,
    Rank,
    Samples,
    Setup,
    ShareOfPeak,
    StepPhases,
    Summary,
    Training,
)
from deepstone.runner.conversation import JobFailed, variables_of
from deepstone.runner.job import Job, storable
from deepstone.runner.measurement import Launched, clock_cost_s
from deepstone.runner.peaks import frameworks_measured, known_peaks
from deepstone.runner.rank_memory import planned_bytes
from deepstone.runner.replies import BlockTimes
from deepstone.runner.team import TeamBlock
from deepstone.setups.schemes import SERVER, scheme_of
from deepstone.setups.world import World
from deepstone.store.rescue import save_refused
from deepstone.units import percent

UNASKED: Final = Absent("not asked for in this run")
_MEMORY: Final = ("host_peak_bytes", "device_allocated_bytes", "device_reserved_bytes")
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
    comparison: Comparison | None = None,
) -> Draft:
    """Build the record without its id, which the store assigns. If our own code fails, save the measurements in a file
    and raise InternalError."""
    try:
        return _draft(job, launches, started_at, effort, failure, comparison)
    except Exception as error:
        measured = {"command": job.command, "launches": list(launches)}
        raise save_refused(measured, job.id, error, "record") from error


def _draft(
    job: Job,
    launches: Sequence[Launched],
    started_at: str,
    effort: Effort,
    failure: JobFailed | None,
    comparison: Comparison | None,
) -> Draft:
    measured = [launched for launched in launches if launched.blocks]
    complete = failure is None or failure.outcome == "diverged"
    step = _step_time(measured) if measured and complete else None
    last = launches[-1] if launches else Launched()
    return Draft(
        schema=SCHEMA,
        job=job.id,
        started_at=started_at,
        graph_sha=job.model.graph.sha,
        command=[storable(word) for word in job.command],
        identity=job.identity,
        workload=job.workload,
        setup=setup_of(job, last),
        outcome="ok" if failure is None else failure.outcome,
        failure=Absent("the run succeeded") if failure is None else failure.details,
        samples=_samples(measured),
        summary=Absent("nothing was measured to the end") if step is None else _summary(job, measured, step),
        phases=_phases(job, launches, effort),
        startup=_startup(launches),
        memory=_memory(job, launches),
        energy=_energy(last, launches),
        cost=Cost(flops=job.flops, bytes=job.bytes),
        share_of_peak=_share_of_peak(job, last, step),
        environment=environment_of(job, last),
        comparison=comparison or Absent("measured by itself"),
        training=_training(launches),
        parallel=_parallel(job, launches, step, effort),
        doubts=_doubts(job, measured, step, effort) if step else [],
    )


def _training(launches: Sequence[Launched]) -> Training | Absent:
    """Return the evidence of the first launch; the others do the same training."""
    evidence = next((launched.evidence for launched in launches if launched.evidence is not None), None)
    return Absent("the run ended before it was looked at") if evidence is None else evidence.training


def _parallel(
    job: Job, launches: Sequence[Launched], step: Quantity | None, effort: Effort
) -> Parallel | Absent | None:
    """Of the last launch, except what is about steps; None where there is one process."""
    world, last = World.of(job.request), launches[-1] if launches else Launched()
    if not world.is_parallel:
        return None
    if last.launcher is None:
        return Absent("the run ended before its processes were described")
    unmeasured = Absent("nothing was measured to the end")
    return Parallel(
        world=world.processes,
        nodes=world.nodes,
        servers=world.servers,
        scheme=scheme_of(job.request).name,
        local_batch=job.batch // world.data_ranks,
        launcher=last.launcher,
        hosts=last.hosts,
        ranks=last.ranks,
        buckets=[Bucket(bytes=size) for size in last.bucket_bytes] or Absent("the framework does not tell its buckets"),
        communication=_communication(last, effort),
        wire=last.wire if effort.phases else UNASKED,
        timeline=(Absent("not traced") if effort.phases else UNASKED) if last.traced is None else last.traced.timeline,
        stages=last.stages or None,
        bubbles=last.bubbles if world.stages > 1 else None,
        rates=unmeasured if step is None else rates_of(world, step.inverse(job.batch)),
        skew=unmeasured if step is None else _skew(world, launches),
    )


def _communication(launched: Launched, effort: Effort) -> Communication | Absent:
    """With what traced steps tell of it."""
    if launched.stages:
        return Absent("the stages of a pipeline wait for each other in any case; see bubbles")
    if not effort.phases:
        return UNASKED
    if launched.communication is None:
        return Absent("not measured in this run: it is one of several that are compared")
    if launched.traced is None:
        return launched.communication
    account, logged = launched.traced.account, launched.traced.logged
    return msgspec.structs.replace(launched.communication, account=account, logged=logged)


def rates_of(world: World, total: Quantity) -> Rates:
    return Rates(per_process=total.scaled(1 / world.processes), per_node=total.scaled(1 / world.nodes), total=total)


def _skew(world: World, launches: Sequence[Launched]) -> Skew | Absent:
    if world.driver is not None:
        return Absent("the driver alone knows when a step ends")
    steady = [ranks for launched in launches if (ranks := launched.steady_ranks())]
    if not steady:
        return Absent("nothing was measured to the end")
    return skew_of(steady, error_s=max(launched.clock_error_s for launched in launches))


def _samples(launches: Sequence[Launched]) -> Samples:
    written = [Launch(ranks=_ranks(launched.blocks), warmup_steps=launched.warmup_steps) for launched in launches]
    return Samples(launches=written, warmup_steps=sum(launch.warmup_steps for launch in written))


def _ranks(blocks: Sequence[BlockTimes]) -> list[Rank]:
    """Of every process: the steps of the job follow from them."""
    by_rank = zip(*(block.ranks if isinstance(block, TeamBlock) else [block] for block in blocks), strict=True)
    return [
        Rank(
            blocks=[
                Block(start_s=block.start_s, steps_per_sample=block.steps_per_sample, step_s=list(block.step_s))
                for block in rank
            ]
        )
        for rank in by_rank
    ]


def _step_time(launches: Sequence[Launched]) -> Quantity:
    steady = [launched.steady() for launched in launches]
    known = launches[0].step
    if len(launches) == 1 and known is not None and known.n == sum(map(len, steady[0])):
        return known
    return median_of(steady)


def _summary(job: Job, launches: Sequence[Launched], step: Quantity) -> Summary:
    steps, total_s = 0, 0.0
    for launched in launches:
        skipped = launched.warmup_samples
        for block in launched.blocks:
            kept = block.step_s[skipped:]
            skipped = max(0, skipped - len(block.step_s))
            steps += len(kept) * block.steps_per_sample
            total_s += sum(kept) * block.steps_per_sample
    units = job.workload.units_per_sample
    return Summary(
        step_s=step,
        samples_per_s=step.inverse(job.batch),
        sustained_samples_per_s=job.batch * steps / total_s,
        interval="within process" if len(launches) == 1 else "across launches",
        stopped=launches[-1].stopped,
        units_per_s=step.inverse(job.batch * units) if units else None,
    )


def _phase_s(launches: Sequence[Launched]) -> dict[str, Quantity]:
    """Return the time of each timed phase over all launches."""
    found: dict[str, list[Quantity]] = {}
    for launched in launches:
        for name, quantity in launched.phase_s.items():
            found.setdefault(name, []).append(quantity)
    return {name: across_launches(quantities) for name, quantities in found.items()}


def _phases(job: Job, launches: Sequence[Launched], effort: Effort) -> StepPhases | Absent:
    if not effort.phases:
        return UNASKED
    timed = _phase_s(launches)
    if not timed:
        return Absent("phases were not measured in this run")
    found = {f"{name}_s": timed.get(name) or _why_no_phase(job, name) for name in STEP_PHASES}
    return StepPhases(method=next(launched.phase_method for launched in launches if launched.phase_s), **found)


def _why_no_phase(job: Job, name: str) -> Absent:
    if name == "communication":
        several = World.of(job.request).is_parallel
        return Absent("not measured in this run" if several else "one process does not communicate")
    if name in _IN_PHASE[job.phase]:
        return Absent("not apart from the rest in a step that is one program")
    return Absent(f"phase={job.phase} has none")


def _startup(launches: Sequence[Launched]) -> dict[str, float | Absent]:
    """Return the median of each startup time over launches."""
    hellos = [launched.hello for launched in launches if launched.hello is not None]
    prepared = [launched.prepared for launched in launches if launched.prepared is not None]
    found = {
        "import_s": [hello.import_s for hello in hellos],
        **({"preload_s": preloads} if (preloads := [hello.preload_s for hello in hellos if hello.preload_s]) else {}),
        "build_s": [each.build_s for each in prepared],
        "first_step_s": [each.first_step_s for each in prepared],
    }
    return {name: median(all_s) if all_s else Absent("the run ended before this") for name, all_s in found.items()}


def _memory(job: Job, launches: Sequence[Launched]) -> dict[str, int | Absent]:
    """Return the largest value of any launch."""
    late = Absent("the run ended before memory was read")
    measured: dict[str, int | Absent] = dict.fromkeys(_MEMORY, late)
    for launched in launches:
        for name, found in launched.memory.items():
            known = measured.get(name, late)
            if isinstance(known, Absent) or (not isinstance(found, Absent) and found > known):
                measured[name] = found
    return {**measured, "analytic_bytes": _analytic(job, launches)}


def _analytic(job: Job, launches: Sequence[Launched]) -> int | Absent:
    """Of the process that needs most, where there are several: as its launches tell, else as planned."""
    if not World.of(job.request).is_parallel:
        return job.need_bytes
    told = [rank.predicted_bytes for launched in launches for rank in launched.ranks]
    needs = [need for need in told if isinstance(need, int)] or planned_bytes(job)
    return max((need for need in needs if isinstance(need, int)), default=needs[0])


def _energy(last: Launched, launches: Sequence[Launched]) -> Energy | Absent:
    """Return the energy over all windows; if there are none, the reason from the last launch."""
    windows = [launched.energy for launched in launches if not isinstance(launched.energy, Absent)]
    if windows:
        return energy_of_all(windows)
    return last.energy if isinstance(last.energy, Absent) else Absent("the run ended before it was measured")


def _share_of_peak(job: Job, launched: Launched, step: Quantity | None) -> ShareOfPeak | Absent:
    """Return the FLOP/s of the step over those of the fastest matrix product in the same precision."""
    if step is None or launched.prepared is None:
        return Absent("nothing was measured to the end")
    flops = job.flops
    if isinstance(flops, Absent):
        return flops
    peaks = known_peaks(job, launched.prepared.effective)
    if isinstance(peaks, Absent):
        return peaks
    precision = product_precision(launched.prepared.value("precision"))
    if precision not in peaks.flops_per_s:
        return Absent(f"the {precision} product of {peaks.device} is not known; {REMEDY}")
    peak_flops_per_s = peaks.flops_per_s[precision].median
    share = flops / step.median / peak_flops_per_s
    frameworks = frameworks_measured(job, launched.prepared.effective, precision)
    if is_low_ceiling(share, peaks.device, frameworks):
        return Absent(
            f"the step does {percent(share)} of the {precision} product of {' and '.join(frameworks)}, the only one "
            f"that was measured on {peaks.device}: it is too low a ceiling; measure it again, with every framework, "
            "with `deepstone doctor --peaks`"
        )
    return ShareOfPeak(
        share=share,
        precision=precision,
        peak_flops_per_s=peak_flops_per_s,
        measured_with=peaks.measured_with,
        measured_at=peaks.measured_at,
    )


def setup_of(job: Job, launched: Launched) -> Setup:
    """Return the requested setup and the effective one, as far as it is known."""
    return Setup(requested=job.request, effects={} if launched.prepared is None else launched.prepared.effective)


def environment_of(job: Job, launched: Launched) -> Environment:
    """Return the machine, the framework and the variables of a launch."""
    variables = variables_of(job)
    framework: dict[str, Json] = dict(job.environment.lock)
    if launched.hello is not None:
        hello = launched.hello
        framework |= {**hello.framework, **({"runtime": hello.runtime} if hello.runtime else {"python": hello.python})}
    return Environment(
        machine=job.machine.description,
        framework=framework,
        details={} if launched.prepared is None else launched.prepared.details,
        variables={name: storable(value) for name, value in recorded_variables(variables).items()},
        year=year_of(job.environment),
        deepstone=deepstone.__version__,
    )


def bare_finding(kind: str, job: Job, content: Content) -> Finding:
    """Build a finding with the fields that every finding of a job has."""
    command = [storable(word) for word in job.command]
    return Finding(schema=SCHEMA, kind=kind, model=job.model.name, command=command, content=content)


def _doubts(job: Job, launches: Sequence[Launched], step: Quantity, effort: Effort) -> list[Doubt]:
    found: list[Doubt | None] = []
    for launched in launches:
        if launched.evidence is not None and (reason := fault(launched.evidence)):
            found.append(Doubt(code="not_training", detail=reason))
        found.extend(launched.noise_doubts)
        found.append(doubts.replicas_differ(launched.differing))
        nodes = World.of(job.request).nodes
        found.append(doubts.emulated_nodes(nodes, share_machine=launched.nodes_share_machine))
        found.append(doubts.around_the_network(launched.wire, nodes))
        machines = 1 if launched.nodes_share_machine else nodes
        here = [rank.threads for rank in _computing(job, launched) if rank.node < nodes // machines]
        found.append(doubts.oversubscribed(here, job.machine.usable_cores))
        found.append(doubts.clock_unaligned(launched.clock_error_s, step))
        if launched.communication is not None:
            found.append(doubts.straggler(launched.communication.waiting_s, step))
            if launched.traced is not None:
                exposed = launched.communication.exposed_s
                found.append(doubts.unexplained_communication(launched.traced.account, exposed, step))
        last = launched.blocks[-1]
        sample_s = median(last.step_s) * last.steps_per_sample  # a late look makes one short, and the next one long
        if launched.on_gpu:
            found.append(doubts.host_bound(enqueue_s=last.enqueue_s, block_s=last.total_s))
        else:
            found.append(doubts.too_short_to_time(sample_s, clock_cost_s=clock_cost_s()))
    share = _share_of_peak(job, launches[-1], step)
    found += derived_doubts(
        [launched.steady() for launched in launches],
        step,
        target_share=effort.target_share,
        phases=_phase_s(launches).values(),
        share_of_peak=None if isinstance(share, Absent) else (share.share, share.precision or ""),
    )
    if isinstance(share, Absent):
        found.append(_above_reach(job, launches[-1], step))
    found.append(doubts.clocks_disagree([trip for launched in launches for trip in launched.round_trips]))
    return _once_each([doubt for doubt in found if doubt is not None])


def _computing(job: Job, launched: Launched) -> list[RankFacts]:
    """The processes that compute on CPUs at the same time: a server that waits for all workers does not, nor does a
    driver."""
    computing = ("worker",) if scheme_of(job.request).name == SERVER else ("worker", "server")
    return [rank for rank in launched.ranks if rank.device == "cpu" and rank.role in (*computing, None)]


def _above_reach(job: Job, launched: Launched, step: Quantity) -> Doubt | None:
    """Check the speed against the theoretical limit of the hardware, for devices without a measured peak."""
    if isinstance(job.flops, Absent) or launched.prepared is None:
        return None
    precision = product_precision(launched.prepared.value("precision"))
    device = launched.prepared.value("device")
    bound = reach(job.machine.description, device, precision, gpu_uuid=launched.gpu_uuid)
    if isinstance(bound, Absent):
        return None
    return doubts.above_reach(job.flops / step.median, bound.flops_per_s, precision, bound.hardware)


def _once_each(found: Sequence[Doubt]) -> list[Doubt]:
    """Keep the first doubt of each code: several launches repeat it."""
    first: dict[str, Doubt] = {}
    for doubt in found:
        first.setdefault(doubt.code, doubt)
    return list(first.values())
