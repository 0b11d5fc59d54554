"""Frameworks that live in environments of their own, found as a user's are. `make test` puts them there first.

`make test-all` tries legacy ones, further ones of today and those that only run networks where they are installed;
`make legacy` installs them and leaves none out that can be installed.
"""

from __future__ import annotations

import os

import pytest

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError

LEGACY = (
    "torch@1.1.0",
    "mxnet",
    "chainer",
    "chainer@7.8.1-ideep",
    "tensorflow@1.12.0",
    "tensorflow@1.12.0-intel",
    "tensorflow@1.2.1",
    "cntk",
    "theano",
    "caffe",
    "neon",
    "torch7",
)
WITHOUT_GROUPS = ("neon",)  # have no convolution in groups
FURTHER = ("paddle",)  # of today
FORWARD_ONLY = ("onnxruntime",)  # of today; they run networks and do not train them
_ALWAYS = ("mxnet", "chainer")  # they run in Pythons of today, so `make environments` makes them
_AS_ROOT = ("caffe",)  # a Debian of its own
_ADOPTED = ("neon", "torch7")  # no recipe builds them: they are tried where they have been adopted
_ALL_OF_THEM = "DEEPSTONE_TEST_LEGACY"


def environment_of(framework: str) -> Environment:
    """A framework that is not there fails the test: what was not run is not proven."""
    try:
        return find_environment(framework)
    except MissingError as error:
        cannot = framework in _ADOPTED or (framework in _AS_ROOT and os.geteuid() != 0)
        matches_axes = framework in _ALWAYS or os.environ.get(_ALL_OF_THEM)
        if framework in (*LEGACY, *FURTHER, *FORWARD_ONLY) and (cannot or not matches_axes):
            pytest.skip(f"{error}; `make legacy` tries it")
        pytest.fail(f"{error}, or run `make environments`")
