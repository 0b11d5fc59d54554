"""What tasks other than runs found (layers, convolutions, memory, ceilings): one checksummed file each, never changed.

A finding is named like a run: by its task, and by the attempt at it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from deepstone.durable import make_folder
from deepstone.errors import RefusedInputError, StoreError, UsageError
from deepstone.faults import reason
from deepstone.records.identity import JOB_PART, JOB_PATTERN, RUN_PATTERN, canonical_json, canonical_sha256, run_id
from deepstone.records.read import parse_json
from deepstone.records.schema import MAX_RECORD_BYTES, OUTCOMES
from deepstone.records.shape import shown
from deepstone.store import claims
from deepstone.store.faults import as_store_error, remedy
from deepstone.store.files import open_regular, publish
from deepstone.store.layout import Damage, Layout
from deepstone.store.rescue import FIRST_RESCUED_ATTEMPT, rescued_attempt, save_elsewhere

SCHEMA: Final = 1
KINDS: Final = ("layers", "conv", "memory", "peaks")
MAX_FILE_BYTES: Final = MAX_RECORD_BYTES + 1024
_TEXTS: Final = ("kind", "task", "started_at", "model", "outcome")

Finding = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The findings of one store. Holds no state but the place, as the store itself."""

    layout: Layout

    def add(self, draft: Mapping[str, Any]) -> Finding:
        """Gives it its id and keeps it. If the disk refuses it, it is saved elsewhere: StoreError says where."""
        if "id" in draft:
            raise RefusedInputError("id: is given by the store; leave it out")
        check_finding(_numbered(draft, 1))
        try:
            return self._add(draft)
        except OSError as error:
            raise self._rescued(draft, error) from error

    def _add(self, draft: Mapping[str, Any]) -> Finding:
        known = (attempt for attempt in self._attempts(str(draft["task"])) if attempt < FIRST_RESCUED_ATTEMPT)
        attempt = 1 + max(known, default=0)
        while True:
            finding = _numbered(draft, attempt)
            if self.insert(finding):
                return finding
            attempt += 1

    def _rescued(self, draft: Mapping[str, Any], error: OSError) -> StoreError:
        failed = f"cannot write to the store {self.layout.root}: {reason(error)}"
        finding = _numbered(draft, rescued_attempt())
        try:
            path = save_elsewhere(_encoded(finding), finding["id"], "finding")
        except StoreError as lost:
            return StoreError(f"{failed}; {lost}; {remedy(error)}")
        return StoreError(
            f"{failed}; the finding is saved in {path}: {remedy(error)}, then `deepstone results import {path}`"
        )

    def insert(self, finding: Finding) -> bool:
        """Keeps a checked finding under the id it has; False when that id is taken. OSError when the disk refuses."""
        data = _encoded(finding)
        make_folder(self.layout.tmp)
        make_folder(self.layout.findings)
        claim = claims.take(self.layout.claims, finding["id"])
        if claim is None:
            return False
        with claim:
            return publish(data, self.layout.finding_file(finding["id"]), tmp=self.layout.tmp)

    def ids(self) -> list[str]:
        """All of them, by name."""
        with as_store_error("read", self.layout.root):
            return sorted(self._names())

    def of_task(self, task: str) -> list[str]:
        """The ids of all findings of a task, by attempt."""
        with as_store_error("read", self.layout.root):
            return [run_id(task, attempt) for attempt in self._attempts(task)]

    def has(self, id: str) -> bool:
        return self.layout.finding_file(id).exists()

    def get(self, id: str) -> Finding:
        """StoreError when its file is damaged, UsageError when there is none."""
        if not RUN_PATTERN.fullmatch(id) or not self.has(id):
            raise UsageError(f"no finding {id[:80]!r} in the store {self.layout.root}")
        path = self.layout.finding_file(id)
        try:
            return _read(path, id)
        except RefusedInputError as error:
            raise StoreError(f"{path} is damaged ({error}); remove it, and measure it again") from error
        except OSError as error:
            raise StoreError(f"cannot read {path}: {reason(error)}; {remedy(error)}") from error

    def list(self, kind: str | None = None) -> list[Finding]:
        """Those that can be read, oldest first; `damaged` tells of the others."""
        found = [finding for _, finding in self._all() if isinstance(finding, dict)]
        return sorted(
            (finding for finding in found if kind in (None, finding["kind"])),
            key=lambda finding: (finding["started_at"], finding["id"]),
        )

    def damaged(self) -> tuple[Damage, ...]:
        """Reads and verifies every file."""
        return tuple(Damage(path=path, reason=found) for path, found in self._all() if isinstance(found, str))

    def _all(self) -> Iterator[tuple[Path, Finding | str]]:
        """Every file with its finding, or why it cannot be used."""
        for id in self.ids():
            path = self.layout.finding_file(id)
            try:
                yield path, _read(path, id)
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


