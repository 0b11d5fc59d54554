"""Two cases held against each other though they may be one setup measured twice, as before and after a change."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import Contrast, contrast_cases
from deepstone.analysis.differences import differences


def contrast_sides(a: Case, b: Case, *, never_in: Collection[str]) -> Contrast | Absent:
    """By the rule for all ratios, whatever they differ in but for `never_in`; absent where the rule refuses."""
    allowed = set(differences(a.record, b.record).axes) - set(never_in)
    # The rule refuses to compare a case with itself. Here the sides are two, whatever they are named.
    found = contrast_cases(a, replace(b, key=f"the other {b.key}"), differ_in=allowed)
    if isinstance(found, Contrast) and not math.isfinite(found.ratio.high):
        return Absent("an interval that reaches down to 0 images/s gives a ratio without an upper end")
    return found
