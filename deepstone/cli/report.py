"""`deepstone report`: what was measured as one page, as figures and as Markdown."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.declare import examples, file
from deepstone.cli.draw import check_folder, check_page
from deepstone.cli.options import Also, Filter, Json, StorePath
from deepstone.cli.output import note, print_json
from deepstone.cli.stores import filters_in, report_skipped, store_folder
from deepstone.errors import StoreError, UsageError

if TYPE_CHECKING:
    from deepstone.report.book import Book
    from deepstone.store.layout import Damage
    from deepstone.store.store import Store

EXAMPLES = examples(
    "deepstone report -o report.html",
    "deepstone report -o resnet50.html model=resnet50 outcome=ok",
    "deepstone report -o quick.html --study quick --figures figures --markdown quick.md",
    "deepstone report -o both.html --also results/h200",
)


def report(
    filters: Filter = None,
    output: Annotated[Path | None, file("-o", "--output", help="The page: one file, .html.")] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="Only what this study measured, in its figures.", metavar="NAME")
    ] = None,
    also: Also = None,
    paper: Annotated[list[Path] | None, file("--paper", help="What `deepstone papers NAME --json` printed.")] = None,
    figures: Annotated[
        Path | None, file("--figures", help="Every figure as SVG and PNG in this folder.", metavar="DIR")
    ] = None,
    markdown: Annotated[Path | None, file("--markdown", help="The sentences and numbers as Markdown.")] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """What was measured as one page that needs nothing but itself: sentences first, then figures with their numbers,
    what was not measured, and every run. Exits with 3 when it skips a damaged record.
    """
    _check(output, figures, markdown, json=json)
    wanted = filters_in(filters or [])
    from deepstone.report.book import make_book
    from deepstone.report.sources import Gathered, report_sources

    opened: Store | None = None
    with suppress(StoreError):  # what is wrong with a file comes first
        opened = _opened(store, needed=not also and not paper)
    gathered = Gathered.from_paths([*(also or []), *(paper or [])], beside=opened)
    for line in gathered.skipped:
        note(f"deepstone: passed over {line}")
    opened = opened or _opened(store, needed=not also and not paper)
    damaged: list[Damage] = []
    book = make_book(report_sources(opened, wanted, study, gathered, damaged))
    if not book.runs and not book.chapters:
        report_skipped(damaged)
        raise UsageError("nothing to report: no run or finding fits; `deepstone results list` shows what there is")
    _write(book, output, figures, markdown)
    if json:
        from deepstone.report.book_json import book_json

        print_json(book_json(book))
    report_skipped(damaged)


def _check(output: Path | None, figures: Path | None, markdown: Path | None, *, json: bool) -> None:
    """Check the options before anything is read."""
    if output is None and figures is None and markdown is None and not json:
        raise UsageError("report needs a place to write to: -o FILE.html, --markdown FILE, --figures DIR or --json")
    check_page(output)
    check_folder(None if markdown is None else markdown.expanduser())


def _opened(store: Path | None, *, needed: bool) -> Store | None:
    """Open the store. Returns None if the user names files but no store and the default store does not exist."""
    from deepstone.store.layout import Layout
    from deepstone.store.store import Store

    folder = store_folder(store)
    if store is None and not needed and not Layout(root=folder).format.exists():
        return None
    return Store.open(folder, create=False)


def _write(book: Book, output: Path | None, figures: Path | None, markdown: Path | None) -> None:
    from deepstone.report.files import write_figures, write_markdown, write_page

    figure_count = sum(len(chapter.figures) for chapter in book.chapters)
    summary = f"{len(book.runs):,} runs, {len(book.statements)} statements, {figure_count} figures"
    if output is not None:
        write_page(book, output.expanduser())
        note(f"{output}: {summary}")
    pictures: dict[str, str] = {}
    if figures is not None:
        pictures = write_figures(book, figures.expanduser())
        note(f"{figures}: {figure_count} figures as SVG and PNG")
    if markdown is not None:
        write_markdown(book, markdown.expanduser(), pictures)
        note(f"{markdown}: {summary}")
