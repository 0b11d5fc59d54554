"""The closed set of rules, by the names that papers call them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepstone.papers.rules import (
    algorithm_choice,
    algorithm_over_batches,
    algorithm_ranks,
    copy_share,
    device_ratio,
    heuristic,
    image_gradient,
    layer_count,
    layer_ranks,
    memory_by_algorithm,
    memory_kinds,
    not_testable,
    op_across_frameworks,
    operation_counts,
    parameter_share,
    speed_ratio,
    time_share,
)
from deepstone.papers.rules.rule import Rule

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "speed ratio": speed_ratio.RULE,
        "device ratio": device_ratio.RULE,
        "algorithm choice": algorithm_choice.RULE,
        "algorithm ranks": algorithm_ranks.RULE,
        "algorithm over batches": algorithm_over_batches.RULE,
        "heuristic against exhaustive": heuristic.RULE,
        "gradient of the image": image_gradient.RULE,
        "memory by algorithm": memory_by_algorithm.RULE,
        "operation counts": operation_counts.RULE,
        "parameter share": parameter_share.RULE,
        "layer count": layer_count.RULE,
        "operation across frameworks": op_across_frameworks.RULE,
        "share of time": time_share.RULE,
        "layer ranks": layer_ranks.RULE,
        "share of bandwidth": copy_share.RULE,
        "kinds of memory": memory_kinds.RULE,
        "not testable": not_testable.RULE,
    }
)
