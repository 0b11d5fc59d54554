"""On which layer a CPU does best against a GPU: an order of layers, which needs no equal devices."""

from __future__ import annotations

from collections.abc import Iterator

from deepstone.analysis.contrast import LEAST_APART
from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio, widened
from deepstone.papers.evidence import Evidence
from deepstone.papers.layer_table import LayerTable
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import of_rank
from deepstone.units import digits


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    favoured, others, part = (asked.parameters[key] for key in ("favoured", "others", "part"))
    tables = next(_pairs(asked, evidence), None)
    if tables is None:
        return not_testable(
            f"needs layers of {' or '.join(asked.parameters['models'])} on a CPU and on a GPU at the same batch"
        )
    cpu, gpu = tables
    slower: dict[str, Quantity] = {}
    for name in (favoured, *others):
        rows = [table.row(name) for table in tables]
        times = [row.time_s(part) for row in rows if row is not None]
        known = [time for time in times if time is not None]
        if len(known) < 2:
            return not_testable(f"{name} was not timed {part} on both", setup=cpu.words)
        slower[name] = ratio(*known)
    nearest = min(others, key=lambda name: slower[name].median)
    lead = widened(ratio(slower[nearest], slower[favoured]), LEAST_APART["cpu"])  # processes of their own
    judged = of_rank(lead)
    listed = ", ".join(
        f"{name} {digits(slower[name].median)}" for name in sorted(slower, key=lambda n: slower[n].median)
    )
    return Answer(
        word=judged.word,
        why=(
            f"the CPU's time over the GPU's, {part}: {listed}; that of {nearest} is {in_words(lead)} times that of "
            f"{favoured}: {judged.why}"
        ),
        measured=lead,
        setup=f"{cpu.words} on {cpu.place.name} against {gpu.words} on {gpu.place.name}",
        findings=(cpu.id, gpu.id),
    )


def _pairs(asked: Asked, evidence: Evidence) -> Iterator[tuple[LayerTable, LayerTable]]:
    """The same network and batch in the same framework on both."""
    for model in asked.parameters["models"]:
        tables = [table for table in evidence.tables if table.model == model]
        for cpu in tables:
            for gpu in tables:
                same = cpu.batch == gpu.batch and cpu.framework.split()[0] == gpu.framework.split()[0]
                if same and (cpu.place.kind, gpu.place.kind) == ("cpu", "gpu"):
                    yield cpu, gpu


RULE = Rule(
    words=(
        "Each layer's time on the CPU over that on the GPU; then that ratio of the next best layer over that of the "
        "layer which the paper names as the CPU's best. Above 1 the order is as published."
    ),
    parameters=("models", "favoured", "others", "part"),
    scope="all",
    apply=_apply,
)
