"""Frameworks that live in environments of their own, found as a user's are. `make test` puts them there first."""

from __future__ import annotations

import pytest

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError


def environment_of(framework: str) -> Environment:
    """A framework that is not there fails the test: what was not run is not proven."""
    try:
        return find_environment(framework)
    except MissingError as error:
        pytest.fail(f"{error}, or run `make environments`")
