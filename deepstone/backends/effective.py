"""Requested and effective values: refuses values that a backend does not honour, and reports effective ones.

In the syntax of Python 3.6, like all that runs in old Pythons.
"""

import ctypes
import glob
import os
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

import numpy as np

from deepstone.backends.base import Unsupported, as_observed, as_set

PRECISION_OF = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}  # names of number types


def refuse_other_values(request: Dict[str, Any], honoured: Mapping[str, Sequence[Any]], framework: str) -> None:
    """Raise Unsupported with every axis of the request whose value this backend does not honour.

    This also replaces setups/rules.py, whose rules about devices and engines are less strict than these tables.
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
    """Return the answer of `Backend.observe`: the request, overridden by set values, overridden by observed ones."""
    answer = {axis: as_set(value) for axis, value in request.items()}
    answer.update({axis: as_set(value) for axis, value in set_to.items()})
    answer["affinity"] = as_observed(affinity_of_process())
    answer.update({axis: as_observed(value) for axis, value in (observed or {}).items()})
    return answer


def precision_seen(weights: AbstractSet[str], activations: AbstractSet[str]) -> str:
    """Return the value of the axis, or a description, from the precisions of weights and of the results of products."""
    weights = weights or activations  # a network may have none
    if weights == activations and len(weights) == 1:
        return listed(weights)
    if weights <= {"fp32"} and activations in ({"bf16"}, {"fp16"}):
        return listed(activations) + "-mixed"
    return "%s weights with %s activations" % (listed(weights), listed(activations))


def precisions(types: Iterable[str]) -> Set[str]:
    """Turn names of number types into values of the axis, if it has them."""
    return {PRECISION_OF.get(name, name) for name in types}


def listed(values: Iterable[str]) -> str:
    """Format one value, or several that contradict each other."""
    return " and ".join(sorted(set(values)))


def affinity_of_process() -> str:
    """Return the CPUs that this process may use, as in the axis `affinity`: 0-2+5.

    All threads count: a library may have moved some of them.
    """
    cpus: Set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            cpus.update(os.sched_getaffinity(int(thread)))
        except OSError:  # it has ended meanwhile
            continue
    return format_cpus(sorted(cpus))


def format_cpus(cpus: Sequence[int]) -> str:
    """Format as setups/axes.py does, which old Pythons cannot import."""
    runs: List[List[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return "+".join(str(run[0]) if len(run) == 1 else "%d-%d" % (run[0], run[-1]) for run in runs)


def openblas_threads() -> Optional[int]:
    """Return the threads of the OpenBLAS in NumPy's wheel, which computes matrix products; None for another library."""
    folder = os.path.dirname(np.__file__)
    found: List[str] = glob.glob(os.path.join(folder, ".libs", "libopenblas*"))
    found += glob.glob(os.path.join(os.path.dirname(folder), "numpy.libs", "libopenblas*"))
    for path in found:
        library = ctypes.CDLL(path)
        for name in ("openblas_get_num_threads64_", "openblas_get_num_threads"):
            count = getattr(library, name, None)
            if count is not None:
                return int(count())
    return None
