"""What a search needs before it starts: a meter if energy is asked for, and its log, which an earlier call may have
begun."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.measure.energy.window import find_meters
from deepstone.results.identity import canonical_sha256
from deepstone.results.tune import TuneLog
from deepstone.runner.assemble import now
from deepstone.store.store import Store
from deepstone.tuner.wanted import Wanted
from deepstone.tuner.workload import Workload


def check_meter(workload: Workload, wanted: Wanted) -> None:
    """Raise MissingError if energy is asked for and nothing here measures it."""
    if not wanted.needs_energy:
        return
    device = workload.space.facts.device
    uuid = next((gpu.uuid for gpu in workload.machine.gpus if isinstance(gpu.uuid, str)), None)
    meters = find_meters("gpu", gpu_uuid=uuid) if device == "gpu" else find_meters("cpu")
    if isinstance(meters, Absent):
        raise MissingError(
            f"{_why_energy(wanted)}energy cannot be measured here: {meters.reason}; use --objective throughput, and no "
            "limit of power"
        )
    for meter in meters:
        meter.close()


def _why_energy(wanted: Wanted) -> str:
    """`throughput:slowdown=1.05` does not say by itself that it is about energy."""
    slowdown = wanted.objective.slowdown
    if wanted.objective.name != "energy" or slowdown is None:
        return ""
    return f"slowdown={slowdown:g} seeks the least energy among setups at most {slowdown:g} times slower, and "


@contextmanager
def open_log(store: Store, workload: Workload, wanted: Wanted, command: Sequence[str]) -> Generator[TuneLog]:
    """The unfinished log of the same search, else a new one. It is claimed until the context is left: raises StoreError
    if another process is at this search."""
    space = workload.space
    asked = {
        "graph": workload.model.graph.sha,
        "base": dict(space.base),
        "axes": {axis.name: list(axis.values) for axis in space.axes},
        "objective": wanted.objective.to_json(),
        "limits": [limit.to_json() for limit in wanted.limits],
        "level": wanted.level,
        "machine": workload.machine.sha,
        "environments": {name: environment.sha for name, environment in workload.environments.items()},
    }
    name = canonical_sha256(asked)[:20]
    with store.tunes.claim(name):
        yield _log(store.tunes.get(name), name, workload, wanted, command)


def _log(earlier: TuneLog | None, name: str, workload: Workload, wanted: Wanted, command: Sequence[str]) -> TuneLog:
    if earlier is not None and isinstance(earlier.finished_at, Absent):
        return replace(earlier, command=list(command), budget_s=wanted.budget_s, calls=earlier.calls + 1)
    return TuneLog(
        name=name,
        model=workload.model.name,
        command=list(command),
        started_at=now(),
        finished_at=Absent("not finished; the same command goes on"),
        budget_s=wanted.budget_s,
        spent_s=0.0,
        calls=1,
        looks=[],
    )
