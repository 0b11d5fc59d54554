"""`deepstone results`: list, show, compare, import, export and delete the content of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli import compare_stored, export, gate
from deepstone.cli.compare import SidesCommand
from deepstone.cli.completion import complete_run
from deepstone.cli.declare import examples
from deepstone.cli.help import Commands
from deepstone.cli.options import Filter, Json, StorePath
from deepstone.cli.output import Column, Data, note, print_json, print_json_items, print_lines, print_table
from deepstone.cli.stores import filters_in, open_store, store_folder, warn
from deepstone.errors import StoreError

if TYPE_CHECKING:
    from deepstone.store.rows import Row

app = Commands(
    help="The runs in a store: list, show, compare, gate, export, import, delete, rebuild.",
    epilog=examples(
        "deepstone results list model=resnet50 outcome=ok",
        "deepstone results show 3f2a",
        "deepstone results gate --baseline main.jsonl",
        "deepstone results export --format csv -o runs.csv",
    ),
)

_NOT_IN_JSON = ("sha256", "canonical_job", "things", "things_per_s")  # columns of the index that a run does not have

RunId = Annotated[
    str,
    typer.Argument(
        help="The id of a run or finding, or enough of its beginning.", metavar="ID", autocompletion=complete_run
    ),
]


@app.command("list", short_help="The runs and findings in the store, oldest first.")
def list_runs(filters: Filter = None, store: StorePath = None, json: Json = False) -> None:
    """The runs in the store, oldest first, and then the findings of `layers`, `conv`, `memory` and `doctor --peaks`. An
    axis that is not shown has its default value."""
    from deepstone.cli.findings import finding_facts, list_findings
    from deepstone.store.export.jsonl import matching

    opened, wanted = open_store(store), filters_in(filters or [])
    listing = opened.list(wanted)
    damaged = list(listing.damaged)
    findings = list(matching(opened.findings.list(damaged=damaged), wanted))
    if json:
        print_json_items([*map(_described, listing.rows), *map(finding_facts, findings)])
    else:
        if listing.rows or not findings:
            _show(listing.rows)
        if listing.rows and findings:
            print_lines([""])
        if findings:
            list_findings(findings)
    warn(damaged)


@app.command("show", short_help="One run or finding: what was measured and how to repeat it.")
def show(run: RunId, store: StorePath = None, json: Json = False) -> None:
    """One run or finding: what was measured, what it rests on, and the command that gives it again."""
    from deepstone.results.findings import Finding

    record = open_store(store).get_any(run)
    if json:
        print_json(record)
        return
    if isinstance(record, Finding):
        from deepstone.cli.findings import show_finding

        show_finding(record)
        return
    from deepstone.cli.show import record_lines
    from deepstone.results.view import words

    print_lines(record_lines(record), hang=4)
    print_lines([f"  command: {words(record, 'command')}"])


app.command(
    "compare",
    short_help="Two runs, or two setups, that were measured apart.",
    epilog=compare_stored.EXAMPLES,
    cls=SidesCommand,
)(compare_stored.compare_stored)
app.command("gate", short_help="Fail where runs are slower than a baseline.", epilog=gate.EXAMPLES)(gate.gate)
app.command("export", short_help="Runs in a form to give away.", epilog=export.EXAMPLES)(export.export)


@app.command("import", short_help="Take in runs measured elsewhere.")
def import_runs(
    files: Annotated[list[Path], typer.Argument(help="Files that export wrote.", metavar="FILE")],
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Take in runs measured elsewhere. A file with anything wrong in it is refused whole.

    A run gets a new number where this store has another run under its name; it keeps its own as `origin`.
    """
    from deepstone.store.importing import import_records
    from deepstone.store.store import Store

    opened = Store.open(store_folder(store))
    imported = [import_records(opened, file) for file in files]
    added, skipped = sum(each.added for each in imported), sum(each.skipped for each in imported)
    renumbered = sum(each.renumbered for each in imported)
    if json:
        print_json({"added": added, "skipped": skipped} | ({"renumbered": renumbered} if renumbered else {}))
    else:
        numbers = (
            f"; {renumbered} got a new number, since this store has another run under the name" if renumbered else ""
        )
        note(f"{added} runs added, {skipped} were there already{numbers}")


@app.command("delete")
def delete(
    runs: Annotated[list[str], typer.Argument(metavar="ID", autocompletion=complete_run)],
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Remove runs or findings for good."""
    opened = open_store(store)
    found = [opened.resolve_any(run) for run in runs]  # all are found before one is deleted
    deleted = [opened.delete(run) for run in dict.fromkeys(found)]
    if json:
        print_json({"deleted": deleted})
    else:
        note(f"deleted {', '.join(deleted)}")


@app.command("rebuild", short_help="Verify every record and make the index anew.")
def rebuild(store: StorePath = None, json: Json = False) -> None:
    """Verify every record and make the index anew. Exits with 3 when a record is damaged."""
    listing = open_store(store).rebuild()
    if json:
        damaged = [{"path": str(damage.path), "reason": damage.reason} for damage in listing.damaged]
        print_json({"runs": len(listing.rows), "damaged": damaged})
    else:
        note(f"{len(listing.rows)} runs verified and indexed")
    warn(listing.damaged)
    if listing.damaged:
        raise typer.Exit(StoreError.exit_code)


def _described(row: Row) -> dict[str, Data]:
    """Describe a row as JSON, without values that the run lacks."""
    from json import loads

    from msgspec import structs

    described = {
        name: value for name, value in structs.asdict(row).items() if name not in _NOT_IN_JSON and value is not None
    }
    if row.samples_per_s is not None:  # elsewhere a quantity, here only its median
        described["samples_per_s_median"] = described.pop("samples_per_s")
    return {**described, "requested": loads(row.requested)}


def _setup(row: Row) -> str:
    """Return the axes that are not at their default, except those with their own column."""
    from deepstone.setups.axes import AXES

    shown = ("framework", "device", "batch", "phase")
    requested = ((name, row.asked.get(name, axis.default)) for name, axis in AXES.items() if name not in shown)
    return " ".join(f"{name}={value}" for name, value in requested if value != AXES[name].default)


def _show(rows: tuple[Row, ...]) -> None:
    from deepstone.cli.show import field_column
    from deepstone.units import digits, seconds

    kinds = {row.things for row in rows} or {"images"}
    named = len(kinds) > 1  # each cell names its unit
    columns = [
        field_column("id"),
        field_column("started_at", rank=5),
        field_column("model"),
        field_column("framework", rank=4),
        field_column("device", rank=3),
        field_column("batch", right=True),
        field_column("phase", rank=2),
        Column(heading="setup", wraps=12),
        Column(heading="speed" if named else f"{next(iter(kinds))}/s", right=True),
        field_column("step_s", right=True, rank=6),
        field_column("outcome"),
        field_column("doubts", right=True, rank=1),
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
            _setup(row),
            "" if row.things_per_s is None else digits(row.things_per_s) + (f" {row.things}/s" if named else ""),
            "" if row.step_s_median is None else seconds(row.step_s_median),
            row.outcome,
            str(row.doubts or ""),
        )
        for row in rows
    ]
    print_table(columns, cells)
