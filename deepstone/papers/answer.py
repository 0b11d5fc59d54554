"""The answer of a rule: the verdict with its number, interval and setup, and the runs and findings behind it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.analysis.wording import span
from deepstone.measure.statistics import why_no_interval
from deepstone.papers.verdict import NOT_TESTABLE, Word
from deepstone.results.claim import Verdict
from deepstone.results.quantity import Quantity
from deepstone.units import digits


class Answer(Struct, frozen=True, kw_only=True):
    """`why` is one sentence for a person. A verdict other than "not testable here" always has `measured`."""

    word: Word
    why: str
    measured: Quantity | Absent
    unit: str = "ratio"
    setup: str = ""
    runs: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def is_verdict(self) -> bool:
        return self.word != NOT_TESTABLE

    def noting(self, remark: str) -> Answer:
        """Return the same answer with a remark after the reason."""
        return replace(self, why=f"{self.why}; {remark}") if remark else self

    def with_other_test(self, label: str, other: Answer) -> Answer:
        """Return the same answer with the verdict of another test of the claim."""
        return replace(
            self.noting(f"beside it, {label}: {other.word}, {other.why} ({other.setup})"),
            runs=tuple(dict.fromkeys([*self.runs, *other.runs])),
            findings=tuple(dict.fromkeys([*self.findings, *other.findings])),
        )

    def on(self, machine: str) -> Verdict:
        """Return the verdict on this machine."""
        runs, findings = list(self.runs), list(self.findings)
        return Verdict.like(self, machine=machine, verdict=self.word, runs=runs, findings=findings)


def not_testable(why: str, *, setup: str = "", measured: Quantity | None = None, unit: str = "ratio") -> Answer:
    """`measured` may be a number that was measured but does not test the claim."""
    return Answer(
        word=NOT_TESTABLE, why=why, measured=Absent(why) if measured is None else measured, setup=setup, unit=unit
    )


def share(part: Quantity, rest: Quantity) -> Quantity:
    """Return the part over the sum of part and rest."""
    median, n = part.median / (part.median + rest.median), min(part.n, rest.n)
    why = why_no_interval([part, rest])
    if why:
        return Quantity.without_interval(median, n=n, why=why)
    low, high = part.low / (part.low + rest.high), part.high / (part.high + rest.low)
    return Quantity.of(median=median, low=low, high=high, n=n)


def share_in_words(value: Quantity) -> str:
    """Format as 74.3 % (74.2 – 74.4)."""
    return f"{digits(100 * value.median)} % ({span(value, lambda end: digits(100 * end))})"


def in_words(value: Quantity) -> str:
    """Format as 1.52 (1.40 – 1.66)."""
    return f"{digits(value.median)} ({span(value)})"
