"""A report of a search's launches: they are no rounds, except its finals."""

from __future__ import annotations

from pathlib import Path

from deepstone.analysis.cases import cases
from deepstone.report.sources import Gathered, report_sources
from deepstone.results.searched import Searched
from deepstone.store.importing import read_searched_records
from deepstone.store.rows import Filters

SEARCH = Path(__file__).resolve().parents[2] / "results" / "two-cores" / "tune-alexnet-owt.jsonl"


def test_launches_of_a_published_search_are_told_as_what_they_are():
    sources = report_sources(None, Filters(), None, Gathered.from_paths([SEARCH]), [])
    _, searches = read_searched_records(SEARCH)
    looks = {look.run for search in searches for look in search.looks if look.kind != "final"}
    assert sources.statements
    for said in sources.statements:
        if "in random order" in said.how or said.advice:
            assert not looks & set(said.runs), said


def test_its_finals_are_in_the_rounds_that_it_says():
    records, searches = read_searched_records(SEARCH)
    (search,) = searches
    found = {frozenset(case.runs): case for case in cases(records, Searched.of(searches))}
    for final in search.finals:
        (case,) = [case for runs, case in found.items() if runs >= set(final.runs)]
        assert [round.number for round in case.rounds if round.search] == [1, 2, 3, 4]
