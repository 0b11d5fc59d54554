"""Which share of a device's bandwidth on paper a copy reaches."""

from __future__ import annotations

from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import of_share
from deepstone.units import count, percent


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    if not evidence.copies:
        return not_testable("no copy was measured here: `deepstone doctor --peaks`", unit="share")
    fastest = max(evidence.copies, key=lambda copy: copy.bytes_per_s.median)
    known = asked.parameters["peak_bytes_per_s"]
    peak = next((value for name, value in known.items() if name.lower() in fastest.place.name.lower()), None)
    reached = count(fastest.bytes_per_s.median, "B/s")
    if peak is None:
        return not_testable(
            f"a copy reaches {reached}, but the bandwidth of {fastest.place.name} on paper is not known", unit="share"
        )
    rate = fastest.bytes_per_s
    part = Quantity(median=rate.median / peak, low=rate.low / peak, high=rate.high / peak, n=rate.n)
    judged = of_share(part, asked.number)
    return Answer(
        word=judged.word,
        why=f"a copy reads and writes {reached} of {count(peak, 'B/s')}, {percent(part.median)}; {judged.why}",
        measured=part,
        unit="share",
        setup=f"copy on the device, {fastest.measured_with}",
        findings=(fastest.id,),
    )


RULE = Rule(
    words="The fastest copy on the device, bytes read and written, over its bandwidth as its maker states it.",
    parameters=("peak_bytes_per_s",),
    scope="place",
    apply=_apply,
)
