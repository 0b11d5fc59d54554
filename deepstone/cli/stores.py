"""The store that a command reads: its folder, the runs that match, and what is said of damaged ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deepstone.cli.output import note
from deepstone.errors import StoreError, UsageError

if TYPE_CHECKING:
    from deepstone.results.record import Record
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store


def store_folder(given: Path | None) -> Path:
    from deepstone.store.layout import default_folder

    return default_folder() if given is None else given.expanduser()


def named_store(ctx: typer.Context, store: Path | None) -> Path | None:
    """The store that a command which goes on must name. One from the environment is named there again."""
    source = ctx.get_parameter_source("store")
    return store if source is not None and source.name == "COMMANDLINE" else None


def open_store(store: Path | None) -> Store:
    """Open an existing store. Raises StoreError if there is none."""
    from deepstone.store.store import Store

    return Store.open(store_folder(store), create=False)


def filters_in(words: Sequence[str]) -> Filters:
    from deepstone.store.rows import filters_of

    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not NAME=VALUE, as in model=resnet50")
        given[name] = value
    return filters_of(given)


def warn(damaged: Iterable[Damage]) -> None:
    for damage in damaged:
        note(f"deepstone: damaged record {damage.path}: {damage.reason}; `deepstone results delete` removes it")


def report_skipped(damaged: Iterable[Damage]) -> None:
    """Report skipped records, if any, and exit with the code of a damaged store."""
    distinct = list(dict.fromkeys(damaged))
    warn(distinct)
    if distinct:
        raise typer.Exit(StoreError.exit_code)


def records_in(store: Store, wanted: Filters) -> list[Record]:
    """Return the matching runs, oldest first. Damaged ones are reported and skipped."""
    listing = store.list(wanted)
    damaged = list(listing.damaged)
    records = list(store.records(listing.rows, damaged=damaged))
    warn(damaged)
    return records
