"""Which backend runs which version of a framework."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from deepstone.backends import before_import
from deepstone.backends.registry import BACKENDS, backend_of
from deepstone.launchers.local import worker_argv


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.0", "10.1", "unknown"])
def test_what_is_current_has_the_framework_s_own_backend(version: str) -> None:
    assert backend_of("torch", version) is BACKENDS["torch"]


@pytest.mark.parametrize(("framework", "version"), [("torch", "1.1.0"), ("tensorflow", "1.12.0"), ("torch", "0.4.1")])
def test_what_is_old_has_a_legacy_one(framework: str, version: str) -> None:
    info = backend_of(framework, version)
    assert info.module.startswith("deepstone.backends.legacy.")
    assert info.variables is before_import.thread_counts
    assert info.package == BACKENDS[framework].package
    assert info.own_modules == ""  # an old torch does not run a module of today


def test_a_framework_without_another_era_is_always_itself() -> None:
    assert backend_of("mxnet", "0.12") is BACKENDS["mxnet"]


@pytest.mark.parametrize("framework", BACKENDS)
def test_every_module_is_there(framework: str) -> None:
    for version in ("1.0", "99.0"):
        info = backend_of(framework, version)
        if info.language == "python":
            assert importlib.util.find_spec(info.module) is not None
        else:
            assert Path(worker_argv(["luajit"], framework, version)[-1]).is_file()
