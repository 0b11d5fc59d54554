"""`deepstone comm` as a program: from its words to a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from deepstone.backends.registry import BEST_FIRST
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError
from deepstone.models.load import LoadedModel
from deepstone.results.findings import Finding
from deepstone.results.record import SCHEMA
from deepstone.runner.assemble import environment_of
from deepstone.runner.examine import probe_model
from deepstone.runner.job import Job, Machine, storable
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.runner.new_job import make_job
from deepstone.scaling.comm_words import CommWords
from deepstone.scaling.curves import comm_curves
from deepstone.scaling.lane import Lane
from deepstone.scaling.measure import CommMeasured, CommPlan, measure_comm
from deepstone.setups.axes import AUTO, Value
from deepstone.setups.request import complete
from deepstone.setups.schemes import TAKEN

# Without a model, processes have a tiny network, so that frameworks report their setup as ever; it exchanges nothing.
_OF_PROBE: Final[dict[str, Value]] = {"batch": "16/process", "overlap": "off"}
_OF_MODEL: Final[dict[str, Value]] = {"batch": "1/process"}  # gradients have the same size at any batch


def plan_comm(
    words: CommWords,
    loaded: LoadedModel | None,
    command: Sequence[str],
    *,
    launches: int,
    budget_s: float,
    timeout_s: float,
    under_load: bool,
) -> CommPlan:
    """Raises MissingError if no environment fits."""
    machine, model = Machine.here(), loaded or probe_model()
    given = _OF_PROBE if loaded is None else _OF_MODEL
    return CommPlan(
        jobs=tuple(make_job(model, complete({**given, **_able(lane)}), machine, command) for lane in words.lanes),
        operations=words.operations,
        sizes=words.sizes,
        compute="a small network" if loaded is None else model.name,
        launches=launches,
        budget_s=budget_s,
        timeout_s=timeout_s,
        under_load=under_load,
        by_name=words.by_name,
    )


def _able(lane: Mapping[str, Value]) -> dict[str, Value]:
    """With a framework that has the transport, where none was asked for: the usual one does not have gRPC."""
    transport = str(lane["transport"])
    if transport == AUTO or "framework" in lane or transport in _transports(find_environment(AUTO).framework):
        return dict(lane)
    able = [name for name in BEST_FIRST if transport in _transports(name)]
    return {**lane, **({"framework": able[0]} if able else {})}


def _transports(framework: str) -> tuple[str, ...]:
    return TAKEN.get(framework, {}).get("transport", ())


def task_words(plan: CommPlan) -> str:
    """What tells two tasks with the same first job apart."""
    lanes = [f"{job.request['transport']}/{job.request['processes']}" for job in plan.jobs]
    sizes = ["buckets"] if plan.of_model else [str(size) for size in plan.sizes]
    parts = [",".join(lanes), ",".join(plan.operations), ",".join(sizes), f"launches {plan.launches}"]
    return " ".join([*parts, *(["under load"] if plan.under_load else [])])


def comm_finding(plan: CommPlan, on_progress: OnProgress = no_progress) -> Finding:
    measured = CommMeasured.nothing_yet(plan)
    measure_comm(plan, measured, on_progress)
    return finding_of(plan, measured)


def finding_of(plan: CommPlan, measured: CommMeasured) -> Finding:
    """A failure is a finding too. MissingError if nothing could be measured because something is missing."""
    content = comm_curves(plan, measured)
    first = measured.lanes[0]
    failure = None if content.curves else first.failure
    if isinstance(failure, MissingError):
        raise failure
    return Finding(
        schema=SCHEMA,
        kind="comm",
        model=plan.jobs[0].model.name if plan.of_model else "",
        outcome="ok" if failure is None else failure.outcome,
        command=[storable(word) for word in plan.jobs[0].command],
        environment=environment_of(first.job, _started(measured.lanes).started),
        failure=None if failure is None else failure.in_finding,
        content=content,
    )


def _started(lanes: Sequence[Lane]) -> Lane:
    return next((lane for lane in lanes if lane.started.prepared is not None), lanes[0])


def jobs_in_words(plan: CommPlan) -> list[tuple[Job, str]]:
    """Each job, and why it cannot run, as far as rules tell; nothing if it can."""
    return [(job, job.broken_rule or "") for job in plan.jobs]
