"""A claim that cannot be tested yet, with the reason."""

from __future__ import annotations

from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    return not_testable(asked.parameters["reason"])


RULE = Rule(words="Not tested, for the reason given.", parameters=("reason",), scope="counted", apply=_apply)
