"""Reads a paper from the TOML files in its folder: paper, claims, figures, and NAME-SCALE, a study for each scale."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import structs

from deepstone.errors import UsageError, nearest, reason
from deepstone.papers.figures import BUILDERS
from deepstone.papers.paper import SCALES, Claim, Figure, Paper, PublishedSeries, RuleUse
from deepstone.papers.rules import RULES
from deepstone.papers.verdict import Published
from deepstone.results.refusal import rewritten

_T = TypeVar("_T")
_USE: Final = ("name", "remark", "label", "beside")
_FIGURE: Final = ("name", "title", "builder", "caption", "published")


class _About(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    citation: str
    setup: str
    errors: tuple[str, ...]


class _Claim(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    text: str
    where: str
    published: Published
    test: str
    about: Literal["cpu", "gpu", ""] = ""
    rule: list[dict[str, object]]


class _Use(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    remark: str = ""
    label: str = ""
    beside: bool = False


class _Figure(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    title: str
    builder: str
    caption: tuple[str, ...] = ()
    published: tuple[PublishedSeries, ...] = ()


def read_paper(folder: Path) -> Paper:
    """Raises UsageError with the file and the mistake."""
    about = _read(_table(folder / "paper.toml"), _About, f"{folder / 'paper.toml'}: the paper")
    claims_file, figures_file = folder / "claims.toml", folder / "figures.toml"
    claims = tuple(_claim(entry, claims_file) for entry in _entries(claims_file, "claim"))
    _refuse_twice([claim.id for claim in claims], claims_file)
    figures = tuple(_figure(entry, figures_file) for entry in _entries(figures_file, "figure"))
    _refuse_twice([figure.name for figure in figures], figures_file)
    return Paper(
        **structs.asdict(about),
        name=folder.name,
        claims=claims,
        figures=figures,
        studies={scale: folder / f"{folder.name}-{scale}.toml" for scale in SCALES},
    )


def _claim(entry: Mapping[str, object], file: Path) -> Claim:
    where = f"{file}: the claim {entry.get('id', '?')}"
    claim = _read(entry, _Claim, where)
    stated = {name: value for name, value in structs.asdict(claim).items() if name != "rule"}
    return Claim(**stated, rules=tuple(_rule(use, where) for use in claim.rule))


def _rule(entry: Mapping[str, object], where: str) -> RuleUse:
    use = _read({key: value for key, value in entry.items() if key in _USE}, _Use, where)
    parameters = {key: value for key, value in entry.items() if key not in _USE}
    kind = _one_of(use.name, RULES, "rule", where)
    rule = _read(parameters, kind, f"{where}: the rule {use.name!r}")
    return RuleUse(**structs.asdict(use), rule=rule)


def _figure(entry: Mapping[str, object], file: Path) -> Figure:
    where = f"{file}: the figure {entry.get('name', '?')}"
    figure = _read({key: value for key, value in entry.items() if key in _FIGURE}, _Figure, where)
    parameters = {key: value for key, value in entry.items() if key not in _FIGURE}
    kind = _one_of(figure.builder, BUILDERS, "builder", where)
    return Figure(
        name=figure.name,
        title=figure.title,
        builder=_read(parameters, kind, f"{where}: the builder {figure.builder!r}"),
        caption=figure.caption,
        published=figure.published,
    )


def _one_of(name: str, known: Mapping[str, type[_T]], what: str, where: str) -> type[_T]:
    if name not in known:
        raise UsageError(f"{where}: no {what} {name!r}; {nearest(name, known)}")
    return known[name]


def _read(table: Mapping[str, object], kind: type[_T], where: str) -> _T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {rewritten(error, table, kind)}") from None


def _entries(file: Path, key: str) -> list[dict[str, object]]:
    content = _table(file)
    unknown = next((name for name in content if name != key), None)
    if unknown is not None:
        raise UsageError(f"{file}: holds [[{key}]] and nothing else, not {unknown!r}")
    return _read(content, dict[str, list[dict[str, object]]], str(file)).get(key, [])


def _table(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {reason(error)}") from error
    except ValueError as error:  # invalid TOML or UTF-8
        raise UsageError(f"{file}: {error}") from error


def _refuse_twice(names: list[str], file: Path) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{file}: {twice} stands there twice")
