"""In which year what an environment holds was released: a recipe knows it."""

from __future__ import annotations

from deepstone.absent import Absent
from deepstone.environments.cookbook import all_recipes
from deepstone.environments.environment import Environment
from deepstone.environments.names import base_version
from deepstone.errors import UsageError


def year_of(environment: Environment) -> int | Absent:
    """By the recipe of this name, else by one of the same framework and version, whoever installed it."""
    try:
        recipes = all_recipes()
    except UsageError as error:  # a user's own recipe is broken: no reason to lose what was measured
        return Absent(str(error))
    version = base_version(environment.version)
    alike = [recipe for recipe in recipes if (recipe.framework, recipe.version) == (environment.framework, version)]
    by_name = [recipe for recipe in alike if recipe.name == environment.name]
    found = next(iter([*by_name, *alike]), None)
    if found is None:
        return Absent(f"no recipe knows the year of {environment.framework} {version}")
    return found.year
