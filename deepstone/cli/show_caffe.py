"""The lines that `caffe time` prints, without the prefixes of its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deepstone.records.schema import is_absent


def caffe_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """From a report of layers with the numbers under `caffe_time`. Milliseconds with six digits, as C++ prints them."""
    numbers = report["caffe_time"]
    has_backward = not is_absent(numbers["backward_s"])
    yield "*** Benchmark begins ***"
    yield f"Testing for {numbers['iterations']} iterations."
    for number, taken_s in enumerate(numbers["iteration_s"], 1):
        yield f"Iteration: {number} forward-backward time: {_ms(taken_s)} ms."
    yield "Average time per layer: "
    for layer in numbers["layers"]:
        yield f"{layer['name']:>10}\tforward: {_ms(layer['forward_s'])} ms."
        if has_backward:
            yield f"{layer['name']:>10}\tbackward: {_ms(layer['backward_s'])} ms."
    yield f"Average Forward pass: {_ms(numbers['forward_s'])} ms."
    if has_backward:
        yield f"Average Backward pass: {_ms(numbers['backward_s'])} ms."
    yield f"Average Forward-Backward: {_ms(numbers['forward_backward_s'])} ms."
    yield f"Total Time: {_ms(numbers['total_s'])} ms."
    yield "*** Benchmark ends ***"
    yield _how(report)


def _how(report: Mapping[str, Any]) -> str:
    numbers, value = report["caffe_time"], {axis: each["value"] for axis, each in report["setup"]["effective"].items()}
    where = f"{str(value['framework']).replace('@', ' ')} on {value['device']}, batch {report['workload']['batch']}"
    if numbers["in_place"]:
        layers = f"layers in place ({report['method']}), in other steps than the iterations; passes are sums of layers"
    else:
        layers = f"each layer by itself ({numbers['why_not_in_place']}), so the sums of layers are not the iteration"
    passes = "; forward only, since phase TEST has no backward pass here" if is_absent(numbers["backward_s"]) else ""
    return f"({where}; {layers}{passes})"


def _ms(taken_s: float) -> str:
    return f"{1e3 * taken_s:g}"
