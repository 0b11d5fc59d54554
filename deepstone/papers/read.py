"""A paper from the TOML files in its folder: paper, claims, figures, and NAME-SCALE, a study for each scale."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from deepstone.errors import UsageError, nearest
from deepstone.faults import reason
from deepstone.papers.figures.builders import BUILDERS
from deepstone.papers.paper import SCALES, Claim, Figure, Paper, RuleUse
from deepstone.papers.rules.table import RULES

_PAPER: Final = {"title": str, "citation": str, "setup": str, "errors": list}
_CLAIM: Final = {"id": str, "text": str, "where": str, "published": dict, "test": str, "rule": list}
_FIGURE: Final = {"name": str, "title": str, "builder": str}
_DEVICES: Final = ("cpu", "gpu", "")


def read_paper(folder: Path) -> Paper:
    """UsageError names the file and what is wrong in it."""
    about = _table(folder / "paper.toml")
    _need(about, _PAPER, folder / "paper.toml", "the paper")
    claims_file, figures_file = folder / "claims.toml", folder / "figures.toml"
    claims = tuple(_claim(entry, claims_file) for entry in _entries(claims_file, "claim"))
    _refuse_twice([claim.id for claim in claims], claims_file)
    figures = tuple(_figure(entry, figures_file) for entry in _entries(figures_file, "figure"))
    _refuse_twice([figure.name for figure in figures], figures_file)
    return Paper(
        name=folder.name,
        title=about["title"],
        citation=about["citation"],
        setup=about["setup"],
        claims=claims,
        figures=figures,
        errors=tuple(about["errors"]),
        studies={scale: folder / f"{folder.name}-{scale}.toml" for scale in SCALES},
    )


def _claim(entry: Mapping[str, Any], file: Path) -> Claim:
    where = f"the claim {entry.get('id', '?')}"
    _need(entry, _CLAIM, file, where)
    about = entry.get("about", "")
    if about not in _DEVICES:
        raise UsageError(f"{file}: {where}: about is cpu, gpu or left out, not {about!r}")
    if not isinstance(entry["published"].get("text"), str):
        raise UsageError(f"{file}: {where}: published needs a text, as in {{text = '2x', value = 2.0, unit = 'ratio'}}")
    return Claim(
        id=entry["id"],
        text=entry["text"],
        where=entry["where"],
        published=entry["published"],
        test=entry["test"],
        about=about,
        rules=tuple(_rule(use, file, where) for use in entry["rule"]),
    )


def _rule(use: Mapping[str, Any], file: Path, where: str) -> RuleUse:
    name = str(use.get("name", ""))
    if name not in RULES:
        raise UsageError(f"{file}: {where}: no rule {name!r}; {nearest(name, RULES)}")
    parameters = {key: value for key, value in use.items() if key not in ("name", "remark")}
    unknown = next((key for key in parameters if key not in RULES[name].parameters), None)
    if unknown is not None:
        known = nearest(unknown, RULES[name].parameters)
        raise UsageError(f"{file}: {where}: the rule {name!r} takes no {unknown}; {known}")
    return RuleUse(name=name, parameters=parameters, remark=use.get("remark", ""))


def _figure(entry: Mapping[str, Any], file: Path) -> Figure:
    where = f"the figure {entry.get('name', '?')}"
    _need(entry, _FIGURE, file, where)
    if entry["builder"] not in BUILDERS:
        raise UsageError(f"{file}: {where}: no builder {entry['builder']!r}; {nearest(entry['builder'], BUILDERS)}")
    own = (*_FIGURE, "caption", "published")
    return Figure(
        name=entry["name"],
        title=entry["title"],
        builder=entry["builder"],
        parameters={key: value for key, value in entry.items() if key not in own},
        caption=tuple(entry.get("caption", ())),
        published=tuple(entry.get("published", ())),
    )


def _entries(file: Path, key: str) -> list[Mapping[str, Any]]:
    content = _table(file)
    unknown = next((name for name in content if name != key), None)
    if unknown is not None:
        raise UsageError(f"{file}: holds [[{key}]] and nothing else, not {unknown!r}")
    return cast(list[Mapping[str, Any]], content.get(key, []))


def _table(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {reason(error)}") from error
    except ValueError as error:  # TOML that cannot be read, or no UTF-8
        raise UsageError(f"{file}: {error}") from error


def _need(entry: Mapping[str, Any], keys: Mapping[str, type], file: Path, where: str) -> None:
    for key, kind in keys.items():
        if not isinstance(entry.get(key), kind):
            raise UsageError(f"{file}: {where}: {key} is missing or of another kind")


def _refuse_twice(names: list[str], file: Path) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{file}: {twice} stands there twice")
