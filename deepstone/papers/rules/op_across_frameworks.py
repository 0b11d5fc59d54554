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
        left_out: dict[str, str] = {}
        for table in evidence.tables:
            row = table.row(layer)
            if table.model != model or row is None or row.alone_forward_s is None:
                continue
            if row.beside:
                left_out[table.framework] = row.beside
            else:
                groups.setdefault(table.batch, {}).setdefault(table.framework, (table, row.alone_forward_s))
        several = [batch for batch in sorted(groups) if len(groups[batch]) > 1]
        if several:
            return _judged(asked, layer, groups[several[-1]]).noting(_told(left_out))
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


def _told(left_out: dict[str, str]) -> str:
    return "; ".join(f"{name} is left out, since its time holds {beside}" for name, beside in sorted(left_out.items()))


def _lacking(asked: Asked, measured: list[str]) -> str:
    lacking = [name for name in asked.parameters["frameworks"] if not any(each.startswith(name) for each in measured)]
    return f"{' and '.join(lacking)}, which the paper had, not measured on this machine" if lacking else ""


RULE = Rule(
    words=(
        "Time of one layer's forward pass by itself, in the slowest framework over the fastest, at the same batch; "
        "without those whose time holds more than the layer's work; with the wider interval of what was measured apart."
    ),
    parameters=("models", "layer", "frameworks"),
    scope="place",
    apply=_apply,
)
