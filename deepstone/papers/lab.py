"""What the convolution lab found for one network and batch, as rules and figures read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from deepstone.algorithms.problem import PASSES, Pass, Problem
from deepstone.graph.graph import Graph
from deepstone.measure.statistics import Quantity
from deepstone.models.zoo import ZOO
from deepstone.papers.place import Place, place_of_finding


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
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
    started_at: str
    place: Place
    layers: tuple[str, ...]
    timings: tuple[Timing, ...]
    refused: Mapping[str, str]  # algorithm to the reason, where it was timed nowhere
    references: Mapping[str, int]  # formula to the largest workspace of the reference implementation, in bytes
    doubts: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"{self.model}, batch {self.batch}, convolution lab in {self.precision}, one process"

    @cached_property
    def graph(self) -> Graph | None:
        """Of the zoo; None for a network that is not there."""
        return ZOO[self.model].make() if self.model in ZOO else None

    def needed(self, layer: str, direction: Pass) -> bool:
        """Whether a training step does this pass: it needs no gradient of the image."""
        return direction != "data" or self.graph is None or layer in self.graph.after_parameters

    def problem(self, layer: str) -> Problem | None:
        return None if self.graph is None else Problem.of_layer(self.graph, self.graph.layer(layer), self.batch)

    def of(self, layer: str, direction: Pass) -> list[Timing]:
        return [timing for timing in self.timings if (timing.layer, timing.direction) == (layer, direction)]

    def cases(self) -> Iterator[tuple[str, Pass]]:
        """Every pass of every convolution that a training step needs, timed or not."""
        for layer in self.layers:
            for direction in PASSES:
                if self.needed(layer, direction):
                    yield layer, direction


def labs_of(finding: Mapping[str, Any], id: str) -> Iterator[Lab]:
    """One for each batch of a finding."""
    batches = finding.get("batches")
    reports = cast(dict[str, Any], batches).values() if isinstance(batches, dict) else [finding]
    for report in reports:
        place = place_of_finding({**finding, **report})
        if place is not None and isinstance(report.get("layers"), list):
            yield _lab(report, id, place)


def _lab(report: Mapping[str, Any], id: str, place: Place) -> Lab:
    results = [(layer["name"], result) for layer in report["layers"] for result in layer["results"]]
    timed = [(name, result) for name, result in results if "median" in result["time_s"]]
    seen = {result["algorithm"] for _, result in timed}
    return Lab(
        id=id,
        model=str(report["model"]),
        batch=int(report["batch"]),
        precision=str(report["precision"]),
        started_at=str(report.get("started_at", "")),
        place=place,
        layers=tuple(layer["name"] for layer in report["layers"]),
        timings=tuple(_timing(name, result) for name, result in timed),
        refused={
            result["algorithm"]: str(result["time_s"]["absent"])
            for _, result in results
            if result["kind"] == "timed" and result["algorithm"] not in seen
        },
        references=_references(results),
        doubts=tuple(doubt["code"] for doubt in report.get("doubts", [])),
    )


def _timing(layer: str, result: Mapping[str, Any]) -> Timing:
    workspace, error = result["workspace_bytes"], result["relative_error"]
    return Timing(
        layer=layer,
        direction=result["pass"],
        algorithm=result["algorithm"],
        formula=result["formula"],
        picked=bool(result["picked"]),
        time_s=Quantity(**result["time_s"]),
        workspace_bytes=workspace if isinstance(workspace, int) else None,
        error=float(error) if isinstance(error, int | float) else None,
    )


def _references(results: list[tuple[str, Mapping[str, Any]]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, result in results:
        workspace = result["workspace_bytes"]
        if result["kind"] == "reference" and isinstance(workspace, int):
            found[result["formula"]] = max(workspace, found.get(result["formula"], 0))
    return found
