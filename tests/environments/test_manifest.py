"""environment.json: written last, read back as it was, and never trusted when it is damaged."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.environments.environment import Environment
from deepstone.environments.manifest import Damaged, Manifest, read_manifest, survey, write_manifest
from deepstone.environments.places import Place, environments_root

NAME = "tensorflow@1.12.0-intel"
ENVIRONMENT = Environment(
    framework="tensorflow",
    version="1.12.0",
    program=Path("/somewhere/bin/python"),
    lock={"python": "3.6.15", "numpy": "1.16.6"},
    name=NAME,
    kind="venv",
    variables={"KMP_BLOCKTIME": "1"},
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(root=tmp_path / "root", name=NAME)
    place.folder.mkdir(parents=True)
    return place


def written(place: Place) -> Manifest:
    return write_manifest(place, ENVIRONMENT, recipe_sha="ab", size_bytes=7)


def test_it_is_read_back_as_it_was(place: Place) -> None:
    manifest = written(place)
    assert manifest.environment == ENVIRONMENT
    assert read_manifest(place) == manifest
    assert [path.name for path in place.folder.iterdir()] == ["environment.json"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 2}, "format: must be one of 1, not 2"),
        ({"name": "torch@1"}, "that of 'torch@1'"),
        ({"lock": {"numpy": "1"}}, "lacks the interpreter, or its version"),
        ({"language": "lua"}, "lacks the interpreter, or its version"),
        ({"lock": {"python": 3}}, "lock.*: must be text, not "),
        ({"kind": "own"}, "kind: must be one of venv, chroot, adopted, not 'own'"),
        ({"python": None}, "python: must be text, not null"),
        ({"size_bytes": "7"}, "size_bytes: must be a whole number, not '7'"),
        ({"size_byte": 7}, r"size_byte: is not a known key; did you mean size_bytes\?"),
    ],
)
def test_one_that_says_something_else_is_damaged(place: Place, changes: dict[str, Any], says: str) -> None:
    written(place)
    content = json.loads(place.manifest.read_text())
    place.manifest.write_text(json.dumps(content | changes))
    with pytest.raises(Damaged, match=says):
        read_manifest(place)


@given(data=st.binary(max_size=60) | st.sampled_from([b"[]", b"null", b"[" * 100_000, b'{"format": 1}']))
def test_whatever_is_in_the_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    place = Place(root=tmp_path_factory.getbasetemp() / "any", name=NAME)
    place.folder.mkdir(parents=True, exist_ok=True)
    place.manifest.write_bytes(data)
    with pytest.raises(Damaged):
        read_manifest(place)


class TestSurvey:
    def test_a_folder_that_was_never_made(self, tmp_path: Path) -> None:
        assert survey(tmp_path / "nowhere").made == ()

    def test_what_is_half_made_and_what_is_being_made(self, place: Place) -> None:
        place.make_folders_around()
        (entry,) = survey(place.root).unusable
        assert (entry.name, entry.being_built) == (NAME, False)
        assert "half-made" in entry.reason
        with place.lock.open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (entry,) = survey(place.root).unusable
            assert entry.being_built
        written(place)
        assert [manifest.environment.name for manifest in survey(place.root).made] == [NAME]
        assert survey(place.root, "torch").made == ()


class TestRoot:
    def test_a_folder_of_ones_own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DEEPSTONE_ENVIRONMENTS", "here")
        assert environments_root() == tmp_path / "here"

    def test_the_data_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("DEEPSTONE_ENVIRONMENTS", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert environments_root() == tmp_path / "deepstone" / "environments"
        monkeypatch.delenv("XDG_DATA_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert environments_root() == tmp_path / ".local" / "share" / "deepstone" / "environments"
