"""Which part of the layers' time convolutions take: the best case over frameworks and networks."""

from __future__ import annotations

from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import share, share_in_words, total
from deepstone.papers.evidence import Evidence
from deepstone.papers.layer_table import LayerRow, LayerTable
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import of_share


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    for model in asked.parameters["models"]:
        tables = [table for table in evidence.tables if table.model == model and table.phase != "forward"]
        shares = [(table, part) for table in tables if (part := _share(table, asked.parameters["op"])) is not None]
        if shares:
            table, part = max(shares, key=lambda entry: entry[1].low)
            judged = of_share(part, asked.number)
            return Answer(
                word=judged.word,
                why=f"{share_in_words(part)} of the layers' time, forward and backward; {judged.why}",
                measured=part,
                unit="share",
                setup=table.words,
                findings=(table.id,),
            )
    return not_testable(f"no layers were timed here: `deepstone layers {asked.parameters['models'][0]}`", unit="share")


def _share(table: LayerTable, op: str) -> Quantity | None:
    inside = [time for row in table.rows if row.op == op for time in _times(row)]
    outside = [time for row in table.rows if row.op != op for time in _times(row)]
    return share(total(inside), total(outside)) if inside and outside else None


def _times(row: LayerRow) -> list[Quantity]:
    return [time for time in (row.forward_s, row.backward_s) if time is not None]


RULE = Rule(
    words="Time of the convolutions over that of all layers, forward and backward, in the case where it is largest.",
    parameters=("models", "op"),
    scope="place",
    apply=_apply,
)