def is_finding(content: object) -> bool:
    """Whether it sets out to be a finding, as stored or bare, and not a record."""
    return _is_wrapped(content) or (isinstance(content, dict) and "task" in content and "job" not in content)


def _is_wrapped(content: object) -> bool:
    return isinstance(content, dict) and set(cast(dict[str, object], content)) == {"finding", "sha256"}


def unwrap_finding(content: object) -> Finding:
    """The checked finding, with its checksum verified where it has one."""
    if not _is_wrapped(content):
        return check_finding(content)
    wrapped = cast(dict[str, object], content)
    finding = check_finding(wrapped["finding"])
    if wrapped["sha256"] != canonical_sha256(finding):
        raise RefusedInputError("does not match its checksum")
    return finding


def check_finding(content: object) -> Finding:
    """The finding, if it is one; RefusedInputError says what is wrong with it."""
    if not isinstance(content, dict):
        raise RefusedInputError("is not a finding")
    finding = cast(Finding, content)
    if finding.get("schema") != SCHEMA:
        raise RefusedInputError(f"schema: must be {SCHEMA}, not {shown(finding.get('schema'))}")
    for key in _TEXTS:
        if not isinstance(finding.get(key), str):
            raise RefusedInputError(f"{key}: must be text")
    if finding["kind"] not in KINDS:
        raise RefusedInputError(f"kind: must be one of {', '.join(KINDS)}, not {shown(finding['kind'])}")
    if finding["outcome"] not in OUTCOMES:
        raise RefusedInputError(f"outcome: must be one of {', '.join(OUTCOMES)}, not {shown(finding['outcome'])}")
    task, id = finding["task"], finding.get("id")
    if not JOB_PATTERN.fullmatch(task):
        raise RefusedInputError("task: must be 64 hexadecimal digits")
    if not isinstance(id, str) or not RUN_PATTERN.fullmatch(id) or not task.startswith(id[:JOB_PART]):
        raise RefusedInputError("id: must be that of an attempt at its task")
    command: object = finding.get("command")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in cast(list[object], command)):
        raise RefusedInputError("command: must be a list of texts")
    if not isinstance(finding.get("environment"), dict):
        raise RefusedInputError("environment: must be an object")
    return finding


def _numbered(draft: Mapping[str, Any], attempt: int) -> Finding:
    return {**draft, "id": run_id(str(draft.get("task")), attempt)}


def _encoded(finding: Finding) -> bytes:
    data = canonical_json(finding).encode("ascii")
    if len(data) > MAX_RECORD_BYTES:
        raise RefusedInputError(f"finding: is larger than {MAX_RECORD_BYTES // 2**20} MiB")
    return b'{"finding":%b,"sha256":"%b"}\n' % (data, hashlib.sha256(data).hexdigest().encode("ascii"))


def _read(path: Path, id: str) -> Finding:
    with open_regular(path) as file:
        content = parse_json(file.read(MAX_FILE_BYTES + 1), limit_bytes=MAX_FILE_BYTES)
    if not _is_wrapped(content):
        raise RefusedInputError("is not a finding with its checksum")
    finding = unwrap_finding(content)
    if finding["id"] != id:
        raise RefusedInputError(f"holds the finding {finding['id']}")
    return finding
