"""What a gate found, as a table for a terminal and as Markdown for a comment; the same words in both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.analysis.cases import WITHIN_PROCESS, Case
from deepstone.analysis.gate import VERDICTS, Gate, Judged
from deepstone.units import digits

HEADINGS: Final = ("verdict", "job", "baseline\nimages/s", "now\nimages/s", "speed ratio", "why", "doubts")
_QUIET: Final = ("no change shown",)  # why there is no verdict is told by the ratio beside it


def rows(jobs: Iterable[Judged]) -> list[tuple[str, ...]]:
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


def remarks(found: Gate) -> list[str]:
    """What a reader must know to weigh the table."""
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


def summary(found: Gate) -> str:
    counts = ", ".join(f"{verdict}: {len(found.of(verdict))}" for verdict in VERDICTS if found.of(verdict))
    told = counts or "no jobs on either side"
    apart = ", measured apart" if all(judged.contrast.apart for judged in found.jobs if judged.contrast) else ""
    return f"{told}; tolerance {100 * found.tolerance:.3g} %; ratios are speed now over speed before{apart}"


def as_markdown(found: Gate) -> str:
    state = "failed" if found.regressions else "passed" if found.compared else "compared nothing"
    lines = [f"**Deepstone gate {state}**: {_inert(summary(found))}.", ""]
    if found.jobs:
        lines += [
            _row([heading.replace("\n", ", ") for heading in HEADINGS]),
            _row(["---", "---", "--:", "--:", "--:", "---", "---"]),
        ]
        lines += [_row([_inert(cell) for cell in row]) for row in rows(found.jobs)]
        lines.append("")
    lines += [f"- {_inert(remark)}" for remark in remarks(found)]
    return "\n".join(lines).rstrip() + "\n"


def _speed(case: Case | None) -> str:
    speed = case.images_per_s if case else None
    return "–" if speed is None or isinstance(speed, Absent) else digits(speed.median)


def _ratio(judged: Judged) -> str:
    ratio = judged.ratio
    return "–" if ratio is None else f"{digits(ratio.median)} ({digits(ratio.low)} – {digits(ratio.high)})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _inert(text: str) -> str:
    """Text of a record as text: no markup, no mention of a person, no line of its own."""
    one_line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    escaped = re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", one_line).replace("&", "&amp;").replace("<", "&lt;")
    # A word joiner after @ and inside :// keeps names and addresses from becoming mentions and links.
    return escaped.replace(">", "&gt;").replace("@", "@\u2060").replace("://", ":\u2060//")
