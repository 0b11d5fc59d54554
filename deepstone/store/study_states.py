"""The state of each study: its tasks and the runs that came of them, one file per study, written whole each time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepstone.durable import make_folder
from deepstone.errors import RefusedInputError
from deepstone.results.codec import convert
from deepstone.results.plain import is_object, parse_json
from deepstone.results.study import StudyState
from deepstone.store.files import open_regular, replace_file
from deepstone.store.layout import Layout, as_store_error

MAX_BYTES: Final = 64 * 2**20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # the wall between a name and the file system
_ALWAYS_THERE: Final = frozenset({"schema", "kind", "title", "started_at", "resume"})


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyStates:
    """Runs and findings are the truth. A state that is damaged is as good as none: the study makes it again."""

    layout: Layout

    def write(self, state: StudyState) -> None:
        """StoreError when the disk refuses it."""
        data = json.dumps(state.to_json(), ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        with as_store_error("write to", self.layout.root):
            make_folder(self.layout.tmp)
            make_folder(self.layout.studies)
            replace_file(data, self._file(state.name), tmp=self.layout.tmp)

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
        return sorted(states, key=lambda state: (state.started_at, state.name))

    def _file(self, name: str) -> Path:
        assert _NAME.fullmatch(name), name
        return self.layout.studies / f"{name}.json"


def _read(path: Path) -> StudyState | None:
    try:
        with open_regular(path) as file:
            content = parse_json(file.read(MAX_BYTES + 1), limit_bytes=MAX_BYTES)
        return convert(content, StudyState) if is_object(content) and content.keys() >= _ALWAYS_THERE else None
    except (OSError, RefusedInputError):
        return None
