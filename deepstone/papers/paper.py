"""A paper as data: its studies, its published numbers, and its claims, each with the rules that test it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from deepstone.errors import UsageError, nearest
from deepstone.results.chart import ChartGap

if TYPE_CHECKING:
    from deepstone.papers.figures.chart import FigureBuilder
    from deepstone.papers.rules.rule import Rule
    from deepstone.papers.verdict import Published
    from deepstone.results.parts import Json

Scale: TypeAlias = Literal["small", "paper"]
SCALES: Final[tuple[Scale, ...]] = ("small", "paper")
_HERE: Final = Path(__file__).parent  # each paper is a folder of data beside this file


class OnModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule or a figure has that is on one network."""

    model: str

    @property
    def networks(self) -> Sequence[str]:
        return (self.model,)


class OnModels(msgspec.Struct, frozen=True, kw_only=True):
    """What one has that is on several."""

    models: list[str]

    @property
    def networks(self) -> Sequence[str]:
        return self.models


class RuleUse(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with its parameters. `remark` is added to every verdict of the rule.

    A rule replaces those before it if they cannot be applied. A rule with `beside` is another test of the same claim:
    it is always applied and reported, and it decides if those before it are undecided. `label` names the test.
    """

    name: str
    rule: Rule
    remark: str = ""
    label: str = ""
    beside: bool = False

    @property
    def parameters(self) -> Mapping[str, Json]:
        """Return the parameters that the claim sets, without defaults."""
        given: dict[str, Json] = msgspec.to_builtins(self.rule)
        return {name: value for name, value in given.items() if value != {}}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """`rules` are tried in order on each machine, as `RuleUse` describes.

    `about` is the kind of device that the claim is about; "" for counted claims.
    """

    id: str
    text: str
    where: str
    published: Published
    test: str
    about: str
    rules: tuple[RuleUse, ...]


class PublishedSeries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The paper's own numbers: `x` and `y` as lists of equal length."""

    name: str
    x: list[str | int]
    y: list[float]
    gaps: tuple[ChartGap, ...] = ()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure or table of the paper in its own form: its builder, and the paper's own numbers."""

    name: str
    title: str
    builder: FigureBuilder
    caption: tuple[str, ...]
    published: tuple[PublishedSeries, ...]


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """`studies`: the file of the study at each scale. `errors`: where the source is wrong."""

    name: str
    title: str
    citation: str
    setup: str  # description of the hardware and software
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]
    errors: tuple[str, ...]
    studies: Mapping[Scale, Path]

    def claim(self, id: str) -> Claim | None:
        return next((claim for claim in self.claims if claim.id == id), None)


def paper_names() -> list[str]:
    return sorted(path.parent.name for path in _HERE.glob("*/paper.toml"))


def load_paper(name: str) -> Paper:
    """Raises UsageError for an unknown name."""
    from deepstone.papers.read import read_paper  # it imports NumPy, which a list of names does not need

    known = paper_names()
    if name not in known:
        raise UsageError(f"no paper {name!r}; {nearest(name, known)}")
    return read_paper(_HERE / name)
