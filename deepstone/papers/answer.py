"""What a rule says: the verdict with its number, interval, setup and the runs and findings behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from deepstone.absent import Absent
from deepstone.measure.statistics import Quantity
from deepstone.papers.verdict import NOT_TESTABLE, Word


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
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
        """The same with a remark that follows the reason."""
        return replace(self, why=f"{self.why}; {remark}") if remark else self

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.word,
            "measured": self.measured.to_json(),
            "unit": self.unit,
            "setup": self.setup,
            "why": self.why,
            "runs": list(self.runs),
            "findings": list(self.findings),
        }


def not_testable(why: str, *, setup: str = "", measured: Quantity | None = None, unit: str = "ratio") -> Answer:
    """A number may stand beside it: what was measured, but does not test the claim."""
    return Answer(
        word=NOT_TESTABLE, why=why, measured=Absent(why) if measured is None else measured, setup=setup, unit=unit
    )
