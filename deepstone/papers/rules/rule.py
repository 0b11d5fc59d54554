"""The shape of a rule: a class whose fields are the parameters that a claim gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec

from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence
from deepstone.papers.verdict import Published

Scope: TypeAlias = Literal["place", "counted", "all"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`words`: how evidence becomes a verdict. `scope`: applied to each place by itself, to no measurement at all, or
    to everything together."""

    words: ClassVar[str]
    scope: ClassVar[Scope]

    @property
    def networks(self) -> Sequence[str]:
        """Whose runs the rule may rest on."""
        return ()

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        raise NotImplementedError


class RuleOnModel(Rule, frozen=True, kw_only=True):
    """A rule on one network."""

    model: str

    @property
    def networks(self) -> Sequence[str]:
        return (self.model,)


class RuleOnModels(Rule, frozen=True, kw_only=True):
    """A rule on the first of these networks that was measured, or on all of them."""

    models: list[str]

    @property
    def networks(self) -> Sequence[str]:
        return self.models
