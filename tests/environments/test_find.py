"""Which environment is meant: Deepstone's own interpreter first, then those made or adopted, by files alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kitchen import Kitchen

from deepstone.environments.environment import Environment
from deepstone.environments.find import environments, find_environment, installed
from deepstone.environments.manifest import write_manifest
from deepstone.environments.places import Place
from deepstone.errors import MissingError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kitchen: Kitchen) -> Path:
    """An interpreter that sees this folder alone."""
    del kitchen
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    return site


def make(kitchen: Kitchen, name: str, version: str = "", **more: Any) -> Environment:
    """The note of an environment whose interpreter is this one."""
    framework, _, label = name.partition("@")
    fields = {"program": Path(sys.executable), "lock": {"python": "3.11.0"}, "kind": "adopted", **more}
    environment = Environment(framework=framework, version=version or label, name=name, **fields)
    place = Place(root=kitchen.root, name=name)
    place.folder.mkdir(parents=True)
    write_manifest(place, environment, recipe_sha="", size_bytes=0)
    return environment


class TestOwn:
    def test_pip_and_other_installers(self, site: Path) -> None:
        (site / "torch-2.13.0+cpu.dist-info").mkdir()
        assert find_environment("torch").version == "2.13.0+cpu"
        assert find_environment("torch@2.13.0").version == "2.13.0+cpu"

    def test_an_installer_that_leaves_only_an_egg(self, site: Path) -> None:
        egg = site / "torch-2.9.1.egg-info"
        egg.mkdir()
        (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
        assert find_environment("torch").version == "2.9.1"

    def test_a_distribution_of_another_name(self, site: Path) -> None:
        """tensorflow-cpu gives the package tensorflow."""
        info = site / "tensorflow_cpu-2.21.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow_cpu\nVersion: 2.21.0\n")
        (info / "top_level.txt").write_text("tensorflow\n")
        (site / "tensorflow").mkdir()
        assert find_environment("tensorflow").version == "2.21.0"

    def test_a_folder_that_is_no_package_does_not_count(self, site: Path) -> None:
        (site / "torch").mkdir()
        assert installed() == {"torch": None, "tensorflow": None, "jax": None}
        with pytest.raises(MissingError, match="pip install"):
            find_environment("auto")


class TestMade:
    def test_own_comes_first_and_then_the_newest(self, site: Path, kitchen: Kitchen) -> None:
        for name in ("torch@1.10.0", "torch@1.9.0", "torch@1.10.0-cluster"):
            make(kitchen, name, name.partition("@")[2].partition("-")[0])
        assert [each.name for each in environments("torch")] == ["torch@1.10.0", "torch@1.10.0-cluster", "torch@1.9.0"]
        assert find_environment("torch").name == "torch@1.10.0"
        (site / "torch-1.2.0.dist-info").mkdir()
        assert find_environment("torch").kind == "own"
        assert find_environment("torch@1.9.0").name == "torch@1.9.0"

    def test_auto_takes_the_best_one_made_when_nothing_is_beside_deepstone(self, site: Path, kitchen: Kitchen) -> None:
        make(kitchen, "tensorflow@2.21.0")
        assert find_environment("auto").name == "tensorflow@2.21.0"
        make(kitchen, "jax@0.10.2")
        assert find_environment("auto").name == "jax@0.10.2"
        (site / "tensorflow-2.1.dist-info").mkdir()
        assert find_environment("auto").kind == "own"

    def test_a_version_with_and_without_its_build(self, site: Path, kitchen: Kitchen) -> None:
        made = make(kitchen, "torch@2.4.0", "2.4.0+cpu")
        for wanted in ("torch@2.4.0", "torch@2.4.0+cpu"):
            assert find_environment(wanted) == made
        with pytest.raises(MissingError, match=r"torch@2.4 is not installed, torch 2.4.0\+cpu is; use framework=torch"):
            find_environment("torch@2.4")

    def test_a_variant_must_be_named(self, site: Path, kitchen: Kitchen) -> None:
        variant = make(kitchen, "tensorflow@1.12.0-intel", "1.12.0", variables={"KMP_BLOCKTIME": "1"})
        assert find_environment("tensorflow@1.12.0-intel") == variant
        with pytest.raises(MissingError):
            find_environment("tensorflow@1.12.0")
        plain = make(kitchen, "tensorflow@1.12.0")
        assert find_environment("tensorflow@1.12.0") == plain
        assert find_environment("tensorflow") == plain

    def test_one_whose_interpreter_is_gone(self, site: Path, kitchen: Kitchen) -> None:
        make(kitchen, "torch@2.5.0", program=Path("/nowhere/python"))
        for wanted in ("torch", "torch@2.5.0"):
            with pytest.raises(MissingError, match=r"/nowhere/python is gone; deepstone env remove torch@2.5.0$"):
                find_environment(wanted)
        make(kitchen, "torch@2.4.0")
        assert find_environment("torch").name == "torch@2.4.0"
        assert list(installed()) == ["torch", "torch@2.5.0", "tensorflow", "jax"]

    def test_half_made_and_damaged_ones_are_not_used(self, site: Path, kitchen: Kitchen) -> None:
        (kitchen.root / "torch@3.0.0").mkdir(parents=True)
        make(kitchen, "torch@2.9.0")
        (kitchen.root / "torch@2.9.0" / "environment.json").write_text('{"format": 1')
        make(kitchen, "torch@2.4.0")
        assert find_environment("torch").name == "torch@2.4.0"
        with pytest.raises(MissingError, match=r"torch@3.0.0: half-made: .*; deepstone env add torch@3.0.0"):
            find_environment("torch@3.0.0")
        with pytest.raises(MissingError, match=r"torch@2.9.0: damaged: environment.json is not JSON"):
            find_environment("torch@2.9.0")


class TestMissing:
    def test_the_remedy_is_to_add_it(self, site: Path) -> None:
        with pytest.raises(MissingError) as error:
            find_environment("tensorflow")
        assert str(error.value) == "framework tensorflow is not installed; deepstone env add tensorflow"

    def test_a_version_that_has_a_recipe(self, site: Path, kitchen: Kitchen) -> None:
        kitchen.recipe("1.1.0")
        with pytest.raises(MissingError, match=r"torch@1.1.0 is not installed; deepstone env add torch@1.1.0$"):
            find_environment("torch@1.1.0")


def test_finding_imports_nothing_slow(kitchen: Kitchen) -> None:
    """It is part of the start of every run."""
    make(kitchen, "tensorflow@2.21.0")
    program = (
        "import sys\n"
        "from deepstone.environments.find import find_environment\n"
        "assert find_environment('tensorflow').name == 'tensorflow@2.21.0'\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert imported & {"importlib.metadata", "subprocess", "tomllib", "email"} == set()
