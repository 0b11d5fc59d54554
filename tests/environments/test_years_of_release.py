"""Which year an environment is of, and which recipes there is no environment of yet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kitchen import Kitchen

from deepstone.absent import Absent
from deepstone.environments.cookbook import year_of
from deepstone.environments.environment import Environment
from deepstone.environments.find import not_installed
from deepstone.environments.manifest import write_manifest
from deepstone.environments.places import Place


def environment(name: str, version: str = "", **more: Any) -> Environment:
    framework, _, label = name.partition("@")
    fields = {"program": Path(sys.executable), "lock": {"python": "3.11.0"}, "kind": "adopted", **more}
    return Environment(framework=framework, version=version or label, name=name, **fields)


@pytest.mark.parametrize(
    ("name", "version", "year"),
    [
        ("tensorflow@1.12.0-intel", "1.12.0", 2018),
        ("tensorflow@1.2.1", "1.2.1", 2017),
        ("torch@2.13.0+cpu", "2.13.0+cpu", 2026),  # beside Deepstone itself: no recipe made it, and one knows it
        ("torch@1.1.0-cluster", "1.1.0", 2019),  # adopted under a name of its own
    ],
)
def test_the_year_is_that_of_the_release(name: str, version: str, year: int) -> None:
    assert year_of(environment(name, version)) == year


def test_a_recipe_of_the_same_name_counts_before_one_of_the_same_version(kitchen: Kitchen) -> None:
    kitchen.recipe("1.1.0", name="torch@1.1.0-patched", year=2031)
    assert year_of(environment("torch@1.1.0-patched", "1.1.0")) == 2031
    assert year_of(environment("torch@1.1.0", "1.1.0")) == 2019


def test_a_version_that_no_recipe_knows_has_none() -> None:
    found = year_of(environment("torch@2.3.4"))
    assert isinstance(found, Absent)
    assert found.reason == "no recipe knows the year of torch 2.3.4"


def test_a_broken_recipe_loses_no_measurement(kitchen: Kitchen) -> None:
    torn = kitchen.recipes / "torn.toml"
    torn.write_text('framework = "torch"\nname = ')
    found = year_of(environment("torch@2.13.0"))
    assert isinstance(found, Absent)
    assert "torn.toml" in found.reason
    torn.write_text('framework = "mxnet"\nname = ')
    assert year_of(environment("torch@2.13.0")) == 2026


def test_what_can_be_added_is_what_nobody_has_installed(kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    site = kitchen.folder / "site"
    (site / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(site)])
    before = not_installed()
    assert "torch" not in before  # the one beside Deepstone is of the version that the recipe makes
    assert {"torch@1.1.0", "mxnet", "tensorflow", "tensorflow@1.12.0", "tensorflow@1.12.0-intel"} <= set(before)
    for there in (environment("mxnet@1.9.1"), environment("tensorflow@1.12.0-intel", "1.12.0")):
        place = Place(root=kitchen.root, name=there.name)
        place.folder.mkdir(parents=True)
        write_manifest(place, there, recipe_sha="", size_bytes=0)
    assert set(before) - set(not_installed()) == {"mxnet", "tensorflow@1.12.0-intel"}
