"""The closed set of figure builders, by the names that papers call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.algorithms import (
    algorithms_by_batch,
    algorithms_by_layer,
    memory_by_batch,
    operations_by_layer,
)
from deepstone.papers.figures.chart import Chart
from deepstone.papers.figures.counts import layer_counts
from deepstone.papers.figures.layer_times import layer_times
from deepstone.papers.figures.machines import phases_by_machine, setups_by_machine
from deepstone.papers.figures.operations import operations_by_framework

BUILDERS: Mapping[str, Callable[[Mapping[str, Any], Evidence], Chart]] = MappingProxyType(
    {
        "layer times": layer_times,
        "algorithms by batch": algorithms_by_batch,
        "algorithms by layer": algorithms_by_layer,
        "memory by batch": memory_by_batch,
        "operations by layer": operations_by_layer,
        "layer counts": layer_counts,
        "operation by framework": operations_by_framework,
        "phases by machine": phases_by_machine,
        "setups by machine": setups_by_machine,
    }
)
