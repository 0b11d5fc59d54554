"""`deepstone results export`: runs in formats that other programs read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.declare import examples, file, flag
from deepstone.cli.options import Filter, Json, StorePath
from deepstone.cli.output import write
from deepstone.cli.stores import filters_in, open_store, report_skipped
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.results.record import Record
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store

EXAMPLES = examples(
    "deepstone results export -o runs.jsonl",
    "deepstone results export model=resnet50 --format parquet -o runs.parquet",
    "deepstone results export --format prometheus -o /var/lib/node_exporter/deepstone.prom",
)


class Format(StrEnum):
    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"
    mllog = "mllog"
    prometheus = "prometheus"


def export(
    filters: Filter = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="A table, whole records, or lines of a log.",
            metavar=f"[{'|'.join(Format)}]",
            show_default="jsonl",
        ),
    ] = None,
    output: Annotated[Path | None, file("-o", "--output", help="A file instead of standard output.")] = None,
    private: Annotated[bool, flag("--private", "Keep host, user and paths, which are otherwise taken out.")] = False,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Runs to give away: jsonl (or --json, a list) to import elsewhere, csv for spreadsheets, parquet for data frames,
    mllog for MLPerf's tools, prometheus for its textfile collector. Exits with 3 when it skips a damaged record.
    """
    if json and format is not None:
        raise UsageError("--json and --format name two forms; give one of them")
    opened = open_store(store)
    wanted = filters_in(filters or [])
    listing = opened.list(wanted)
    damaged = list(listing.damaged)
    records = opened.records(listing.rows, damaged=damaged)
    if format is Format.parquet:
        _write_parquet(records, output, redact=not private)
    else:
        lines = _lines(format or Format.jsonl, records, redact=not private)
        if format in (None, Format.jsonl):  # only these can be imported again; the other formats are tables of runs
            lines = chain(lines, _findings(opened, wanted, damaged, redact=not private))
        _write(_as_list(lines) if json else lines, output, at_once=format is Format.prometheus)
    report_skipped(damaged)


def _lines(form: Format, records: Iterable[Record], *, redact: bool) -> Iterator[str]:
    from deepstone.store.export.jsonl import export_jsonl
    from deepstone.store.export.mllog import export_mllog
    from deepstone.store.export.prometheus import export_prometheus
    from deepstone.store.export.tables import export_csv

    writers = {
        Format.csv: export_csv,
        Format.jsonl: export_jsonl,
        Format.mllog: export_mllog,
        Format.prometheus: export_prometheus,
    }
    return writers[form](records, redact=redact)


def _findings(store: Store, wanted: Filters, damaged: list[Damage], *, redact: bool) -> Iterator[str]:
    from deepstone.store.export.jsonl import export_findings, matching

    return export_findings(matching(store.findings.list(damaged=damaged), wanted), redact=redact)


def _write_parquet(records: Iterable[Record], output: Path | None, *, redact: bool) -> None:
    from deepstone.store.export.tables import export_parquet

    if output is None:
        raise UsageError("a parquet file is no text to print; name a file with -o FILE")
    _write_whole(export_parquet(records, redact=redact), output)


def _as_list(lines: Iterator[str]) -> Iterator[str]:
    """Convert one record per line to one JSON list, without storing all records in memory."""
    before = "[\n"
    for line in lines:
        yield before + line.rstrip("\n")
        before = ",\n"
    yield "\n]\n" if before == ",\n" else "[]\n"


def _write(lines: Iterator[str], output: Path | None, *, at_once: bool) -> None:
    """Write the file. `at_once`: replace it in one operation, because the collector may read it at any moment."""
    if output is None:
        for line in lines:
            write(line)
    elif at_once:
        _write_whole("".join(lines).encode(), output)
    else:
        try:
            with output.expanduser().open("w", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            raise _unwritten(output, error) from error


def _write_whole(data: bytes, output: Path) -> None:
    from deepstone.durable import write_whole

    try:
        write_whole(data, output.expanduser())
    except OSError as error:
        raise _unwritten(output, error) from error


def _unwritten(output: Path, error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    return UsageError(f"cannot write {output}: {reason}; give another file with -o")
