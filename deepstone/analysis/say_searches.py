"""Sentences about setups in another framework than the default's, which a search found and proved.

Nothing else says that both frameworks compute the same. Within one framework, the finals of a search are rounds like
any other, and say_setups tells them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deepstone.absent import Absent
from deepstone.analysis.facts import device_name
from deepstone.analysis.wording import statement, times
from deepstone.results.claim import Statement
from deepstone.results.findings import Finding
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Tuned

_FOUND = 90.0
_NOT_SEARCHED = ("batch", "device", "phase")


def say_searches(findings: Sequence[Finding], *, several_machines: bool) -> Iterator[Statement]:
    """Of the searches for one network at one batch on one machine, the newest that found such a setup."""
    newest: dict[object, tuple[Finding, Tuned, Quantity]] = {}
    for finding in findings:
        found = finding.content
        if not isinstance(found, Tuned) or not found.is_better or not found.is_of_speed or not _is_proven(found):
            continue
        ratio, framework = found.ratio, found.best.setup.get("framework")
        if isinstance(ratio, Absent) or framework == found.default.setup.get("framework") or finding.workload is None:
            continue
        if finding.workload.phase == "train":
            machine = None if finding.identity is None else finding.identity.machine_sha
            newest[machine, finding.graph_sha, finding.workload.batch] = finding, found, ratio
    for each in newest.values():
        yield _said(*each, several_machines=several_machines)


def _is_proven(found: Tuned) -> bool:
    return not isinstance(found.same, Absent) and found.same.ok is True and found.same.level != "any"


def _said(finding: Finding, found: Tuned, ratio: Quantity, *, several_machines: bool) -> Statement:
    words, base = _words(found.best.setup), _words(found.default.setup)
    where = ""
    if several_machines and finding.environment is not None and finding.setup is not None:
        where = f" on {device_name(finding.environment, finding.setup.value('device'))}"
    default = f"the default ({base})" if base else "the default"
    lost = f", if your training tolerates it ({found.given_up})" if found.given_up else ""
    return statement(
        f"{words}: {finding.model} trains {times(ratio)} as fast as with {default}{where}. `deepstone tune` found it, "
        "and its first steps were checked to be the same training.",
        rank=_FOUND,
        runs=[*found.best.runs, *found.default.runs],
        findings=[finding.id] if finding.id else [],
        ratio=ratio,
        how=f"finals of {found.rounds_in_words} in fresh processes, in random order; the ratio within each round",
        advice=f"Use {words}: {times(ratio)} {default}{lost}.",
    )


def _words(setup: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in setup.items() if name not in _NOT_SEARCHED)
