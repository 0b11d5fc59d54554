"""Results of the convolution lab for one network and batch, with algorithms in the four kinds that kim2017 compares.

The paper compares all algorithms that compute in fp32, including Winograd on 5x5 filters, whose error is a thousand
times that of the others. A lab in fp32 has the same set. In another lab only algorithms with a small error count as
fp32, since a product in TF32 is not another algorithm. Results of algorithms with a small error are given in addition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.algorithms.problem import PASSES, Pass, Problem
from deepstone.graph.graph import Graph
from deepstone.measure.statistics import sum_of_bounds
from deepstone.models.zoo import ZOO
from deepstone.papers.place import Place, place_of_finding
from deepstone.results.convolutions import ConvolutionLab, Tried
from deepstone.results.findings import Finding
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AXES

FP32: Final = "fp32"  # the precision of the papers
_LAYOUT: Final = "nchw"
_PHASE: Final = "train"
FAMILIES = GEMM, DIRECT, FFT, WINOGRAD = "GEMM", "direct", "FFT", "Winograd"
_DIRECT_NAMES: Final = ("oneDNN", "DIRECT")  # torch requests direct convolution from oneDNN
SMALL_ERROR: Final = 1e-4  # plain fp32 stays below it, TF32 and Winograd on 5x5 do not
Case: TypeAlias = tuple[str, Pass]  # a layer and one of its passes


class Timing(Struct, frozen=True, kw_only=True):
    """One algorithm on one pass of one convolution. `error` None: not known."""

    layer: str
    direction: Pass
    algorithm: str
    formula: str
    picked: bool
    time_s: Quantity
    workspace_bytes: int | None
    error: float | None


@dataclass(frozen=True, kw_only=True)
class Lab:
    id: str
    model: str
    batch: int
    precision: str
    layout: str  # as reported; "" if it is not known
    phase: str
    started_at: str
    place: Place
    layers: tuple[str, ...]
    timings: tuple[Timing, ...]
    refused: Mapping[str, str]  # algorithm to the reason, if it was never timed
    references: Mapping[str, int]  # formula to the largest workspace of the reference implementation, in bytes
    doubts: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"{self.model}, batch {self.batch}, convolution lab in {self.precision}, one process"

    @cached_property
    def graph(self) -> Graph | None:
        """Return the graph from the zoo; None for an unknown network."""
        return ZOO[self.model].make() if self.model in ZOO else None

    def needed(self, layer: str, direction: Pass) -> bool:
        """Whether a training step runs this pass: it needs no gradient of the image."""
        return direction != "data" or self.graph is None or layer in self.graph.after_parameters

    def problem(self, layer: str) -> Problem | None:
        return None if self.graph is None else Problem.of_layer(self.graph, self.graph.layer(layer), self.batch)

    def of(self, layer: str, direction: Pass) -> list[Timing]:
        return [timing for timing in self.timings if (timing.layer, timing.direction) == (layer, direction)]

    def cases(self) -> Iterator[tuple[str, Pass]]:
        """Yield every pass of every convolution that a training step needs, timed or not."""
        for layer in self.layers:
            for direction in PASSES:
                if self.needed(layer, direction):
                    yield layer, direction


def comparable(labs: Iterable[Lab], model: str) -> list[Lab]:
    """Return the comparable labs of each place, the newest of each batch, small batches first. `labs`: newest first.

    Other precisions and layouts run other algorithms, so one verdict or figure uses one of each: that of the papers
    (fp32, NCHW) if available, else the first in the list of the axis.
    """
    places: dict[object, dict[tuple[str, str, str], dict[int, Lab]]] = {}
    for lab in labs:
        if lab.model == model and lab.timings:
            ways = places.setdefault(lab.place.key, {})
            ways.setdefault((lab.precision, lab.layout, lab.phase), {}).setdefault(lab.batch, lab)
    chosen = [lab for ways in places.values() for lab in ways[min(ways, key=_preference)].values()]
    return sorted(chosen, key=lambda lab: lab.batch)


def _preference(way: tuple[str, str, str]) -> tuple[int, bool, bool, tuple[str, str, str]]:
    precision, layout, phase = way
    known = AXES["precision"].values
    rank = known.index(precision) if precision in known else len(known)
    return rank, layout != _LAYOUT, phase != _PHASE, way


def labs_of(finding: Finding, id: str) -> Iterator[Lab]:
    """Yield one lab for each batch of a finding."""
    for part in finding.leaves():
        found, environment = part.content, part.environment or finding.environment
        if isinstance(found, ConvolutionLab):
            place = place_of_finding(environment, "cpu" if isinstance(found.device, Absent) else found.device)
            if place is not None:
                yield _lab(found, id, part.model or finding.model or "", part.started_at or "", place)


def _lab(found: ConvolutionLab, id: str, model: str, started_at: str, place: Place) -> Lab:
    results = [(layer.name, result) for layer in found.layers for result in layer.results]
    timed = [_timing(name, result, result.time_s) for name, result in results if isinstance(result.time_s, Quantity)]
    algorithms = {timing.algorithm for timing in timed}
    return Lab(
        id=id,
        model=model,
        batch=found.batch,
        precision="" if isinstance(found.precision, Absent) else found.precision,
        layout=_LAYOUT if isinstance(found.layout, Absent) else found.layout or _LAYOUT,
        phase=found.phase or _PHASE,
        started_at=started_at,
        place=place,
        layers=tuple(layer.name for layer in found.layers),
        timings=tuple(timed),
        refused={
            result.algorithm: result.time_s.reason
            for _, result in results
            if result.kind == "timed" and result.algorithm not in algorithms and isinstance(result.time_s, Absent)
        },
        references=_references([result for _, result in results]),
        doubts=tuple(doubt.code for doubt in found.doubts),
    )


def _timing(layer: str, result: Tried, time_s: Quantity) -> Timing:
    workspace, error = result.workspace_bytes, result.relative_error
    return Timing(
        layer=layer,
        direction=result.direction,
        algorithm=result.algorithm,
        formula=result.formula,
        picked=result.picked,
        time_s=time_s,
        workspace_bytes=None if isinstance(workspace, Absent) else workspace,
        error=None if isinstance(error, Absent) else error,
    )


def _references(results: Iterable[Tried]) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        if result.kind == "reference" and not isinstance(result.workspace_bytes, Absent):
            found[result.formula] = max(result.workspace_bytes, found.get(result.formula, 0))
    return found


class Uniform(Struct, frozen=True, kw_only=True):
    """All given passes run by one family; if it cannot run one, by the fastest GEMM, as in the paper's frameworks."""

    family: str
    time_s: Quantity
    own: int  # passes that the family ran itself


