"""One plain sentence about what was measured, with everything it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent
from deepstone.measure.statistics import Quantity

_NO_RATIO = Absent("the sentence is not about one ratio")


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """`rank`: the higher, the more it matters to a reader. `how`: what its interval means."""

    text: str
    rank: float
    runs: Sequence[str] = ()
    findings: Sequence[str] = ()
    ratio: Quantity | Absent = _NO_RATIO
    how: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "runs": list(dict.fromkeys(self.runs)),
            "findings": list(dict.fromkeys(self.findings)),
            "ratio": self.ratio.to_json(),
            "how": self.how,
            "rank": self.rank,
        }
