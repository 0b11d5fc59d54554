"""What the commands over a store share: opening it, words to filters, and the word about damaged records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.options import store_folder
from deepstone.cli.output import note
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.records.schema import Record
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store

Filter = Annotated[
    list[str] | None,
    typer.Argument(
        help="Only runs with these values, as in model=resnet50 outcome=ok layout=nhwc.", metavar="NAME=VALUE"
    ),
]


def open_store(store: Path | None) -> Store:
    """The store that there is; StoreError where there is none."""
    from deepstone.store.store import Store

    return Store.open(store_folder(store), create=False)


def filters_in(words: Sequence[str]) -> Filters:
    from deepstone.store.filters import filters_of

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


def records_in(store: Store, wanted: Filters) -> list[Record]:
    """The runs that match, oldest first; a damaged one is told, and the others come."""
    listing = store.list(wanted)
    damaged = list(listing.damaged)
    records = list(store.records(listing.rows, damaged=damaged))
    warn(damaged)
    return records
