"""Files that a report also takes in: records, findings, charts, papers and states of studies, known by their kind."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from deepstone.errors import RefusedInputError, UsageError
from deepstone.faults import reason
from deepstone.records.schema import Record
from deepstone.records.shape import shown
from deepstone.report.book import FINDING_KINDS
from deepstone.report.chart_data import read_chart
from deepstone.report.figure import NothingToDrawError
from deepstone.report.paper_claims import read_paper
from deepstone.report.reading import Node
from deepstone.report.result_file import read_result
from deepstone.report.unfinished import unfinished_in
from deepstone.store.recordfile import read_records

_RECORDS_END: Final = ".jsonl"
_KINDS: Final = (*FINDING_KINDS, "chart", "paper", "study")


@dataclass(kw_only=True, slots=True)
class Gathered:
    """What was found in files. `skipped` names those of a folder that are something else."""

    records: list[Record] = field(default_factory=list[Record])
    findings: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    charts: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    papers: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    studies: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    skipped: list[str] = field(default_factory=list[str])

    def take(self, path: Path) -> None:
        """A file, or every .jsonl and .json of a folder; UsageError with the file's name for one that will not do."""
        if not path.is_dir():
            self._take_file(path)
            return
        files = [file for file in _files_of(path) if file.suffix in (_RECORDS_END, ".json")]
        if not files:
            raise UsageError(f"{path}: holds no .jsonl or .json file; give a folder of records and findings")
        for file in files:
            try:
                self._take_file(file)
            except _OtherKindError as error:
                self.skipped.append(str(error))

    def _take_file(self, path: Path) -> None:
        if path.suffix == _RECORDS_END:
            self.records += read_records(path)
            return
        content = read_result(path)
        if "job" in content or "record" in content:
            self.records += read_records(path)
            return
        self._take_result(path, cast(Mapping[str, Any], content))

    def _take_result(self, path: Path, content: Mapping[str, Any]) -> None:
        kind = content.get("kind")
        if kind not in _KINDS:
            told = f"is of kind {shown(kind)}" if "kind" in content else "does not say of which kind it is"
            raise _OtherKindError(f"{path}: {told}; a report takes {', '.join(_KINDS)} and records of runs")
        if content.get("schema", 1) != 1:
            raise RefusedInputError(f"{path}: is of schema {shown(content['schema'])}; this version reads schema 1")
        try:
            self._keep(str(kind), content)
        except UsageError as error:
            raise RefusedInputError(f"{path}: {error}") from error

    def _keep(self, kind: str, content: Mapping[str, Any]) -> None:
        """What is malformed is refused here, where the file can be named."""
        node = Node(content)
        if kind == "chart":
            with suppress(NothingToDrawError):  # well-formed, and told in the report
                read_chart(node)
            self.charts.append(content)
        elif kind == "paper":
            read_paper(node)
            self.papers.append(content)
        elif kind == "study":
            unfinished_in(node)
            self.studies.append(content)
        else:
            self.findings.append(content)


class _OtherKindError(RefusedInputError):
    """A file of JSON that is nothing for a report: refused by name, passed over in a folder."""


def _files_of(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {reason(error)}; give another folder") from error
