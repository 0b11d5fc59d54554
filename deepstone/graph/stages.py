"""Cuts a graph into the stages of a pipeline: consecutive layers of about equal cost. What a later stage reads of an
earlier one is passed on by every stage between them.

    conv1 ─ relu1 ─┬─ conv2 ┊ norm2 ─ add      cut at ┊: conv2's output and the skip, relu1's, cross it
                   └────────┊─────────┘

Losses that stand before a cut cross it too, as their sum: the last stage has the loss of the whole network.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from deepstone.graph.cost import layer_work
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, SoftmaxCrossEntropy, Tensors

# Of all cuts whose largest stage costs at most this much more than it must, the one is taken that passes on least.
_SLACK: Final = 1.05
# Without measured times: bytes to and from memory count as so many FLOPs each, as on machines of about 2020.
_FLOPS_PER_BYTE: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """`takes` and `gives`: the layers whose outputs cross its begin and its end. `takes_loss` and `gives_loss`: whether
    a sum of losses does."""

    layers: tuple[Layer, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    takes_loss: bool
    gives_loss: bool
    share: float  # of the cost of all stages


def analytic_costs(graph: Graph) -> list[float]:
    """The cost of each layer in a training step, in FLOPs, as far as the graph knows it."""
    found: list[float] = []
    for layer in graph.layers:
        work = layer_work(graph, layer, batch=1, phase="train")
        flops, moved = (work.forward.flops + work.backward.flops, work.forward.bytes + work.backward.bytes)
        found.append(flops + _FLOPS_PER_BYTE * moved)
    return found


def most_stages(graph: Graph) -> int:
    """Every stage has a layer of its own beside the input."""
    return sum(not isinstance(layer.op, Input | Tensors) for layer in graph.layers)


def stages_of(graph: Graph, count: int, costs: Sequence[float]) -> list[Stage]:
    """Return `count` stages, whose most expensive one is as cheap as it can be, or a little less than that."""
    last_use = _last_use(graph)
    ends = [*_cuts(graph, count, costs, _values_crossing(graph, last_use)), len(graph) - 1]
    whole = sum(costs) or 1.0
    stages: list[Stage] = []
    for before, end in pairwise([-1, *ends]):
        stages.append(
            Stage(
                layers=graph.layers[before + 1 : end + 1],
                takes=_crossing(graph, last_use, before),
                gives=_crossing(graph, last_use, end),
                takes_loss=_has_loss(graph.layers[: before + 1]),
                gives_loss=end < len(graph) - 1 and _has_loss(graph.layers[: end + 1]),
                share=sum(costs[before + 1 : end + 1]) / whole,
            )
        )
    return stages


def _last_use(graph: Graph) -> list[int]:
    """The position of the last layer that reads the output of each layer; its own if there is none."""
    position_of = {layer.name: position for position, layer in enumerate(graph.layers)}
    return [
        max((position_of[taker.name] for taker in graph.consumers[layer.name]), default=position)
        for position, layer in enumerate(graph.layers)
    ]


def _crossing(graph: Graph, last_use: Sequence[int], end: int) -> tuple[str, ...]:
    """The layers up to this position whose outputs are read after it."""
    return tuple(graph.layers[at].name for at in range(end + 1) if last_use[at] > end)


def _values_crossing(graph: Graph, last_use: Sequence[int]) -> list[int]:
    """How many values of a sample cross a cut after each layer."""
    changes = [0] * (len(graph) + 1)
    for at, layer in enumerate(graph.layers):
        values = math.prod(graph.shapes[layer.name])
        changes[at] += values
        changes[last_use[at]] -= values
    return list(accumulate(changes[:-1]))


def _has_loss(layers: Sequence[Layer]) -> bool:
    return any(isinstance(layer.op, SoftmaxCrossEntropy) for layer in layers)


def _cuts(graph: Graph, count: int, costs: Sequence[float], crossing: Sequence[int]) -> list[int]:
    """The positions of the last layers of all stages but the last."""
    if count == 1:
        return []
    first = next(at for at, layer in enumerate(graph.layers) if not isinstance(layer.op, Input | Tensors))
    # Of the layers before a position. An input is never a stage by itself, so its cost is that of the layer after it.
    until = [0.0] * (first + 1) + list(accumulate([sum(costs[: first + 1]), *costs[first + 1 :]]))
    limit = _SLACK * _least_most(until, count)
    # best[at]: the least that is passed on if the stages so far end with the layer at this position.
    best = {at: float(crossing[at]) for at in range(first, len(costs) - 1) if until[at + 1] <= limit}
    chosen: list[dict[int, int]] = []
    for _ in range(count - 1):
        best, before = _one_more(until, limit, best, crossing, last=len(costs) - 1)
        chosen.append(before)
    ends = [len(costs) - 1]
    for before in reversed(chosen):
        ends.append(before[ends[-1]])
    return ends[:0:-1]


def _one_more(
    until: Sequence[float], limit: float, best: dict[int, float], crossing: Sequence[int], *, last: int
) -> tuple[dict[int, float], dict[int, int]]:
    """One stage more: for every position at which it may end, the best end of the one before. The candidates lie in a
    window that moves with the position, so their least is kept in a queue."""
    found: dict[int, float] = {}
    before: dict[int, int] = {}
    window: deque[int] = deque()
    candidates = deque(sorted(best))
    for at in range(last + 1):
        while candidates and candidates[0] < at:
            candidate = candidates.popleft()
            while window and best[window[-1]] >= best[candidate]:
                window.pop()
            window.append(candidate)
        while window and until[at + 1] - until[window[0] + 1] > limit:
            window.popleft()
        if window:
            found[at] = best[window[0]] + (crossing[at] if at < last else 0.0)
            before[at] = window[0]
    return found, before


def _least_most(until: Sequence[float], count: int) -> float:
    """The least cost that the most expensive of `count` stages can have, to a per mille."""
    low, high = until[-1] / count, until[-1]
    for _ in range(40):
        if high - low <= 1e-3 * low:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if _fits(until, count, middle) else (middle, high)
    return high


def _fits(until: Sequence[float], count: int, limit: float) -> bool:
    """Whether `count` stages of at most this cost hold all layers."""
    stages, begin = 1, 0
    for at in range(len(until) - 1):
        if until[at + 1] - until[begin] > limit:
            stages, begin = stages + 1, at
            if stages > count or until[at + 1] - until[at] > limit:
                return False
    return True
