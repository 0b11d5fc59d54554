"""Frameworks are found however they were installed, without being imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deepstone.environments import installed
from deepstone.environments.installed import find_environment
from deepstone.errors import MissingError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that sees this folder alone."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def test_pip_and_other_installers(site: Path) -> None:
    (site / "torch-2.13.0+cpu.dist-info").mkdir()
    assert find_environment("torch").version == "2.13.0+cpu"
    assert find_environment("torch@2.13.0").version == "2.13.0+cpu"


def test_an_installer_that_leaves_only_an_egg(site: Path) -> None:
    egg = site / "torch-2.9.1.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    assert find_environment("torch").version == "2.9.1"


def test_a_folder_that_is_no_package_does_not_count(site: Path) -> None:
    (site / "torch").mkdir()
    assert installed.installed() == {"torch": None}
    with pytest.raises(MissingError, match="pip install"):
        find_environment("auto")
