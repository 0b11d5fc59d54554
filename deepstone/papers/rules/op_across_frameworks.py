"""How much one small operation differs between frameworks: slowest over fastest, each alone on the same shapes."""

from __future__ import annotations

from deepstone.analysis.contrast import LEAST_APART
from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio, widened
from deepstone.papers.evidence import Evidence
from deepstone.papers.layer_table import LayerTable
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import of_ratio
from deepstone.units import seconds


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    layer = asked.parameters["layer"]
    for model in asked.parameters["models"]:
        groups: dict[int, dict[str, tuple[LayerTable, Quantity]]] = {}
        for table in evidence.tables:
            row = table.row(layer)
            if table.model == model and row is not None and row.alone_forward_s is not None:
                groups.setdefault(table.batch, {}).setdefault(table.framework, (table, row.alone_forward_s))
        several = [batch for batch in sorted(groups) if len(groups[batch]) > 1]
        if several:
            return _judged(asked, layer, groups[several[-1]])
    return not_testable(
        f"{layer} was timed in fewer than two frameworks here; `deepstone env add tensorflow jax` gives two more"
    )


def _judged(asked: Asked, layer: str, found: dict[str, tuple[LayerTable, Quantity]]) -> Answer:
    ordered = sorted(found.items(), key=lambda entry: entry[1][1].median)
    (fast, (_, shortest)), (slow, (table, longest)) = ordered[0], ordered[-1]
    spread = widened(ratio(longest, shortest), LEAST_APART[table.place.kind])  # processes of their own
    judged = of_ratio(spread, asked.number)
    listed = ", ".join(f"{name} {seconds(time.median)}" for name, (_, time) in ordered)
    return Answer(
        word=judged.word,
        why=f"{layer} forward takes {in_words(spread)} times as long in {slow} as in {fast} ({listed}); {judged.why}",
        measured=spread,
        setup=f"{table.model}, batch {table.batch}, {layer} by itself in each framework with its defaults",
        findings=tuple(dict.fromkeys(entry[0].id for _, entry in ordered)),
    ).noting(_lacking(asked, list(found)))


def _lacking(asked: Asked, measured: list[str]) -> str:
    lacking = [name for name in asked.parameters["frameworks"] if not any(each.startswith(name) for each in measured)]
    return f"{' and '.join(lacking)}, which the paper had, not measured on this machine" if lacking else ""


RULE = Rule(
    words=(
        "Time of one layer's forward pass by itself, in the slowest framework over the fastest, at the same batch; "
        "with the wider interval of what was measured apart."
    ),
    parameters=("models", "layer", "frameworks"),
    scope="place",
    apply=_apply,
)
