"""Isolated layer times: each layer on its real shapes. Works in every framework; never presented as a step.

Equal layers (the same operation on the same shapes) are timed once. The programs of a layer run in turns, so that times
that are subtracted were measured side by side.
"""

from __future__ import annotations

import math

from deepstone.absent import Absent
from deepstone.graph.graph import Graph, Layer
from deepstone.measure.statistics import Quantity, difference_of_medians, median_of
from deepstone.results.layers import IsolatedLayer
from deepstone.runner.conversation import Conversation
from deepstone.runner.measurement import SHORTEST_SAMPLE_CPU_S, SHORTEST_SAMPLE_GPU_S, OnProgress

ROUNDS = 5
FEWEST_ROUNDS = 3  # even if one round exceeds the layer's part of the budget
MOST_SAMPLES = 20  # of one program in one round
_REPLICATES = 200
_WITHOUT_FORWARD = "forward+"


def time_isolated(
    conversation: Conversation, graph: Graph, *, budget_s: float, on_gpu: bool, on_progress: OnProgress
) -> dict[str, IsolatedLayer]:
    """Time every layer of the graph."""
    alike: dict[object, list[Layer]] = {}
    for layer in graph.layers:
        alike.setdefault(_timing_key(graph, layer), []).append(layer)
    found: dict[str, IsolatedLayer] = {}
    shortest_s = SHORTEST_SAMPLE_GPU_S if on_gpu else SHORTEST_SAMPLE_CPU_S
    for number, layers in enumerate(alike.values()):
        on_progress(f"{layers[0].name}, isolated", number / len(alike))
        times = _time_layer(conversation, layers[0].name, budget_s / len(alike), shortest_s)
        found |= {layer.name: times for layer in layers}
    return found


def _timing_key(graph: Graph, layer: Layer) -> object:
    """Layers with equal keys take equally long. The key includes which gradients the layer computes."""
    from_image = graph.input.name in layer.inputs
    same_input_twice = len(set(layer.inputs))
    return (
        layer.op,
        tuple(graph.input_shapes(layer)),
        layer.name in graph.after_parameters,
        from_image,
        same_input_twice,
    )


def _time_layer(conversation: Conversation, name: str, budget_s: float, shortest_s: float) -> IsolatedLayer:
    isolated = conversation.isolated(name)
    programs = isolated.names
    nothing = Absent("the layer does nothing by itself")
    if not programs:
        return IsolatedLayer(
            forward_s=nothing, backward_s=nothing, data_s=nothing, weight_s=nothing, by_difference=False
        )
    sizes = {program: _sizes(conversation, program, budget_s / len(programs), shortest_s) for program in programs}
    rounds: dict[str, list[list[float]]] = {program: [] for program in programs}
    one_round_s = sum(step_s * steps * samples for step_s, steps, samples in sizes.values())
    for turn in range(ROUNDS if one_round_s * ROUNDS <= 2 * budget_s else FEWEST_ROUNDS):
        for program in programs if turn % 2 == 0 else reversed(programs):
            _, steps_per_sample, samples = sizes[program]
            block = conversation.isolated_block(program, samples=samples, steps_per_sample=steps_per_sample)
            rounds[program].append(block.step_s)
    no_such = Absent("the layer has no such gradient")
    parts = {part: _part(rounds, part) for part in ("backward", "data", "weight")}
    return IsolatedLayer(
        forward_s=median_of([rounds["forward"]], replicates=_REPLICATES),
        backward_s=parts["backward"] or no_such,
        data_s=parts["data"] or no_such,
        weight_s=parts["weight"] or no_such,
        by_difference=any(program.startswith(_WITHOUT_FORWARD) for program in programs),
        beside=isolated.beside or None,
    )


def _part(rounds: dict[str, list[list[float]]], part: str) -> Quantity | None:
    if part in rounds:
        return median_of([rounds[part]], replicates=_REPLICATES)
    if _WITHOUT_FORWARD + part in rounds:
        return difference_of_medians(rounds[_WITHOUT_FORWARD + part], rounds["forward"])
    return None


def _sizes(conversation: Conversation, program: str, budget_s: float, shortest_s: float) -> tuple[float, int, int]:
    """Run a first block; return the approximate step time, the steps in a sample and the samples in a round."""
    step_s = max(min(conversation.isolated_block(program, samples=1, lead=1).step_s), 1e-9)
    steps_per_sample = max(1, math.ceil(shortest_s / step_s))
    samples = int(budget_s / ROUNDS / (steps_per_sample * step_s))
    return step_s, steps_per_sample, max(1, min(MOST_SAMPLES, samples))
