"""A paper as data: what it measured, what it published, and what it claims, each claim with the rule that tests it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Scale: TypeAlias = Literal["small", "paper"]
SCALES: Final[tuple[Scale, ...]] = ("small", "paper")


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleUse:
    """A rule by name with its parameters. `remark` is said with every verdict that comes of it."""

    name: str
    parameters: Mapping[str, Any]
    remark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """`rules` are tried in order on each machine; the first that can be applied decides.

    `about` is the kind of device that the paper made the claim about; "" for what is counted.
    """

    id: str
    text: str
    where: str
    published: Mapping[str, Any]  # text, and value and unit where it is a number
    test: str
    about: str
    rules: tuple[RuleUse, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A figure or table of the paper in its own form: which builder makes it, from which parameters and numbers."""

    name: str
    title: str
    builder: str
    parameters: Mapping[str, Any]
    caption: tuple[str, ...]
    published: tuple[Mapping[str, Any], ...]  # series as a chart has them


@dataclass(frozen=True, kw_only=True, slots=True)
class Paper:
    """`studies`: the file of the study at each scale. `errors`: where the source is wrong."""

    name: str
    title: str
    citation: str
    setup: str  # what it was measured on, in words
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]
    errors: tuple[str, ...]
    studies: Mapping[Scale, Path]

    def claim(self, id: str) -> Claim | None:
        return next((claim for claim in self.claims if claim.id == id), None)
