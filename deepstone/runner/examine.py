"""Finds out what runs here by running it: tiny jobs in workers of their own, so that a crash is an answer too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent
from deepstone.backends.registry import BACKENDS
from deepstone.environments.environment import Environment
from deepstone.environments.find import installed
from deepstone.errors import MissingError
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.measure.energy.window import find_meters
from deepstone.models.load import LoadedModel
from deepstone.records.schema import is_absent
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.runner.job import Job, Machine
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.setups.axes import FORWARD_ONLY, Value
from deepstone.setups.effective import contradiction
from deepstone.setups.request import complete

_PROBE_TIMEOUT_S = 180.0

# What is known to crash or fail on some machines, and what helps: (name, request, remedy).
_FEATURES: tuple[tuple[str, dict[str, Value], str], ...] = (
    (
        "bf16 on the CPU",
        {"device": "cpu", "precision": "bf16-mixed"},
        "use fp32, or isa=avx512_core_fp16, which keeps oneDNN off AMX",
    ),
    ("oneDNN", {"device": "cpu", "engine": "onednn"}, "use engine=native"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    machine: dict[str, Any]
    devices: list[dict[str, Any]]
    frameworks: dict[str, dict[str, Any]]
    meters: dict[str, dict[str, Any]]
    missing: list[dict[str, str]]

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "devices": self.devices,
            "frameworks": self.frameworks,
            "meters": self.meters,
            "missing": self.missing,
        }


def examine(on_progress: OnProgress = no_progress) -> Examination:
    machine = Machine.here()
    missing: list[dict[str, str]] = []
    frameworks: dict[str, dict[str, Any]] = {}
    for name, environment in installed().items():
        frameworks[name] = _framework(name, environment, machine, missing, on_progress)
    return Examination(
        machine=dict(machine.description),
        devices=_devices(machine, missing),
        frameworks=frameworks,
        meters=_meters(machine, missing),
        missing=missing,
    )


def _framework(
    name: str, environment: Environment | None, machine: Machine, missing: list[dict[str, str]], on_progress: OnProgress
) -> dict[str, Any]:
    if environment is None:
        missing.append({"what": f"framework {name}", "why": "not installed", "remedy": BACKENDS[name].remedy})
        return {"version": "", "runs": False, "why": "not installed"}
    framework = environment.framework
    on_progress(f"trying {name}", 0.1)
    why = try_request(environment, machine, {"framework": framework})
    if why:
        missing.append({"what": f"framework {name}", "why": why, "remedy": _remedy(environment)})
        return {"version": environment.version, "runs": False, "why": why}
    features: dict[str, dict[str, Any]] = {}
    for number, (feature, request, remedy) in enumerate(_features(machine)):
        on_progress(f"trying {name}, {feature}", (number + 1) / (len(_FEATURES) + 2))
        why = try_request(environment, machine, {"framework": framework, **request})
        features[feature] = {"works": not why, "why": why}
        if why and not why.startswith("unsupported"):  # which is how this framework is, not what this machine lacks
            missing.append({"what": f"{name}: {feature}", "why": why, "remedy": remedy})
    return {"version": environment.version, "runs": True, "why": "", "features": features}


def _remedy(environment: Environment) -> str:
    own = environment.kind == "own"
    return BACKENDS[environment.framework].remedy if own else f"see deepstone env doctor {environment.name}"


def _features(machine: Machine) -> Iterable[tuple[str, dict[str, Value], str]]:
    yield from _FEATURES
    if machine.gpus:
        remedy = "install a build of the framework for this GPU and driver"
        yield "GPU", {"device": "gpu:0"}, remedy


def try_request(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
    """Run one step of a tiny network, training it where the framework can; why it failed, or nothing."""
    job = probe_job(environment, machine, request)
    try:
        with talking_to_worker(job, timeout_s=_PROBE_TIMEOUT_S) as conversation:
            conversation.hello()
            prepared = conversation.prepare()
            conversation.close()
    except JobFailed as failure:
        return f"{failure.outcome}: {failure.reason}"
    except MissingError as error:
        return str(error)
    reason = contradiction(job.request, prepared.effective)
    return f"unsupported: {reason}" if reason else ""


def probe_job(environment: Environment, machine: Machine, request: dict[str, Value]) -> Job:
    """A tiny network, for those who want a worker and not what it trains."""
    graph = _tiny()
    able: dict[str, Value] = {"phase": "forward"} if environment.framework in FORWARD_ONLY else {}
    return Job(
        model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""),
        request=complete({"batch": 16, **able, **request}),
        environment=environment,
        machine=machine,
        command=("deepstone", "doctor"),
    )


def _tiny() -> Graph:
    """Wide enough that libraries take their fast paths, AMX included."""
    b = Builder("probe")
    x = b.input("data", (32, 16, 16))
    x = b.relu("relu", b.conv("conv", x, channels=64, kernel=3, pad=1))
    x = b.dense("dense", b.flatten("flatten", b.global_pool("pool", x)), features=16)
    b.softmax_cross_entropy("loss", x)
    return b.build()


def _devices(machine: Machine, missing: list[dict[str, str]]) -> list[dict[str, Any]]:
    cpu = machine.description["cpu"]
    devices: list[dict[str, Any]] = [{"name": "cpu", "what": cpu["model"], "cores": cpu["usable_cores"]}]
    gpus = machine.gpus
    devices += [{**gpu, "name": f"gpu:{gpu['index']}", "what": gpu["name"]} for gpu in gpus]
    if not gpus:
        listed = machine.description["gpus"]
        why = str(listed["absent"]) if is_absent(listed) else "the driver lists none"
        missing.append({"what": "GPU", "why": why, "remedy": "none needed; everything runs on the CPU"})
    return devices


def _meters(machine: Machine, missing: list[dict[str, str]]) -> dict[str, dict[str, Any]]:
    meters: dict[str, dict[str, Any]] = {}
    for device in ["cpu", *(["gpu"] if machine.gpus else [])]:
        found = find_meters("gpu" if device == "gpu" else "cpu")
        if isinstance(found, Absent):
            meters[device] = found.to_json()
            missing.append({"what": f"energy of the {device}", "why": found.reason, "remedy": "run on bare metal"})
            continue
        meters[device] = {
            "covers": ", ".join(meter.covers for meter in found),
            "meters": [meter.name for meter in found],
            "update_period_s": max(meter.update_period_s for meter in found),
        }
        for meter in found:
            meter.close()
    return meters
