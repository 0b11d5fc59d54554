"""The interface of rules: a class whose fields are the parameters in a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec

from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence
from deepstone.papers.paper import OnModel, OnModels
from deepstone.papers.verdict import Published

Scope: TypeAlias = Literal["place", "counted", "all"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`words`: how evidence becomes a verdict. `scope`: whether the rule applies to each place, to no measurement, or
    to all evidence together."""

    words: ClassVar[str]
    scope: ClassVar[Scope]

    @property
    def networks(self) -> Sequence[str]:
        """Return the networks whose runs the rule may use."""
        return ()

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        raise NotImplementedError


class RuleOnModel(OnModel, Rule, frozen=True, kw_only=True):
    """A rule on one network."""


class RuleOnModels(OnModels, Rule, frozen=True, kw_only=True):
    """A rule on the first of these networks that was measured, or on all of them."""