def family_of(timing: Timing) -> str:
    if timing.algorithm in _DIRECT_NAMES:
        return DIRECT
    if timing.formula.startswith("fft"):
        return FFT
    return WINOGRAD if timing.formula.startswith("winograd") else GEMM


def error_of_paper(lab: Lab) -> float:
    """Return the largest error of an algorithm in the paper's own set in this lab."""
    return math.inf if lab.precision == FP32 else SMALL_ERROR


def candidates(lab: Lab, case: Case, largest_error: float | None = None) -> list[Timing]:
    """Return the timings of a pass: those of the paper's own set, or those with a small enough error."""
    limit = error_of_paper(lab) if largest_error is None else largest_error
    return [timing for timing in lab.of(*case) if timing.error is None or timing.error <= limit]


def inexact(lab: Lab, cases: Iterable[Case]) -> list[Timing]:
    """Return the timings of the paper's own set whose error is not small."""
    return [timing for case in cases for timing in candidates(lab, case) if (timing.error or 0) > SMALL_ERROR]


def fastest(timings: Sequence[Timing], family: str | None = None) -> Timing | None:
    own = [timing for timing in timings if family in (None, family_of(timing))]
    return min(own, key=lambda timing: timing.time_s.median, default=None)


def timed_cases(lab: Lab) -> list[Case]:
    """Return the passes of a training step that have a timing."""
    return [case for case in lab.cases() if candidates(lab, case)]


def missing_cases(lab: Lab) -> list[Case]:
    timed = timed_cases(lab)
    return [case for case in lab.cases() if case not in timed]


def uniform(lab: Lab, family: str, cases: Iterable[Case], largest_error: float | None = None) -> Uniform | None:
    """Return None if a pass has neither the family nor a GEMM, or if the family runs no pass."""
    times: list[Quantity] = []
    own = 0
    for case in cases:
        timings = candidates(lab, case, largest_error)
        chosen = fastest(timings, family)
        own += chosen is not None
        chosen = chosen or fastest(timings, GEMM)
        if chosen is None:
            return None
        times.append(chosen.time_s)
    return Uniform(family=family, time_s=sum_of_bounds(times), own=own) if own else None


def best_mix(lab: Lab, cases: Iterable[Case], largest_error: float | None = None) -> Quantity:
    """Return the time if the fastest algorithm runs each pass."""
    chosen = [fastest(candidates(lab, case, largest_error)) for case in cases]
    return sum_of_bounds([timing.time_s for timing in chosen if timing is not None])


def inexact_in_words(timings: Sequence[Timing]) -> str:
    """Format as "Winograd on conv2"."""
    found = dict.fromkeys((family_of(timing), timing.layer) for timing in timings)
    families = dict.fromkeys(family for family, _ in found)
    return " and ".join(
        f"{family} on {', '.join(layer for kind, layer in found if kind == family)}" for family in families
    )


def passes_in_words(cases: Sequence[Case]) -> str:
    """Format as "conv2 (forward, data, weight), conv3 (forward)"."""
    layers: dict[str, list[str]] = {}
    for layer, direction in cases:
        layers.setdefault(layer, []).append(direction)
    return ", ".join(f"{layer} ({', '.join(directions)})" for layer, directions in layers.items())
