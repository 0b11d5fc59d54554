"""The shape of a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence

Scope: TypeAlias = Literal["place", "counted", "all"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a rule is asked: its parameters in this claim, and the published number where there is one."""

    parameters: Mapping[str, Any]
    published: float | None

    @property
    def number(self) -> float:
        """For rules that cannot do without one."""
        assert self.published is not None, "this rule needs a published value"
        return self.published


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """`scope`: applied to each place by itself, to no measurement at all, or to everything together."""

    words: str
    parameters: tuple[str, ...]
    scope: Scope
    apply: Callable[[Asked, Evidence], Answer]
