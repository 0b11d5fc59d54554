"""What scripts of all frameworks share: what is set before the import, the facts of a job, the words on top."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from deepstone.errors import UsageError
from deepstone.launchers.local import worker_variables
from deepstone.runner.job import Job
from deepstone.runner.team import rank_jobs
from deepstone.setups.axes import AUTO, AXES, PLACEMENTS, cpu_list
from deepstone.setups.request import as_words
from deepstone.setups.world import World, placed_on

# Set by Deepstone so that it can measure; a script does without.
_OUR_OWN: Final = ("TF_CPP_MIN_LOG_LEVEL", "XLA_PYTHON_CLIENT_PREALLOCATE")
# Read by the loader before Python starts: a script cannot set them for itself.
_BEFORE_PYTHON: Final = ("LD_PRELOAD", "LD_LIBRARY_PATH")
# The workload, which is the user's own in a script.
_OF_THE_USER: Final = ("framework", "device", "batch", "phase", "seed", "dropout", "input", "nodes")


class Facts(Struct, frozen=True, kw_only=True):
    """Of a job, as a script needs them. `shape`: of one image, channels first."""

    batch: int
    shape: tuple[int, int, int]
    classes: int
    on_gpu: bool
    variables: Mapping[str, str]
    before_python: Mapping[str, str]
    cpus: list[list[int]]  # of each process; empty: all


def facts_of(job: Job) -> Facts:
    world, framework = World.of(job.request), job.environment.framework
    if world.nodes > 1:
        raise UsageError("--emit: a script for several nodes depends on your cluster; use nodes=1")
    first = rank_jobs(job)[0] if world.is_parallel else job
    variables = worker_variables({}, framework, job.environment.version, first.request)
    if job.request["algorithm"] == "deterministic" and framework == "torch" and _on_gpu(job):
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    own = {name: value for name, value in variables.items() if name not in _OUR_OWN and os.environ.get(name) != value}
    graph = job.model.graph
    image = (0, 0, 0)  # of a user's own step, whose file has its inputs
    if not graph.own_step:
        channels, height, width = graph.shapes[graph.input.name]
        image = (channels, height, width)
    return Facts(
        batch=job.batch,
        shape=image,
        classes=0 if graph.own_step else graph.classes,
        on_gpu=_on_gpu(job),
        variables={name: value for name, value in own.items() if name not in _BEFORE_PYTHON},
        before_python={name: value for name, value in own.items() if name in _BEFORE_PYTHON},
        cpus=_cpus(job, world),
    )


def _on_gpu(job: Job) -> bool:
    """`auto` takes a GPU where there is one."""
    device = str(job.request["device"])
    return device.startswith("gpu") or (device == AUTO and bool(job.machine.gpus))


def _cpus(job: Job, world: World) -> list[list[int]]:
    affinity = str(job.request["affinity"])
    if affinity in (AUTO, "none"):
        return []
    if world.is_parallel:
        return [cpu_list(str(rank.request["affinity"])) for rank in rank_jobs(job)]
    if affinity not in PLACEMENTS:
        return [cpu_list(affinity)]
    usable, asked = sorted(os.sched_getaffinity(0)), job.request["threads"]
    return [placed_on(affinity, usable, len(usable) if asked == AUTO else int(asked))]


def refuse_values(job: Job, *refusals: tuple[str, tuple[str, ...], str]) -> None:
    """Raise UsageError for the first axis whose value a script cannot have: (axis, its values, why)."""
    for axis, values, why in refusals:
        value = str(job.request[axis])
        if value in values:
            raise UsageError(f"--emit: {axis}={value}: {why}")


def refuse_others(job: Job, written: tuple[str, ...]) -> None:
    """Raise UsageError for an axis that no line of the script sets: a setting is never left out in silence."""
    framework, version = job.environment.framework, job.environment.version
    variables = worker_variables({}, framework, version, job.request)
    for name, axis in AXES.items():
        if job.request[name] == axis.default or name in (*_OF_THE_USER, *written):
            continue
        without = worker_variables({}, framework, version, {**job.request, name: axis.default})
        if without == variables:
            raise UsageError(f"--emit: {name}={job.request[name]}: a script does not set it; fix another value")


def header(job: Job, facts: Facts, found: str, run: str) -> str:
    """The docstring: what the script does, what was measured, how to start it."""
    words = " ".join(as_words({**job.request, "batch": AXES["batch"].default}))
    before = "".join(f"{name}={value} " for name, value in facts.before_python.items())
    title = f"Trains {job.model.name} in this setup: {words or 'with all defaults'}."
    told = [textwrap.fill(each, 116, break_on_hyphens=False) for each in (title, found)]
    put_in = "Written by Deepstone. The data are random: put in yours where a comment says so."
    return "\n".join([f'"""{told[0]}', "", told[1], put_in, "", f"    {before}{run}", '"""', ""])


def in_one_process(job: Job, facts: Facts, found: str, framework: str, imports: str, *parts: str) -> str:
    """A script of these parts that one process runs."""
    before = before_import(framework, facts)
    return "\n".join(
        [header(job, facts, found, "python train.py"), f"{before}\n{imports}" if before else imports, *parts]
    )


def before_import(framework: str, facts: Facts) -> str:
    """What must be set before the framework is imported."""
    parts: list[str] = []
    if facts.variables:
        parts.append(f"# {framework} reads these when it is imported.")
        parts += [f'os.environ["{name}"] = "{value}"' for name, value in facts.variables.items()]
    if len(facts.cpus) == 1:
        parts.append(f"os.sched_setaffinity(0, {facts.cpus[0]})")
    elif facts.cpus:
        parts.append(f'os.sched_setaffinity(0, {facts.cpus}[int(os.environ["LOCAL_RANK"])])')
    return "\n".join(["import os", "", *parts, ""]) if parts else ""


def indented(lines: Iterable[str], levels: int = 1) -> str:
    return "\n".join("    " * levels + line if line else "" for line in lines)
