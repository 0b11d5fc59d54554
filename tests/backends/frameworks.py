"""Frameworks that live in environments of their own: found as a user's are, or the test is skipped with the remedy."""

from __future__ import annotations

import pytest

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError


def environment_of(framework: str) -> Environment:
    try:
        return find_environment(framework)
    except MissingError as error:
        pytest.skip(str(error))
