"""The layers of a user's own module: its parts as rows, and together by class, by block and by what contains them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.results.layers import LayerGroup, LayerRow, Passes, PassRates
from deepstone.results.quantity import Quantity
from deepstone.runner.replies import InPlaceTimes, ModulePart

_UNKNOWN: Final = Absent("not known of a module of your own")
_ITSELF: Final = "the module itself"
_PLAIN: Final = ("ModuleList", "ModuleDict", "Sequential")  # they only hold others, so their time says nothing new
_PASSES: Final = ("forward", "backward")

Times = Mapping[tuple[str, str], Quantity]


@dataclass(frozen=True, kw_only=True)
class ModuleLayers:
    """`parts` and `containers` as a worker tells them; without them, as of a compiled module, rows have times only."""

    parts: Mapping[str, ModulePart]
    containers: Mapping[str, str]

    @staticmethod
    def of(rounds: Sequence[InPlaceTimes]) -> ModuleLayers:
        parts = {part.name: part for times in rounds for part in times.parts}
        return ModuleLayers(parts=parts, containers=dict(entry for times in rounds for entry in times.containers))

    def rows(self, times: Times, ops: Mapping[str, str]) -> list[LayerRow]:
        """In the order in which they ran. `ops` tells those of the graph around the module."""
        return [self._row(name, times, ops) for name in dict.fromkeys(name for name, _ in times)]

    def _row(self, name: str, times: Times, ops: Mapping[str, str]) -> LayerRow:
        part = self.parts.get(name)
        forward, backward = (times.get((name, direction)) for direction in _PASSES)
        return LayerRow(
            name=name,
            op=part.op if part is not None else ops.get(name, "module"),
            shape=_UNKNOWN,
            parameters=_UNKNOWN if part is None else part.parameters,
            flops=_UNKNOWN if part is None else _flops([part]),
            bytes=_UNKNOWN,
            forward_s=Absent("the layer did nothing forward") if forward is None else forward,
            backward_s=Absent("the layer did nothing backward") if backward is None else backward,
            flops_per_s=_UNKNOWN
            if part is None
            else PassRates(
                forward=_rate(part.flops["forward"], forward), backward=_rate(part.flops["backward"], backward)
            ),
            isolated=_UNKNOWN,
            bound=_UNKNOWN,
            primitives=[],
            share=0.0,
        )

    def by_class(self, rows: Sequence[LayerRow]) -> list[LayerGroup]:
        """The costliest first."""
        return sorted(self._groups(rows, lambda row: [row.op]), key=lambda group: -group.share)

    def by_block(self, rows: Sequence[LayerRow]) -> list[LayerGroup]:
        """In the order in which they ran; nothing where this would only repeat the rows."""
        groups = list(self._groups(rows, lambda row: [self._block(row)]))
        return groups if 1 < len(groups) < len(rows) else []

    def by_container(self, rows: Sequence[LayerRow]) -> list[LayerGroup]:
        """By the class of each submodule around a row; the costliest first."""
        found = list(self._groups(rows, self._classes_around))
        counts: dict[str, int] = {}
        for path, kind in self.containers.items():
            if path and kind not in _PLAIN:
                counts[kind] = counts.get(kind, 0) + 1
        groups = [replace(group, layers=counts[group.name]) for group in found]
        return sorted(groups, key=lambda group: -group.share)

    def _groups(self, rows: Sequence[LayerRow], names: Callable[[LayerRow], Sequence[str]]) -> Iterator[LayerGroup]:
        members: dict[str, list[LayerRow]] = {}
        for row in rows:
            for name in names(row):
                members.setdefault(name, []).append(row)
        for name, each in members.items():
            parts = [self.parts[row.name] for row in each if row.name in self.parts]
            yield LayerGroup.of(name, each, _flops(parts))

    def _classes_around(self, row: LayerRow) -> list[str]:
        part = self.parts.get(row.name)
        around = [] if part is None else [path for path in _prefixes(part.path) if path in self.containers]
        return [kind for kind in dict.fromkeys(self.containers[path] for path in around) if kind not in _PLAIN]

    def _block(self, row: LayerRow) -> str:
        """The outermost numbered container around it, as in `blocks.0`; else the outermost one that has none inside."""
        part = self.parts.get(row.name)
        if part is None:
            return row.name
        for path in _prefixes(part.path):
            if path in self._numbered or path not in self._around_numbered:
                kind = self.containers.get(path, "")
                return f"{path} ({kind})" if kind and kind not in _PLAIN else path
        return part.path or (row.name if part.name == part.op and "(" not in part.op else _ITSELF)

    @cached_property
    def _numbered(self) -> frozenset[str]:
        """`blocks.0`, not those inside of it. Where no name is a number, `denselayer1` is as good."""
        names = {path: path.rpartition(".")[2] for path in self.containers}
        numbers = frozenset(path for path, name in names.items() if name.isdigit())
        return numbers or frozenset(path for path, name in names.items() if name[-1:].isdigit())

    @cached_property
    def _around_numbered(self) -> frozenset[str]:
        """The containers that have a numbered one inside."""
        return frozenset(outer for path in self._numbered for outer in _prefixes(path) if outer != path)


def _prefixes(path: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    names = path.split(".") if path else []
    return [".".join(names[: end + 1]) for end in range(len(names))]


def _flops(parts: Sequence[ModulePart]) -> Passes | Absent:
    """Of all of them together; absent where one is."""
    sums = {"forward": 0, "backward": 0}
    for part in parts:
        for direction, flops in part.flops.items():
            if isinstance(flops, Absent):
                return flops
            sums[direction] += flops
    return Passes(**sums)


def _rate(flops: int | Absent, time: Quantity | None) -> float | Absent:
    if isinstance(flops, Absent):
        return flops
    if not flops:
        return Absent("no multiply-adds that torch's counter knows")
    return (
        flops / time.median if time is not None and time.median > 0 else Absent("took no time that could be measured")
    )
