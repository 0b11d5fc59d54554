"""Libraries under the names that an old framework asks for, and a recipe's own paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kitchen import toml

from deepstone.environments.places import Place
from deepstone.environments.recipe import Recipe, parse_recipe
from deepstone.environments.venv import link_libraries, require_libraries
from deepstone.errors import MissingError, UsageError

MPI = {"name": "libmpi.so.12", "to": "libmpi-of-this-test.so.40", "remedy": "on Debian: apt install libopenmpi3"}


def recipe(**changes: Any) -> Recipe:
    fields: dict[str, Any] = {
        "name": "cntk@2.7",
        "framework": "cntk",
        "version": "2.7",
        "kind": "venv",
        "python": ["3.6"],
        "steps": [{"packages": ["cntk==2.7"]}],
        "size_bytes": 1,
        "minutes": 1,
        "year": 2019,
    } | changes
    return parse_recipe(toml(fields).encode(), Path("my.toml"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(root=tmp_path / "environments", name="cntk@2.7")
    place.venv.mkdir(parents=True)
    (place.venv / "pyvenv.cfg").write_text("home = /opt/python3.6/bin\nversion = 3.6.15\n")
    return place


def test_a_library_that_is_not_there_is_named_with_its_remedy() -> None:
    with pytest.raises(MissingError, match=r"cntk@2\.7: it needs libmpi-of-this-test\.so\.40.*apt install libopenmpi3"):
        require_libraries(recipe(links=[MPI]))


def test_links_lead_to_what_is_there(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "mpi"
    there.mkdir()
    (there / "libmpi-of-this-test.so.40.30").touch()
    (there / MPI["to"]).symlink_to("libmpi-of-this-test.so.40.30")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{there}")
    require_libraries(recipe(links=[MPI]))
    variables = link_libraries(recipe(links=[MPI]), place)
    assert (place.lib / "libmpi.so.12").resolve() == there / "libmpi-of-this-test.so.40.30"
    assert variables["LD_LIBRARY_PATH"] == f"{place.lib}:{there}:/opt/python3.6/lib"
    # What really stands behind a name is told, and so is part of every record.
    assert variables["DEEPSTONE_LINKS"] == f"libmpi.so.12={there / 'libmpi-of-this-test.so.40.30'}"


def test_a_variable_can_name_the_folder_that_is_made(place: Place) -> None:
    variables = link_libraries(recipe(variables={"THEANO_FLAGS": "base_compiledir={environment}/compiled"}), place)
    assert variables == {"THEANO_FLAGS": f"base_compiledir={place.folder}/compiled"}
    assert not place.lib.exists()


@pytest.mark.parametrize("name", ["../libmpi.so", "libmpi.so/..", "mpi", "lib.so\n"])
def test_a_link_cannot_lead_out_of_its_folder(name: str) -> None:
    with pytest.raises(UsageError, match="links 1: name must be the name of a library"):
        recipe(links=[{**MPI, "name": name}])


def test_links_decide_what_comes_out() -> None:
    assert recipe().sha != recipe(links=[MPI]).sha
    assert recipe(links=[MPI]).sha == recipe(links=[{**MPI, "remedy": "ask"}]).sha
