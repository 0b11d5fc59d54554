"""Times of layers and of small operations, one series for each framework on each machine."""

from __future__ import annotations

from typing import Literal

from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import ChartDraft, SomeNetworks, named, time_scale
from deepstone.papers.layer_table import LayerTable
from deepstone.results.chart import ChartAxis

_SUFFIX = {"forward": "f", "backward": "b"}


class LayerTimes(SomeNetworks, frozen=True, kw_only=True):
    """Layers of the first model that was measured. If batches differ, the series names include them."""

    layers: tuple[str, ...] = ()  # empty: those of `ops`
    ops: tuple[str, ...] = ()
    parts: list[Literal["forward", "backward"]]

    def chart(self, evidence: Evidence) -> ChartDraft:
        tables = self._tables(evidence)
        places = len({table.place.key for table in tables})
        several = places > 1
        batches = sorted({table.batch for table in tables})
        axis = ChartAxis(label="time", scale=time_scale(places), unit="s")
        chart = ChartDraft(form="bars", x=ChartAxis(label="layer", scale="category"), y=axis)
        for table in tables:
            chart.subtitle = f"{table.model}, batch {' and '.join(map(str, batches))}"
            name = named(table.framework + _options(table), table.place.name, several)
            series = f"{name}, batch {table.batch}" if len(batches) > 1 else name
            for layer in self.layers or [row.name for row in table.rows if row.op in self.ops]:
                row = table.row(layer)
                for part in self.parts:
                    time = None if row is None else row.time_s(part)
                    label = f"{layer}{_SUFFIX[part]}" if len(self.parts) > 1 else layer
                    if time is None:
                        chart.gap(series, label, "the layer does nothing in that pass, or was not timed")
                    else:
                        chart.point(series, label, time, runs=[table.id])
        return chart

    def _tables(self, evidence: Evidence) -> list[LayerTable]:
        """Return the newest table of each framework, setup, batch and place."""
        for model in self.models:
            found: dict[object, LayerTable] = {}
            for table in evidence.tables:
                if table.model == model:
                    found.setdefault((table.framework, _options(table), table.batch, table.place.key), table)
            if found:
                return sorted(found.values(), key=lambda table: (table.place.kind, table.framework))
        return []


class OperationByFramework(SomeNetworks, frozen=True, kw_only=True):
    operations: dict[str, str]  # operation to layer; empty if it is part of another
    missing: str = "not timed in isolation"

    def chart(self, evidence: Evidence) -> ChartDraft:
        chart = ChartDraft(
            form="bars",
            x=ChartAxis(label="operation", scale="category"),
            y=ChartAxis(label="time", scale="log", unit="s"),
        )
        found: dict[tuple[object, str], LayerTable] = {}
        for model in self.models:
            for table in evidence.tables:
                if table.model == model:
                    found.setdefault((table.place.key, table.framework), table)
        several = len({place for place, _ in found}) > 1
        for table in found.values():
            series = f"{named(table.framework, table.place.name, several)}, {table.model}, batch {table.batch}"
            for label, layer in self.operations.items():
                row = table.row(layer) if layer else None
                if row is None or row.isolated_forward_s is None:
                    chart.gap(series, label, self.missing)
                elif row.overhead:
                    chart.gap(series, label, f"its time holds {row.overhead}")
                else:
                    chart.point(series, label, row.isolated_forward_s, runs=[table.id])
        return chart


def _options(table: LayerTable) -> str:
    """Return the settings that are not defaults, for the text after the framework's name."""
    given = [
        f"{axis}={value}"
        for axis, value in table.asked.items()
        if axis in ("layout", "algorithm", "compile", "engine", "precision") and value != "auto"
    ]
    return f" ({' '.join(given)})" if given else ""
