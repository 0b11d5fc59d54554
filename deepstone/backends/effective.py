"""Requested against effective: what all backends need to refuse values and to report what was in effect.

In the syntax of Python 3.6, like all that runs in old Pythons.
"""

import os
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from deepstone.backends.base import Unsupported, as_observed, as_set

PRECISION_OF = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}  # names of number types


def refuse_other_values(request: Dict[str, Any], honoured: Mapping[str, Sequence[Any]], framework: str) -> None:
    """Unsupported, with every axis of the request that has a value this backend does not honour.

    It stands for setups/rules.py too, whose rules about devices and engines are all narrower than these tables.
    """
    refused: List[str] = []
    for axis, values in honoured.items():
        if request[axis] not in values:
            refused.append("%s=%s (it takes %s)" % (axis, request[axis], " or ".join(map(str, values))))
    if refused:
        raise Unsupported("%s does not honour %s" % (framework, "; ".join(refused)))


def effective(
    request: Mapping[str, Any], set_to: Mapping[str, Any], observed: Optional[Mapping[str, Any]] = None
) -> Dict[str, Dict[str, Any]]:
    """The answer of `Backend.observe`: the request, over it what `auto` became, over that what was read back."""
    answer = {axis: as_set(value) for axis, value in request.items()}
    answer.update({axis: as_set(value) for axis, value in set_to.items()})
    answer["affinity"] = as_observed(affinity_of_process())
    answer.update({axis: as_observed(value) for axis, value in (observed or {}).items()})
    return answer


def precision_seen(weights: AbstractSet[str], activations: AbstractSet[str]) -> str:
    """The axis' name, or what is there in words, from the precisions of weights and of what products gave."""
    weights = weights or activations  # a network may have none
    if weights == activations and len(weights) == 1:
        return listed(weights)
    if weights <= {"fp32"} and activations in ({"bf16"}, {"fp16"}):
        return listed(activations) + "-mixed"
    return "%s weights with %s activations" % (listed(weights), listed(activations))


def precisions(types: Iterable[str]) -> Set[str]:
    """From names of number types: those of the axis where it has one, else the names themselves."""
    return {PRECISION_OF.get(name, name) for name in types}


def listed(values: Iterable[str]) -> str:
    """One value, or several that contradict each other."""
    return " and ".join(sorted(set(values)))


def affinity_of_process() -> str:
    """The CPUs that this process may use, written as the axis `affinity` has it: 0-2+5.

    All threads are asked: a library may have moved some of them.
    """
    cpus: Set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            cpus.update(os.sched_getaffinity(int(thread)))
        except OSError:  # it has ended meanwhile
            continue
    return format_cpus(sorted(cpus))


def format_cpus(cpus: Sequence[int]) -> str:
    """As setups/axes.py writes them, which old Pythons cannot read."""
    runs: List[List[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return "+".join(str(run[0]) if len(run) == 1 else "%d-%d" % (run[0], run[-1]) for run in runs)
