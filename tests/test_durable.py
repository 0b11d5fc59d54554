"""What is synced before a file counts as written, so that a power cut leaves it whole: its content while it has no name
yet, and then the folder that holds the name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from factory import typed_draft
from graph_examples import branching

from deepstone.durable import make_folder, write_whole
from deepstone.graph.weights import cached_weights
from deepstone.store.store import Store


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was synced, under the name that it had then."""
    found: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda file: found.append(Path(f"/proc/self/fd/{file}").readlink()))
    return found


def write(folder: Path) -> Path:
    write_whole(b"content", folder / "file")
    return folder / "file"


def store_run(folder: Path) -> Path:
    Store.open(folder).add(typed_draft())
    (file,) = folder.glob("runs/*/*.json")
    return file


@pytest.mark.parametrize("make", [write, store_run])
def test_content_then_name(synced: list[Path], tmp_path: Path, make: Callable[[Path], Path]):
    file = make(tmp_path)
    temporary = next(path for path in synced if path.suffix == ".tmp")
    assert not temporary.exists()
    assert file.parent in synced[synced.index(temporary) :]


def test_weights_are_whole_before_they_have_a_name(synced: list[Path], tmp_path: Path):
    """They are read by checksum, and made again where they are missing."""
    file = cached_weights(branching(), 0, tmp_path)
    (temporary,) = synced
    assert temporary != file
    assert not temporary.exists()


def test_a_new_folder_is_known_to_its_parent(synced: list[Path], tmp_path: Path):
    make_folder(tmp_path / "new")
    assert synced == [tmp_path]
