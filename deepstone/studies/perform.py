"""Does one task: a run becomes a record, everything else a finding, kept in the store as soon as it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from deepstone.environments.undisturbed import undisturbed
from deepstone.records.schema import OUTCOMES, Record
from deepstone.runner.assemble import environment_of, now
from deepstone.runner.convolutions import LabEffort, new_lab
from deepstone.runner.findings import lab_finding, layers_finding, memory_finding, peaks_finding
from deepstone.runner.job import storable
from deepstone.runner.launch import Effort, Launched, Tell
from deepstone.runner.layers import LayersEffort
from deepstone.runner.run import run_job
from deepstone.store.store import Store
from deepstone.studies.task import Task

_SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Performed:
    """`speed` is images per second, where that was measured."""

    id: str
    outcome: str
    reason: str
    speed: float | None = None


def perform(task: Task, store: Store, tell: Tell) -> Performed:
    """Measures and stores. Raises MissingError when something is not there, StoreError when it cannot be kept."""
    if task.kind == "run":
        effort = Effort(
            target=task.effort.target / 100,
            budget_s=task.budget_s,
            timeout_s=task.effort.timeout_s,
            phases=task.effort.phases,
        )
        draft = run_job(task.job, effort, tell)
        with undisturbed():
            return of_record(store.add(draft))
    finding = _finding(task, tell)
    with undisturbed():
        return of_finding(store.findings.add(finding))


def of_record(record: Record) -> Performed:
    failure, summary = record["failure"], record["summary"]
    return Performed(
        id=record["id"],
        outcome=record["outcome"],
        reason="" if "absent" in failure else failure["reason"],
        speed=None if "absent" in summary else summary["samples_per_s"]["median"],
    )


def of_finding(finding: dict[str, Any]) -> Performed:
    reason = str(finding.get("failure", {}).get("reason", ""))
    return Performed(id=finding["id"], outcome=finding["outcome"], reason=reason)


def _finding(task: Task, tell: Tell) -> dict[str, Any]:
    """As the command prints it, with what a finding has at any rate."""
    started_at = now()
    found = _found(task, tell)
    job = task.job
    head: dict[str, Any] = {
        "started_at": started_at,
        "command": [storable(word) for word in job.command],
        "model": task.model,
        "identity": job.identity,
    }
    if task.kind != "peaks":
        head |= {"graph_sha": job.model.graph.sha, "workload": job.workload, "setup": {"requested": dict(job.request)}}
    if "environment" not in found:
        head["environment"] = environment_of(job, Launched())
    return {**head, **found, "schema": _SCHEMA, "kind": task.kind, "task": task.id}


def _found(task: Task, tell: Tell) -> dict[str, Any]:
    job, effort = task.job, task.effort
    if task.kind == "layers":
        look = LayersEffort(
            budget_s=task.budget_s,
            timeout_s=effort.timeout_s,
            in_place=task.method != "isolated",
            isolated=task.method != "in-place",
        )
        return layers_finding(job, look, tell)
    if task.kind == "memory":
        return memory_finding(job, timeout_s=effort.timeout_s, tell=tell)
    if task.kind == "conv":
        return lab_finding(job, LabEffort(budget_s=task.budget_s, timeout_s=effort.timeout_s), new_lab(), tell)
    entry = peaks_finding(job.environment, job.machine, str(job.request["device"]), tell)
    if "absent" not in entry:
        return {"outcome": "ok", "peaks": [entry]}
    outcome, _, reason = str(entry["absent"]).partition(": ")
    known = outcome if outcome in OUTCOMES else "unsupported"
    return {"outcome": known, "peaks": [entry], "failure": {"reason": reason or outcome, "stderr_tail": ""}}
