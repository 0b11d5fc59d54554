"""Collects what verdicts rest on: the runs and findings of a store, and of files measured elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from deepstone.papers.elsewhere import Named, read_elsewhere
from deepstone.papers.evidence import Evidence, evidence_of
from deepstone.papers.paper import Paper
from deepstone.records.schema import Record
from deepstone.store.layout import Damage, Layout
from deepstone.store.store import Store


def gather(papers: Sequence[Paper], store: Path, also: Sequence[Path], damaged: list[Damage]) -> Evidence:
    """A store that is not there holds nothing. Where a run is in the store and in a file, it counts once.

    Files of the store that cannot be read go to `damaged`, and the others count.
    """
    records: dict[str, Record] = {}
    findings: dict[str, Named] = {}
    if Layout(root=store).format.exists():
        opened = Store.open(store, create=False)
        records |= {record["id"]: record for record in _records(opened, _models(papers), damaged)}
        damaged += opened.findings.damaged()
        findings |= {finding["id"]: (str(finding["id"]), finding) for finding in opened.findings.list()}
    for path in also:
        more, found = read_elsewhere(path)
        for record in more:
            records.setdefault(record["id"], record)
        for id, finding in found:
            findings.setdefault(id if "id" in finding else f"{path}/{id}", (id, finding))
    return evidence_of(list(records.values()), findings.values())


def _records(store: Store, models: frozenset[str], damaged: list[Damage]) -> list[Record]:
    """Only runs of networks that a paper asks for are read: a store may hold thousands of others."""
    listing = store.list()
    damaged += listing.damaged
    return list(store.records([row for row in listing.rows if row.model in models], damaged=damaged))


def _models(papers: Sequence[Paper]) -> frozenset[str]:
    named: set[str] = set()
    for paper in papers:
        parameters: list[Mapping[str, Any]] = [use.parameters for claim in paper.claims for use in claim.rules]
        parameters += [figure.parameters for figure in paper.figures]
        for each in parameters:
            named |= {str(each["model"])} if "model" in each else set()
            named |= set(cast(list[str], each.get("models", [])))
    return frozenset(named)
