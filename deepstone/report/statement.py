"""A plain sentence about what was measured, with the ratio it rests on and the runs behind it."""

from __future__ import annotations

from dataclasses import dataclass

from deepstone.absent import Absent
from deepstone.report.figure import Value
from deepstone.report.reading import Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    text: str
    ratio: Value | None
    how: str
    runs: tuple[str, ...]
    findings: tuple[str, ...]


def read_statement(node: Node) -> Statement:
    ratio = node.value("ratio")
    return Statement(
        text=node.sentence("text"),
        ratio=None if isinstance(ratio, Absent) else ratio,
        how=node.sentence("how") if node.has("how") else "",
        runs=node.texts("runs"),
        findings=node.texts("findings"),
    )
