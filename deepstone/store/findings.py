"""Stored findings (layers, convolutions, memory, ceilings): one checksummed file each, never changed.

A finding is named like a run: by its task and the attempt.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from deepstone.errors import RefusedInputError, StoreError, UsageError, reason
from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.identity import JOB_PART, RUN_PATTERN, run_id
from deepstone.store.layout import Damage, Layout, as_store_error, remedy
from deepstone.store.rescue import Numbering, insert
from deepstone.store.sealed import read_finding


class Findings(Struct, frozen=True, kw_only=True):
    """The findings of one store. Like the store, it has no state except the folder."""

    layout: Layout

    def add(self, draft: Finding) -> Finding:
        """Give the finding its id and store it, as `Numbering` describes."""
        task = str(draft.task)
        return Numbering(
            layout=self.layout,
            job=task,
            numbered=lambda attempt: replace(draft, id=run_id(task, attempt)),
            attempts=lambda: self._attempts(task),
            insert=self.insert,
            check=codec.as_finding,
        ).add(draft)

    def insert(self, finding: Finding) -> bool:
        """Store a checked finding under its id; return False if that id is taken. Raises OSError if writing fails."""
        return insert(self.layout, finding, self.layout.finding_file(str(finding.id)))

    def ids(self) -> list[str]:
        """Return all ids, sorted."""
        with as_store_error("read", self.layout.root):
            return sorted(self._names())

    def of_task(self, task: str) -> list[str]:
        """Return the ids of all findings of a task, by attempt."""
        with as_store_error("read", self.layout.root):
            return [run_id(task, attempt) for attempt in self._attempts(task)]

    def has(self, id: str) -> bool:
        return self.layout.finding_file(id).exists()

    def get(self, id: str) -> Finding:
        """Raises StoreError if its file is damaged, UsageError if there is none."""
        if not RUN_PATTERN.fullmatch(id) or not self.has(id):
            raise UsageError(f"no finding {id[:80]!r} in the store {self.layout.root}")
        path = self.layout.finding_file(id)
        try:
            return read_finding(path, id)
        except RefusedInputError as error:
            raise StoreError(f"{path} is damaged ({error}); remove it, and measure it again") from error
        except OSError as error:
            raise StoreError(f"cannot read {path}: {reason(error)}; {remedy(error)}") from error

    def list(self, kind: str | None = None, *, damaged: builtins.list[Damage] | None = None) -> builtins.list[Finding]:
        """Return the readable findings, oldest first; the others go to the list `damaged` if it is given."""
        read: builtins.list[Finding] = []
        for path, found in self._all():
            if isinstance(found, Finding):
                read.append(found)
            elif damaged is not None:
                damaged.append(Damage(path=path, reason=found))
        return sorted(
            (finding for finding in read if kind in (None, finding.kind)),
            key=lambda finding: (finding.started_at, finding.id),
        )

    def damaged(self) -> tuple[Damage, ...]:
        """Read and verify every file."""
        return tuple(Damage(path=path, reason=found) for path, found in self._all() if isinstance(found, str))

    def _all(self) -> Iterator[tuple[Path, Finding | str]]:
        """Yield every file with its finding, or with the reason why it cannot be used."""
        for id in self.ids():
            path = self.layout.finding_file(id)
            try:
                yield path, read_finding(path, id)
            except FileNotFoundError:  # deleted since the folder was listed
                continue
            except RefusedInputError as error:
                yield path, str(error)
            except OSError as error:
                yield path, f"cannot be read: {reason(error)}"

    def _attempts(self, task: str) -> list[int]:
        start = f"{task[:JOB_PART]}-"
        return sorted(int(name.removeprefix(start)) for name in self._names() if name.startswith(start))

    def _names(self) -> list[str]:
        try:
            names = [entry.name.removesuffix(".json") for entry in self.layout.findings.iterdir()]
        except FileNotFoundError:
            return []
        return [name for name in names if RUN_PATTERN.fullmatch(name)]
