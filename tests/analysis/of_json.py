"""The analysis of records, findings and studies as JSON: tests make them, and change them key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from factory import typed_records

from deepstone.absent import Absent
from deepstone.analysis import cases as analysed
from deepstone.analysis import charts as charted
from deepstone.analysis import gate as gated
from deepstone.analysis import statements as stated
from deepstone.results.codec import as_bare_finding, convert
from deepstone.results.findings import Finding
from deepstone.results.searched import NO_SEARCHES, Searched
from deepstone.results.study import StudyState


def cases(records: Iterable[Any], searched: Searched = NO_SEARCHES) -> list[analysed.Case]:
    return analysed.cases(typed_records(records), searched)


def judge(baseline: Iterable[Any], now: Iterable[Any], **options: Any) -> gated.Gate:
    return gated.judge(typed_records(baseline), typed_records(now), **options)


def chart(figure: Mapping[str, Any], records: Iterable[Any], base: Any = None) -> dict[str, Any] | Absent:
    found = charted.chart(figure, typed_records(records), base)
    return found if isinstance(found, Absent) else found.to_json()


def charts(figures: Iterable[Mapping[str, Any]], records: Iterable[Any], base: Any = None) -> list[dict[str, Any]]:
    return [found.to_json() for found in charted.charts(figures, typed_records(records), base)]


def default_charts(records: Iterable[Any], base: Any = None) -> list[dict[str, Any]]:
    return [found.to_json() for found in charted.default_charts(typed_records(records), base)]


def statements(
    records: Iterable[Any],
    findings: Sequence[Any] = (),
    *,
    state: Any = None,
    sameness: Any = None,
    searched: Searched = NO_SEARCHES,
) -> list[dict[str, Any]]:
    said = stated.statements(
        typed_records(records),
        [each if isinstance(each, Finding) else finding(each) for each in findings],
        study=None if state is None else study(state),
        sameness=sameness,
        searched=searched,
    )
    return [statement.to_json() for statement in said]


def finding(content: Mapping[str, Any]) -> Finding:
    """Under any name: a test may call it as it likes."""
    known = as_bare_finding({key: value for key, value in content.items() if key != "id"})
    return msgspec.structs.replace(known, id=content.get("id"))


def study(state: Mapping[str, Any]) -> StudyState:
    """With what the test leaves out."""
    return convert({"name": "test", "tasks": [], **state}, StudyState)
