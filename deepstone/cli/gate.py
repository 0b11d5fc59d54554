"""`deepstone results gate`: fails if runs are slower than a baseline, for the CI of other projects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import examples, file, flag, percent
from deepstone.cli.options import Filter, Json, StorePath
from deepstone.cli.output import Column, note, print_json, print_lines, print_table
from deepstone.cli.stores import filters_in, open_store, records_in
from deepstone.errors import UsageError
from deepstone.units import digits

if TYPE_CHECKING:
    from deepstone.analysis.cases import Case
    from deepstone.analysis.gate import Gate, Judged
    from deepstone.results.record import Record
    from deepstone.store.rows import Filters


EXAMPLES = examples(
    "deepstone results gate --baseline main.jsonl",
    "deepstone results gate model=resnet50 --baseline ../main/store --tolerance 3 --memory",
    "deepstone results gate --baseline main.jsonl --markdown comment.md",
    before="Exits with 0 where nothing became worse, 5 on a regression, 1 where nothing could be compared.",
)

NOTHING_COMPARED: Final = 1
REGRESSED: Final = 5
_HEADINGS: Final = ("verdict", "job", "baseline\nTHINGS/s", "now\nTHINGS/s", "speed ratio", "why", "doubts")
_QUIET: Final = ("no change shown",)  # the ratio beside it shows why there is no verdict


def gate(
    baseline: Annotated[Path, file("--baseline", help="A store, or a file that export wrote.", metavar="DIR|FILE")],
    filters: Filter = None,
    tolerance: Annotated[
        float, percent("--tolerance", "A step may take so many percent longer.", least=0, most=1000)
    ] = 5.0,
    memory: Annotated[bool, flag("--memory", "Peaks of memory must not grow by more either.")] = False,
    require_all: Annotated[
        bool, flag("--require-all", "Exit with 1 also where a job of the baseline was not compared.")
    ] = False,
    markdown: Annotated[Path | None, file("--markdown", help="Write the table for a comment, too.")] = None,
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
        print_json(found)
    else:
        _show(found)
    code = _exit_code(found, require_all=require_all)
    if code == NOTHING_COMPARED:
        note(f"deepstone: {_why_nothing(found, before, now)}")
    if code:
        raise typer.Exit(code)


def _exit_code(found: Gate, *, require_all: bool) -> int:
    """Return the exit code. Having nothing to compare is an error, never a success."""
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
    from deepstone.store.importing import read_records
    from deepstone.store.rows import matches

    path = path.expanduser()
    if path.is_dir():
        return records_in(open_store(path), wanted)
    if not path.exists():
        raise UsageError(f"--baseline {path}: no such store or file")
    return [record for record in read_records(path) if matches(record, wanted)]


def _show(found: Gate) -> None:
    columns = [
        Column(
            heading=heading,
            right=number in (2, 3),
            rank=(0, 0, 3, 4, 0, 1, 2)[number],
            wraps=wraps,
            below=heading == "doubts",
        )
        for number, (heading, wraps) in enumerate(zip(_headings(found), (0, 24, 0, 0, 0, 24, 16), strict=True))
    ]
    if found.jobs:
        print_table(columns, _rows(found.jobs))
        print_lines([""])
    print_lines([*_remarks(found), _summary(found)])


def _write_markdown(found: Gate, path: Path) -> None:
    from deepstone.durable import write_whole
    from deepstone.errors import reason

    try:
        write_whole(_as_markdown(found).encode(), path.expanduser())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}; give another file with --markdown") from error


def _rows(jobs: Iterable[Judged]) -> list[tuple[str, ...]]:
    return [
        (
            judged.verdict,
            judged.title,
            _speed(judged.baseline),
            _speed(judged.now),
            _ratio(judged),
            "" if judged.verdict in _QUIET else judged.why,
            " ".join(judged.doubts),
        )
        for judged in jobs
    ]


def _remarks(found: Gate) -> list[str]:
    """Return remarks that a reader needs to judge the table."""
    from deepstone.analysis.cases import WITHIN_PROCESS

    lines = [
        f"changed: {change}" for change in dict.fromkeys(each for judged in found.jobs for each in judged.versions)
    ]
    single = [judged for judged in found.compared if judged.contrast and WITHIN_PROCESS in judged.contrast.how]
    if single:
        limits = " or ".join(sorted({f"{100 * judged.limit:.3g} %" for judged in single}))
        lines.append(
            f"{len(single)} of {len(found.compared)} rest on one process on a side, so they must differ by {limits} to "
            "count; measure both sides with --launches 5 or in rounds to tell smaller changes."
        )
    return lines


def _summary(found: Gate) -> str:
    from deepstone.analysis.gate import VERDICTS

    counts = ", ".join(f"{verdict}: {len(found.of(verdict))}" for verdict in VERDICTS if found.of(verdict))
    summary = counts or "no jobs on either side"
    apart = ", measured apart" if all(judged.contrast.apart for judged in found.jobs if judged.contrast) else ""
    return f"{summary}; tolerance {100 * found.tolerance:.3g} %; ratios are speed now over speed before{apart}"


def _as_markdown(found: Gate) -> str:
    state = "failed" if found.regressions else "passed" if found.compared else "compared nothing"
    lines = [f"**Deepstone gate {state}**: {_inert(_summary(found))}.", ""]
    if found.jobs:
        lines += [
            _row([heading.replace("\n", ", ") for heading in _headings(found)]),
            _row(["---", "---", "--:", "--:", "--:", "---", "---"]),
        ]
        lines += [_row([_inert(cell) for cell in row]) for row in _rows(found.jobs)]
        lines.append("")
    lines += [f"- {_inert(remark)}" for remark in _remarks(found)]
    return "\n".join(lines).rstrip() + "\n"


def _headings(found: Gate) -> list[str]:
    """Return the headings with the unit of the rates: samples if jobs count different units."""
    kinds = {case.record.workload.samples for job in found.jobs for case in (job.baseline, job.now) if case}
    things = kinds.pop() if len(kinds) == 1 else "samples" if kinds else "images"
    return [heading.replace("THINGS", things) for heading in _HEADINGS]


def _speed(case: Case | None) -> str:
    speed = case.samples_per_s if case else None
    return "–" if speed is None or isinstance(speed, Absent) else digits(speed.median)


def _ratio(judged: Judged) -> str:
    ratio = judged.ratio
    return "–" if ratio is None else f"{digits(ratio.median)} ({ratio.span_in_words(digits)})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _inert(text: str) -> str:
    """Escape the text of a record for Markdown: no markup, no mention of a person, no line break."""
    one_line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    escaped = re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", one_line).replace("&", "&amp;").replace("<", "&lt;")
    # A word joiner after @ and inside :// keeps names and addresses from becoming mentions and links.
    return escaped.replace(">", "&gt;").replace("@", "@\u2060").replace("://", ":\u2060//")
