"""Frameworks that live in environments of their own, found as a user's are. `make test` puts them there first.

Those of other years are tried where they are there; `make legacy` puts them there and has none left out.
"""

from __future__ import annotations

import os

import pytest

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError

LEGACY = ("torch@1.1.0", "mxnet", "chainer", "tensorflow@1.12.0", "tensorflow@1.12.0-intel", "tensorflow@1.2.1")
_ALL_OF_THEM = "DEEPSTONE_TEST_LEGACY"


def environment_of(framework: str) -> Environment:
    """A framework that is not there fails the test: what was not run is not proven."""
    try:
        return find_environment(framework)
    except MissingError as error:
        if framework in LEGACY and not os.environ.get(_ALL_OF_THEM):
            pytest.skip(f"{error}; `make legacy` tries it")
        pytest.fail(f"{error}, or run `make environments`")
