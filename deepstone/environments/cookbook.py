"""All recipes: those that ship with Deepstone, and the user's own in the folder DEEPSTONE_RECIPES."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.environments.environment import Environment, base_version
from deepstone.environments.recipe import Recipe, parse_recipe
from deepstone.errors import UsageError, nearest, reason, shown
from deepstone.setups.axes import NEON, TORCH7

VARIABLE: Final = "DEEPSTONE_RECIPES"
_OURS: Final = Path(__file__).with_name("recipes")


class AdoptedOnly(Struct, frozen=True, kw_only=True):
    """A framework of the studies that no index has. Its users build it as its project says, and Deepstone adopts that.

    `years`: of its releases, by version.
    """

    get: str  # how to get it
    needs: str  # what must be there
    adopt: str  # the command that adopts it
    years: Mapping[str, int]


ADOPTED_ONLY: Final[dict[str, AdoptedOnly]] = {
    NEON: AdoptedOnly(
        get="build it as github.com/NervanaSystems/neon says; what PyPI calls neon is something else",
        needs="Python 3.6 to 3.9 with NumPy 1; engine=mkl also its mklEngine, built with Intel's MKL of 2018",
        adopt="deepstone env add neon --python PATH",
        years={"2.6.0": 2018, **dict.fromkeys(("2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0"), 2017)},
    ),
    TORCH7: AdoptedOnly(
        get="build it as github.com/torch/distro says",
        needs="LuaJIT with the packages torch and nn, and a BLAS",
        adopt="deepstone env add torch7 --program PATH/bin/luajit [--set NAME=VALUE …]",
        years={"7": 2017},  # of its last changes
    ),
}


def all_recipes(*, mentioning: str = "") -> list[Recipe]:
    """Return every recipe, by name. A user's recipe replaces ours of the same name; so does a default.

    `mentioning`: leave out files without this word. They are not parsed, so what is wrong in them is not found.
    """
    recipes = _read(_OURS, mentioning)
    own = os.environ.get(VARIABLE)
    return _merged(recipes, _read(Path(own).expanduser(), mentioning)) if own else recipes


def find_recipe(wanted: str) -> Recipe:
    """Return the recipe of this name or alias, or the default of a bare framework. Raises UsageError if there is
    none."""
    recipes = all_recipes()
    for recipe in recipes:
        if wanted in addable([recipe]):
            return recipe
    adopted = ADOPTED_ONLY.get(wanted.partition("@")[0])
    if adopted is not None:
        raise UsageError(f"{shown(wanted)} has no recipe: {adopted.get}; then {adopted.adopt}")
    raise UsageError(f"{shown(wanted)}: no such environment to add; {nearest(wanted, addable(recipes))}")


def addable(recipes: Iterable[Recipe]) -> list[str]:
    """Return the names that `find_recipe` accepts."""
    names = [[recipe.framework if recipe.default else "", recipe.alias, recipe.name] for recipe in recipes]
    return [name for of_recipe in names for name in of_recipe if name]


def year_of(environment: Environment) -> int | Absent:
    """Return the year of release from the recipe of this name, else from one of the same framework and version."""
    try:
        recipes = all_recipes(mentioning=environment.framework)
    except UsageError as error:  # a user's own recipe is invalid: this must not lose a measurement
        return Absent(str(error))
    version = base_version(environment.version)
    alike = [recipe for recipe in recipes if (recipe.framework, recipe.version) == (environment.framework, version)]
    by_name = [recipe for recipe in alike if recipe.name == environment.name]
    found = next(iter([*by_name, *alike]), None)
    if environment.framework in ADOPTED_ONLY and version in ADOPTED_ONLY[environment.framework].years:
        return ADOPTED_ONLY[environment.framework].years[version]
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


def _read(folder: Path, mentioning: str = "") -> list[Recipe]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
        texts = [(path.read_bytes(), path) for path in paths]
        recipes = [parse_recipe(text, path) for text, path in texts if mentioning.encode() in text]
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
