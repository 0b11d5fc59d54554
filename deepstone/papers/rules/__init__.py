"""The closed set of rules, by the names that papers call them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepstone.papers.rules.algorithm_speed import AlgorithmChoice, AlgorithmOverBatches, AlgorithmRanks
from deepstone.papers.rules.convolutions import GradientOfImage, HeuristicAgainstExhaustive, MemoryByAlgorithm
from deepstone.papers.rules.counted import LayerCount, NotTestable, OperationCounts, ParameterShare
from deepstone.papers.rules.layers import (
    LayerRanks,
    OperationAcrossFrameworks,
    ShareOfBandwidth,
    ShareOfTime,
)
from deepstone.papers.rules.rule import Rule
from deepstone.papers.rules.speed import DeviceRatio, SpeedRatio

RULES: Mapping[str, type[Rule]] = MappingProxyType(
    {
        "speed ratio": SpeedRatio,
        "device ratio": DeviceRatio,
        "algorithm choice": AlgorithmChoice,
        "algorithm ranks": AlgorithmRanks,
        "algorithm over batches": AlgorithmOverBatches,
        "heuristic against exhaustive": HeuristicAgainstExhaustive,
        "gradient of the image": GradientOfImage,
        "memory by algorithm": MemoryByAlgorithm,
        "operation counts": OperationCounts,
        "parameter share": ParameterShare,
        "layer count": LayerCount,
        "operation across frameworks": OperationAcrossFrameworks,
        "share of time": ShareOfTime,
        "layer ranks": LayerRanks,
        "share of bandwidth": ShareOfBandwidth,
        "not testable": NotTestable,
    }
)
