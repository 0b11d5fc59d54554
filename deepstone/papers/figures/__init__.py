"""The closed set of figure builders, by the names that papers call them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepstone.papers.figures.chart import FigureBuilder
from deepstone.papers.figures.convolutions import (
    AlgorithmsByBatch,
    AlgorithmsByLayer,
    LayerCounts,
    MemoryByBatch,
    OperationsByLayer,
)
from deepstone.papers.figures.layers import LayerTimes, OperationByFramework
from deepstone.papers.figures.machines import PhasesByMachine, SetupsByMachine

BUILDERS: Mapping[str, type[FigureBuilder]] = MappingProxyType(
    {
        "layer times": LayerTimes,
        "algorithms by batch": AlgorithmsByBatch,
        "algorithms by layer": AlgorithmsByLayer,
        "memory by batch": MemoryByBatch,
        "operations by layer": OperationsByLayer,
        "layer counts": LayerCounts,
        "operation by framework": OperationByFramework,
        "phases by machine": PhasesByMachine,
        "setups by machine": SetupsByMachine,
    }
)
