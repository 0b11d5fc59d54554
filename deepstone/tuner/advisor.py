"""Answers `deepstone advise`: the facts of this machine and model, the user's own records, then the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from deepstone.environments.find import find_environment
from deepstone.errors import MissingError, UsageError
from deepstone.exchange.load import Glance
from deepstone.graph.graph import Graph
from deepstone.graph.space_to_depth import why_not
from deepstone.hardware.machine import describe_machine, machine_sha
from deepstone.results.advice import Advice, Advised, Device, Facts, Rule
from deepstone.results.environment import Cpu, Machine
from deepstone.results.parts import Value
from deepstone.results.record import Record, WorkloadPhase
from deepstone.results.searched import NO_SEARCHES
from deepstone.setups.axes import AUTO, AXES, CURRENT, TORCH
from deepstone.setups.request import Choices as Given
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule
from deepstone.store.layout import Damage
from deepstone.store.rows import Filters
from deepstone.store.store import Store
from deepstone.tuner.advice import Asked, advise, choices, shipped
from deepstone.tuner.evidence import WORKLOAD, rules_from, tables
from deepstone.tuner.facts import facts_of, units_of_cpu, units_of_gpu

_MOST_OF_MODEL, _MOST_OF_OTHERS = 200, 100  # own records that are read; more would take longer than a second
NO_GPU: Final = "NVML lists no GPU here, so the advice is that for GPUs in general"
_PHASES: Final[tuple[WorkloadPhase, ...]] = get_args(WorkloadPhase)


def advised(glance: Glance, given: Given, store: Store | None) -> Advised:
    """Raises UsageError for a list of values, and for what no framework runs."""
    model, graph = glance.name, glance.graph
    machine = describe_machine()
    request = _single(given, machine)
    device = _device(str(request["device"]), machine)
    facts = _facts(graph, request, machine, device)
    sha = machine_sha(machine)
    kept, notes = _kept(given), _notes(device, machine, graph)
    damaged: list[Damage] = []
    records = [] if store is None else _own_records(store, model, facts, sha, damaged)
    searched = NO_SEARCHES if store is None else store.searched()
    own = rules_from(tables(records, searched), asked=model)
    asked = _asked(facts, model, sha, kept, own, notes, opaque=graph is None or bool(graph.opaque))
    mine, shipped_ = ([rule for rule in rules if _fits(rule, glance)] for rules in (own, shipped().rules))
    found = advise(asked, mine, shipped_)
    notes += [f"{len(damaged)} damaged record(s) of the store were left out"] if damaged else []
    notes += _left_out(records, searched.refused)
    notes += _of_own(records, own)
    notes += _missing(found)
    return Advised(model=model, facts=facts, asked=kept, advice=found, notes=notes)


def _fits(rule: Rule, glance: Glance) -> bool:
    """Whether the network has what a setup is about."""
    if not glance.may_convolve and "layout" in {*rule.setup, *rule.over}:
        return False
    return rule.setup.get("space_to_depth") != "on" or (glance.graph is not None and not why_not(glance.graph))


def _single(given: Given, machine: Machine) -> Mapping[str, Value]:
    several = [axis for axis, values in given.items() if len(values) > 1]
    if several:
        raise UsageError(f"{several[0]}: advise takes one value of each axis")
    request = complete({axis: values[0] for axis, values in given.items()})
    framework = str(request["framework"]).partition("@")[0]
    if framework not in (AUTO, *CURRENT):
        raise UsageError(f"framework={framework}: advise knows {', '.join(CURRENT)}; use one of them, or leave it out")
    device, is_auto = str(request["device"]), request["device"] == AUTO
    on_cpu = is_auto and _device(device, machine) == "cpu"
    reason = broken_rule({**request, "device": "cpu"} if on_cpu else request)
    if reason:
        remedy = "; this machine has no GPU, and device=gpu asks about one" if on_cpu and "GPU" in reason else ""
        raise UsageError(f"nothing can run that: {reason}{remedy}")
    return request


def _device(asked: str, machine: Machine) -> Device:
    if asked == AUTO:
        return "gpu" if isinstance(machine.gpus, list) and machine.gpus else "cpu"
    return "cpu" if asked == "cpu" else "gpu"


def _facts(graph: Graph | None, request: Mapping[str, Value], machine: Machine, device: Device) -> Facts:
    cpu = machine.cpu if isinstance(machine.cpu, Cpu) else Cpu()
    gpus = machine.gpus if isinstance(machine.gpus, list) else []
    return facts_of(
        graph,
        device=device,
        phase=next(phase for phase in _PHASES if phase == request["phase"]),
        batch=int(request["batch"]),
        cores=cpu.usable_cores if isinstance(cpu.usable_cores, int) else None,
        matrix_units=units_of_cpu(cpu) if device == "cpu" else units_of_gpu(gpus),
    )


def _kept(given: Given) -> dict[str, Value]:
    """The settings that the user gave. A version says which framework, and rules know its name."""
    kept = {axis: values[0] for axis, values in given.items() if axis not in WORKLOAD and values[0] != AUTO}
    if "framework" in kept:
        kept["framework"] = str(kept["framework"]).partition("@")[0]
    return {axis: value for axis, value in kept.items() if axis == "framework" or value != AXES[axis].default}


def _asked(
    facts: Facts,
    model: str,
    sha: str,
    kept: Mapping[str, Value],
    own: Sequence[Rule],
    notes: list[str],
    *,
    opaque: bool,
) -> Asked:
    """What no record varied is left out of the question, with a note: nothing is known about it."""
    rules = [*own, *shipped().rules]
    known = {axis for rule in rules for axis in (*rule.over, *rule.setup)}
    for axis in [axis for axis in kept if axis not in known and axis != "framework"]:
        notes.append(f"no record varies {axis}, so the advice does not depend on {axis}={kept[axis]}")
    framework = kept.get("framework")
    frameworks = (TORCH,) if opaque else CURRENT if framework is None else (str(framework),)
    return Asked(
        facts=facts,
        model=model,
        machine_sha=sha,
        kept={axis: value for axis, value in kept.items() if axis in known},
        frameworks=frameworks,
        chosen=choices(),
    )


def _own_records(store: Store, model: str, facts: Facts, sha: str, damaged: list[Damage]) -> list[Record]:
    """The newest runs of this phase on this machine, those of this model first."""
    rows = list(reversed(store.list(Filters(phase=facts.phase, outcome="ok")).rows))
    chosen = [row for row in rows if row.model == model][:_MOST_OF_MODEL]
    chosen += [row for row in rows if row.model != model][:_MOST_OF_OTHERS]
    return [record for record in store.records(chosen, damaged=damaged) if record.identity.machine_sha == sha]


def _of_own(records: Sequence[Record], own: Sequence[Rule]) -> list[str]:
    """Why nothing here is from the user's own runs; a store that does not exist is an empty one."""
    if not records:
        return ["there are no runs of your own of this machine in the store"]
    if own:
        return []
    return [
        "of your own runs of this machine, no two setups of one model were measured well enough to tell which is faster"
    ]


def _left_out(records: Sequence[Record], refused: Mapping[str, str]) -> list[str]:
    count = sum(record.id in refused for record in records)
    if not count:
        return []
    runs = "1 run" if count == 1 else f"{count} runs"
    return [f"nothing was learnt from {runs} of setups that `deepstone tune` refused as other training"]


def _notes(device: Device, machine: Machine, graph: Graph | None) -> list[str]:
    notes: list[str] = []
    gpus = machine.gpus if isinstance(machine.gpus, list) else []
    if device == "gpu" and not gpus:
        notes.append(NO_GPU)
    if graph is None or graph.opaque:
        notes.append("the model is a module of your own, which only torch sees into: its layers are not known")
    return notes


def _missing(found: Sequence[Advice]) -> list[str]:
    """The frameworks of the advice that are not installed, with the remedy."""
    notes: list[str] = []
    for framework in dict.fromkeys(str(each.setup.get("framework", TORCH)) for each in found):
        try:
            find_environment(framework)
        except MissingError as error:
            notes.append(str(error))
    return notes
