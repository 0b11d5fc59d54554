"""All recipes: those that ship with Deepstone, and the user's own in the folder DEEPSTONE_RECIPES."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from deepstone.absent import Absent
from deepstone.environments.environment import Environment, base_version
from deepstone.environments.recipe import Recipe, parse_recipe
from deepstone.errors import UsageError, nearest, reason, shown

VARIABLE: Final = "DEEPSTONE_RECIPES"
_OURS: Final = Path(__file__).with_name("recipes")

# Limitations: frameworks of the studies that cannot be installed any more.
NOT_INSTALLABLE: Final[dict[str, str]] = {
    "neon": "no package index holds it; what PyPI calls neon is something else",
    "torch7": "it is Lua, and no package of it is left that builds today",
}


def all_recipes() -> list[Recipe]:
    """Return every recipe, by name. A user's recipe replaces ours of the same name; so does a default."""
    recipes = _read(_OURS)
    own = os.environ.get(VARIABLE)
    return _merged(recipes, _read(Path(own).expanduser())) if own else recipes


def find_recipe(wanted: str) -> Recipe:
    """Return the recipe of this name or alias, or the default of a bare framework. Raises UsageError if there is
    none."""
    recipes = all_recipes()
    for recipe in recipes:
        if wanted in addable([recipe]):
            return recipe
    why = NOT_INSTALLABLE.get(wanted.partition("@")[0])
    if why is not None:
        raise UsageError(f"{shown(wanted)} cannot be installed: {why}")
    raise UsageError(f"{shown(wanted)}: no such environment to add; {nearest(wanted, addable(recipes))}")


def addable(recipes: Iterable[Recipe]) -> list[str]:
    """Return the names that `find_recipe` accepts."""
    names = [[recipe.framework if recipe.default else "", recipe.alias, recipe.name] for recipe in recipes]
    return [name for of_recipe in names for name in of_recipe if name]


def year_of(environment: Environment) -> int | Absent:
    """Return the year of release from the recipe of this name, else from one of the same framework and version."""
    try:
        recipes = all_recipes()
    except UsageError as error:  # a user's own recipe is invalid: this must not lose a measurement
        return Absent(str(error))
    version = base_version(environment.version)
    alike = [recipe for recipe in recipes if (recipe.framework, recipe.version) == (environment.framework, version)]
    by_name = [recipe for recipe in alike if recipe.name == environment.name]
    found = next(iter([*by_name, *alike]), None)
    if found is None:
        return Absent(f"no recipe knows the year of {environment.framework} {version}")
    return found.year


def _merged(ours: list[Recipe], own: list[Recipe]) -> list[Recipe]:
    replaced = {recipe.name for recipe in own}
    decided = {recipe.framework for recipe in own if recipe.default}
    shipped = [recipe for recipe in ours if recipe.name not in replaced]
    first = [recipe for recipe in shipped if recipe.framework not in decided]
    # A default that the user's replaces is still available under its full name.
    other = [replace(recipe, default=False) for recipe in shipped if recipe.framework in decided]
    return sorted([*first, *other, *own], key=lambda recipe: recipe.name)


def _read(folder: Path) -> list[Recipe]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
        recipes = [parse_recipe(path.read_bytes(), path) for path in paths]
    except OSError as error:
        raise UsageError(f"cannot read the recipes in {folder}: {reason(error)}; see {VARIABLE}") from error
    _check_one_of_each(recipes, folder)
    return recipes


def _check_one_of_each(recipes: list[Recipe], folder: Path) -> None:
    names = addable(recipes)
    for name in names:
        if names.count(name) > 1:
            what = f"the default of {name}" if "@" not in name else name
            raise UsageError(f"recipes in {folder}: two of them are {what}; change or remove one")
