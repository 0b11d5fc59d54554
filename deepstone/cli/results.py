"""`deepstone results`: what the store holds; in and out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.options import Json, StorePath, examples, store_folder
from deepstone.cli.output import note, print_json, print_lines, print_table, write
from deepstone.cli.table import Column
from deepstone.errors import StoreError, UsageError

if TYPE_CHECKING:
    from deepstone.records.schema import Record
    from deepstone.store.rows import Listing, Row
    from deepstone.store.store import Store

app = typer.Typer(
    help="The runs in a store: list, show, export, import, delete, rebuild.",
    rich_markup_mode=None,
    epilog=examples(
        "deepstone results list model=resnet50 outcome=ok",
        "deepstone results show 3f2a",
        "deepstone results export --format csv -o runs.csv",
    ),
)

Filter = Annotated[
    list[str] | None,
    typer.Argument(
        help="Only runs with these values, as in model=resnet50 outcome=ok layout=nhwc.", metavar="NAME=VALUE"
    ),
]
RunId = Annotated[str, typer.Argument(help="A run's id, or enough of its beginning.", metavar="ID")]


class Format(StrEnum):
    csv = "csv"
    jsonl = "jsonl"


@app.command("list")
def list_runs(filters: Filter = None, store: StorePath = None, json: Json = False) -> None:
    """The runs in the store, oldest first."""
    listing = _listing(_open(store), filters or [])
    if json:
        print_json([_described(row) for row in listing.rows])
    else:
        _show(listing.rows)
    _warn(listing)


@app.command("show", short_help="One run: what was measured and how to repeat it.")
def show(run: RunId, store: StorePath = None, json: Json = False) -> None:
    """One run: what was measured, what it rests on, and the command that gives it again."""
    record = _open(store).get(run)
    if json:
        print_json(record)
        return
    import shlex

    from deepstone.cli.show import show_record

    show_record(record)
    print_lines([f"  command: {shlex.join(record['command'])}"])


@app.command("export", short_help="Runs as CSV or JSON to give away.")
def export(
    filters: Filter = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="One line per run, or whole records.", show_default="jsonl")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file instead of standard output.", metavar="FILE")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Keep host, user and paths, which are otherwise taken out.")
    ] = False,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Runs as text to give away: csv for spreadsheets, jsonl (or --json, a list) to import elsewhere."""
    from deepstone.store.export import export_csv, export_jsonl

    if json and format is not None:
        raise UsageError("--json and --format name two forms; give one of them")
    opened = _open(store)
    listing = _listing(opened, filters or [])
    records = _records(opened, listing)
    lines = (export_csv if format is Format.csv else export_jsonl)(records, redact=not private)
    _write(_as_list(lines) if json else lines, output)
    _warn(listing)


@app.command("import", short_help="Take in runs measured elsewhere.")
def import_runs(
    files: Annotated[list[Path], typer.Argument(help="Files that export wrote.", metavar="FILE")],
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Take in runs measured elsewhere. A file with anything wrong in it is refused whole."""
    from deepstone.store.importing import import_records
    from deepstone.store.store import Store

    opened = Store.open(store_folder(store))
    added = skipped = 0
    for file in files:
        imported = import_records(opened, file)
        added += imported.added
        skipped += imported.skipped
    if json:
        print_json({"added": added, "skipped": skipped})
    else:
        note(f"{added} runs added, {skipped} were there already")


@app.command("delete")
def delete(
    runs: Annotated[list[str], typer.Argument(metavar="ID")], store: StorePath = None, json: Json = False
) -> None:
    """Remove runs for good."""
    opened = _open(store)
    found = [opened.resolve(run) for run in runs]  # all of them before any is gone
    deleted = [opened.delete(run) for run in dict.fromkeys(found)]
    if json:
        print_json({"deleted": deleted})
    else:
        note(f"deleted {', '.join(deleted)}")


@app.command("rebuild", short_help="Verify every record and make the index anew.")
def rebuild(store: StorePath = None, json: Json = False) -> None:
    """Verify every record and make the index anew. Exits with 3 when a record is damaged."""
    listing = _open(store).rebuild()
    if json:
        damaged = [{"path": str(damage.path), "reason": damage.reason} for damage in listing.damaged]
        print_json({"runs": len(listing.rows), "damaged": damaged})
    else:
        note(f"{len(listing.rows)} runs verified and indexed")
    _warn(listing)
    if listing.damaged:
        raise typer.Exit(StoreError.exit_code)


def _open(store: Path | None) -> Store:
    from deepstone.store.store import Store

    return Store.open(store_folder(store), create=False)


def _listing(store: Store, words: list[str]) -> Listing:
    from deepstone.setups.axes import AXES
    from deepstone.store.rows import Filters

    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not NAME=VALUE, as in model=resnet50")
        given[name] = value
    columns = {"job", "model", "framework", "device", "phase", "outcome"}
    unknown = [name for name in given if name not in columns and name not in AXES]
    if unknown:
        from deepstone.errors import nearest

        raise UsageError(f"{unknown[0]}: no such column or axis; {nearest(unknown[0], columns | set(AXES))}")
    in_columns = {name: value for name, value in given.items() if name in columns}
    in_axes = {name: value for name, value in given.items() if name not in columns}
    return store.list(replace(Filters(axes=in_axes), **in_columns))


def _records(store: Store, listing: Listing) -> Iterator[Record]:
    for row in listing.rows:
        yield store.get(row.id)


def _as_list(lines: Iterator[str]) -> Iterator[str]:
    """A line per record to one JSON list, without holding them all."""
    before = "[\n"
    for line in lines:
        yield before + line.rstrip("\n")
        before = ",\n"
    yield "\n]\n" if before == ",\n" else "[]\n"


def _write(lines: Iterator[str], output: Path | None) -> None:
    if output is None:
        for line in lines:
            write(line)
        return
    try:
        with output.expanduser().open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write {output}: {reason}; give another file with -o") from error


def _described(row: Row) -> dict[str, object]:
    """A row as JSON; what the run has not is left out."""
    from json import loads

    known = {name: value for name, value in asdict(row).items() if value is not None}
    if row.samples_per_s is not None:  # a quantity elsewhere, here its median alone
        known["samples_per_s_median"] = known.pop("samples_per_s")
    return {**known, "requested": loads(row.requested)}


def _show(rows: tuple[Row, ...]) -> None:
    from deepstone.units import digits, seconds

    columns = [
        Column(heading="run"),
        Column(heading="started", rank=5),
        Column(heading="model"),
        Column(heading="framework", rank=4),
        Column(heading="device", rank=3),
        Column(heading="batch", right=True),
        Column(heading="phase", rank=2),
        Column(heading="images/s", right=True),
        Column(heading="step", right=True, rank=6),
        Column(heading="outcome"),
        Column(heading="doubts", right=True, rank=1),
    ]
    cells = [
        (
            row.id,
            row.started_at[:19].replace("T", " "),
            row.model,
            row.framework,
            row.device,
            str(row.batch),
            row.phase,
            "" if row.samples_per_s is None else digits(row.samples_per_s),
            "" if row.step_s_median is None else seconds(row.step_s_median),
            row.outcome,
            str(row.doubts or ""),
        )
        for row in rows
    ]
    print_table(columns, cells)


def _warn(listing: Listing) -> None:
    for damage in listing.damaged:
        note(f"deepstone: damaged record {damage.path}: {damage.reason}; `deepstone results delete` removes it")
