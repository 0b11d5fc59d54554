"""What records and findings mean, in plain sentences: the strongest finding first, then by importance.

A sentence says that something is faster only if the interval of the ratio supports it; if none does, one sentence says
that no difference was shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from deepstone.analysis.advice import strongest_first
from deepstone.analysis.cases import cases
from deepstone.analysis.facts import machine_names
from deepstone.analysis.one_factor import stars
from deepstone.analysis.say_frameworks import Sameness, say_frameworks, say_years
from deepstone.analysis.say_limitations import say_limitations
from deepstone.analysis.say_resources import say_ceilings, say_energy, say_layers
from deepstone.analysis.say_searches import say_searches
from deepstone.analysis.say_setups import say_other_training, say_settings, say_speed
from deepstone.results.claim import Statement
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.searched import NO_SEARCHES, Searched
from deepstone.results.study import StudyState

MOST: Final = 80  # sentences; nobody reads more


def statements(
    records: Iterable[Record],
    findings: Sequence[Finding] = (),
    *,
    study: StudyState | None = None,
    sameness: Sameness | None = None,
    searched: Searched = NO_SEARCHES,
) -> list[Statement]:
    """`study` is the state of the study of these records. `sameness`: by network and framework, whether the framework
    was checked to compute what the graph defines; the default is that of the state, and without both, frameworks are
    not compared. `searched`: what searches say about these runs; nothing is said to be faster by those that they
    refused as other training.
    """
    measured = cases(records, searched)
    found = stars(measured, None if study is None else study.base)
    machines = machine_names(star.base.record for star in found)
    same: Sameness = sameness if sameness is not None else (study and study.sameness) or {}
    sentences = [
        *say_speed(found, machines),
        *say_settings(found, machines),
        *say_other_training(found, machines),
        *say_frameworks(found, machines, same),
        *say_years(found, machines, same),
        *say_searches(findings, several_machines=len(machines) > 1),
        *say_layers(findings),
        *say_ceilings(found, findings),
        *say_energy(found),
        *say_limitations(measured, study),
    ]
    return strongest_first(sentences)[:MOST]
