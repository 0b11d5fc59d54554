"""`deepstone results gate`: fails where runs are slower than a baseline, for the tests of other projects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deepstone.cli.options import Json, StorePath, examples, not_nan
from deepstone.cli.output import note, print_json, print_lines, print_table
from deepstone.cli.stored import Filter, filters_in, open_store, records_in
from deepstone.cli.table import Column
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.analysis.gate import Gate
    from deepstone.records.schema import Record
    from deepstone.store.rows import Filters

EXAMPLES = examples(
    "deepstone results gate --baseline main.jsonl",
    "deepstone results gate model=resnet50 --baseline ../main/store --tolerance 3 --memory",
    "deepstone results gate --baseline main.jsonl --markdown comment.md",
    before="Exits with 0 where nothing became worse, 5 on a regression, 1 where nothing could be compared.",
)

NOTHING_COMPARED: Final = 1
REGRESSED: Final = 5


def gate(
    baseline: Annotated[
        Path, typer.Option("--baseline", help="A store, or a file that export wrote.", metavar="DIR|FILE")
    ],
    filters: Filter = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            help="A step may take so many percent longer.",
            metavar="PERCENT",
            min=0,
            max=1000,
            callback=not_nan,
        ),
    ] = 5.0,
    memory: Annotated[bool, typer.Option("--memory", help="Peaks of memory must not grow by more either.")] = False,
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit with 1 also where a job of the baseline was not compared.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write the table for a comment, too.", metavar="FILE")
    ] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Compare the store with a baseline, job by job. A regression is a ratio of speeds whose whole interval lies beyond
    the tolerance, or a run that fails and did not.
    """
    from deepstone.analysis.gate import judge

    wanted = filters_in(filters or [])
    before = _baseline(baseline, wanted)
    now = records_in(open_store(store), wanted)
    found = judge(before, now, tolerance=tolerance / 100, memory=memory)
    if markdown is not None:
        _write_markdown(found, markdown)
    if json:
        print_json(found.to_json())
    else:
        _show(found)
    code = _exit_code(found, require_all=require_all)
    if code == NOTHING_COMPARED:
        note(f"deepstone: {_why_nothing(found, before, now)}")
    if code:
        raise typer.Exit(code)


def _exit_code(found: Gate, *, require_all: bool) -> int:
    """Nothing to compare must never look like nothing wrong."""
    from deepstone.analysis.gate import NOT_COMPARABLE, VANISHED

    if found.regressions:
        return REGRESSED
    missing = require_all and found.of(NOT_COMPARABLE, VANISHED)
    return NOTHING_COMPARED if missing or not found.compared else 0


def _why_nothing(found: Gate, before: Sequence[Record], now: Sequence[Record]) -> str:
    if not before or not now:
        empty = "the baseline" if not before else "the store"
        return f"{empty} has no runs that match, so nothing was compared; measure first, or give other filters"
    if not found.compared:
        return "no job could be compared with the baseline; both must be measured on the same machine in the same setup"
    return "not every job of the baseline was compared, as --require-all asks"


def _baseline(path: Path, wanted: Filters) -> list[Record]:
    from deepstone.store.recordfile import read_records
    from deepstone.store.rows import matches

    path = path.expanduser()
    if path.is_dir():
        return records_in(open_store(path), wanted)
    if not path.exists():
        raise UsageError(f"--baseline {path}: no such store or file")
    return [record for record in read_records(path) if matches(record, wanted)]


def _show(found: Gate) -> None:
    from deepstone.cli.gate_table import HEADINGS, remarks, rows, summary

    columns = [
        Column(heading=heading, right=number in (2, 3), rank=(0, 0, 3, 4, 0, 1, 2)[number], wraps=wraps)
        for number, (heading, wraps) in enumerate(zip(HEADINGS, (0, 24, 0, 0, 0, 24, 16), strict=True))
    ]
    if found.jobs:
        print_table(columns, rows(found.jobs))
        print_lines([""])
    print_lines([*remarks(found), summary(found)])


def _write_markdown(found: Gate, path: Path) -> None:
    from deepstone.cli.gate_table import as_markdown
    from deepstone.durable import write_whole
    from deepstone.faults import reason

    try:
        write_whole(as_markdown(found).encode(), path.expanduser())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}; give another file with --markdown") from error
