"""`deepstone doctor`: the machine, what runs on it, and what does not and why."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from cli_kit import Cli

Found = dict[str, Any]


@pytest.fixture(scope="module")
def second_torch(reader: Cli, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, str, str]:
    """A user who adopted Deepstone's own interpreter once more; what it is called, and the version of torch."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    cli = replace(reader, more={"DEEPSTONE_ENVIRONMENTS": str(tmp_path_factory.mktemp("environments"))})
    listed = cli("env", "list", "--json").assert_ok().json["environments"]
    version = next(str(each["version"]) for each in listed if each["framework"] == "torch")
    name = f"torch@{version.partition('+')[0]}-second"
    cli("env", "add", "torch", "--python", sys.executable, "--name", name).assert_ok()
    return cli, name, version


@pytest.fixture(scope="module")
def found(second_torch: tuple[Cli, str, str]) -> Found:
    cli, _, _ = second_torch
    return cli("doctor", "--json").assert_ok().json


def test_it_tells_what_is_there_and_what_is_not(found: Found, second_torch: tuple[Cli, str, str]) -> None:
    _, name, _ = second_torch
    assert set(found) == {"machine", "devices", "frameworks", "launchers", "meters", "missing"}
    assert found["launchers"]["local"]["here"]
    assert set(found["launchers"]) == {"local", "torchrun", "mpirun", "srun"}
    assert found["machine"]["cpu"]["usable_cores"] >= 1
    assert found["devices"][0]["name"] == "cpu"
    assert set(found["frameworks"]) == {"torch", name, "tensorflow", "jax"}
    for framework in found["frameworks"].values():
        assert {"version", "runs", "why"} <= set(framework)
        assert framework["runs"] or framework["why"]
    assert all(set(entry) == {"what", "why", "remedy"} and all(entry.values()) for entry in found["missing"])


def test_further_environments_stand_under_their_names(found: Found, second_torch: tuple[Cli, str, str]) -> None:
    _, name, version = second_torch
    frameworks = found["frameworks"]
    assert list(frameworks)[:2] == ["torch", name]
    assert frameworks["torch"]["runs"]
    assert frameworks[name]["runs"]
    assert frameworks[name]["version"] == version


def test_a_framework_that_is_not_installed_is_named(torchless: Cli) -> None:
    found = torchless("doctor", "--json").assert_ok().json
    assert found["frameworks"]["torch"] == {"version": "", "runs": False, "why": "not installed"}
    remedy = {entry["what"]: entry["remedy"] for entry in found["missing"]}["framework torch"]
    assert "pip install" in remedy
