"""A report of a search's launches: they are no rounds, except its finals."""

from __future__ import annotations

from pathlib import Path

from deepstone.analysis.cases import cases
from deepstone.report.sources import Gathered, report_sources
from deepstone.results.searched import Searched
from deepstone.store.importing import import_records, read_searched_records
from deepstone.store.rows import Filters
from deepstone.store.store import Store

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


def test_files_whose_runs_are_named_alike_keep_apart(tmp_path: Path):
    """As of two equal machines: the second search names its own runs, and none is lost."""
    text = SEARCH.read_text()
    other, moved = tmp_path / "other.jsonl", text.replace('"started_at":"2026-', '"started_at":"2027-')
    assert moved != text
    other.write_text(moved)
    gathered = Gathered.from_paths([SEARCH, other, SEARCH])
    first, second, again = gathered.searches
    runs = {record.id: record for record in gathered.records}
    assert len(runs) == 2 * len(read_searched_records(SEARCH)[0])
    assert again == first
    for one, another in zip(first.looks, second.looks, strict=True):
        assert one.run is not None
        assert another.run is not None
        assert runs[one.run].started_at[4:] == runs[another.run].started_at[4:]
        assert runs[one.run].started_at < "2027" <= runs[another.run].started_at


def test_a_file_beside_a_store_keeps_its_runs(tmp_path: Path):
    """A copy of a stored run counts once; another run of its name is another one."""
    other = tmp_path / "other.jsonl"
    other.write_text(SEARCH.read_text().replace('"started_at":"2026-', '"started_at":"2027-'))
    stored = Store.open(tmp_path / "store")
    import_records(stored, SEARCH)
    count = len(stored.list().rows)
    for paths, expected in (([SEARCH], count), ([other], 2 * count), ([SEARCH, other], 2 * count)):
        gathered = Gathered.from_paths(paths, beside=stored)
        assert len(report_sources(stored, Filters(), None, gathered, []).records) == expected
