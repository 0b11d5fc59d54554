"""What became of each study: its tasks and the runs that came of them, one file per study, written whole each time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from deepstone.durable import make_folder
from deepstone.errors import RefusedInputError
from deepstone.results.plain import parse_json
from deepstone.store.files import open_regular, replace_file
from deepstone.store.layout import Layout, as_store_error

SCHEMA: Final = 1
MAX_BYTES: Final = 64 * 2**20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # the wall between a name and the file system

StudyState = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyStates:
    """Runs and findings are the truth. A state that is damaged is as good as none: the study makes it again."""

    layout: Layout

    def write(self, state: Mapping[str, Any]) -> None:
        """StoreError when the disk refuses it."""
        data = json.dumps(state, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        with as_store_error("write to", self.layout.root):
            make_folder(self.layout.tmp)
            make_folder(self.layout.studies)
            replace_file(data, self._file(str(state["name"])), tmp=self.layout.tmp)

    def get(self, name: str) -> StudyState | None:
        """None when there is none that can be read."""
        return _read(self._file(name)) if _NAME.fullmatch(name) else None

    def list(self) -> list[StudyState]:
        """Those that can be read, oldest first."""
        with as_store_error("read", self.layout.root):
            try:
                paths = [path for path in self.layout.studies.iterdir() if path.suffix == ".json"]
            except FileNotFoundError:
                return []
        states = [state for path in paths if (state := _read(path)) is not None]
        return sorted(states, key=lambda state: (state["started_at"], state["name"]))

    def _file(self, name: str) -> Path:
        assert _NAME.fullmatch(name), name
        return self.layout.studies / f"{name}.json"


def _read(path: Path) -> StudyState | None:
    try:
        with open_regular(path) as file:
            content = parse_json(file.read(MAX_BYTES + 1), limit_bytes=MAX_BYTES)
    except (OSError, RefusedInputError):
        return None
    return _checked(content)


def _checked(content: object) -> StudyState | None:
    if not isinstance(content, dict):
        return None
    state = cast(StudyState, content)
    if state.get("schema") != SCHEMA or state.get("kind") != "study" or not isinstance(state.get("tasks"), list):
        return None
    texts = ("name", "title", "started_at", "resume")
    tasks = cast(list[object], state["tasks"])
    good = all(isinstance(state.get(key), str) for key in texts) and all(isinstance(task, dict) for task in tasks)
    return state if good else None
