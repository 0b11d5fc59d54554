"""What records and findings mean, in plain sentences, the most important first.

A sentence that says something is faster stands here only when the interval of the ratio supports it; where none does,
one sentence says that no difference was shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from deepstone.analysis.cases import cases
from deepstone.analysis.machines import machine_names
from deepstone.analysis.one_factor import stars
from deepstone.analysis.say_ceilings import say_ceilings
from deepstone.analysis.say_energy import say_energy
from deepstone.analysis.say_frameworks import Sameness, say_frameworks
from deepstone.analysis.say_layers import say_layers
from deepstone.analysis.say_settings import say_settings
from deepstone.analysis.say_shortfalls import say_shortfalls
from deepstone.analysis.say_speed import say_speed
from deepstone.analysis.say_years import say_years
from deepstone.records.schema import Record

MOST: Final = 80  # sentences; more are not read


def statements(
    records: Iterable[Record],
    findings: Sequence[Mapping[str, Any]] = (),
    *,
    state: Mapping[str, Any] | None = None,
    sameness: Sameness | None = None,
) -> list[dict[str, Any]]:
    """As JSON. `state` is that of the study they come from. `sameness`, by network and framework, says whether the
    framework was checked to compute what the graph says; without it the state's own is taken, and without that
    frameworks are not compared.
    """
    given: Mapping[str, Any] = state or {}
    measured = cases(records)
    found = stars(measured, given.get("base"))
    machines = machine_names(star.base.record for star in found)
    same: Sameness = sameness if sameness is not None else given.get("sameness", {})
    said = [
        *say_speed(found, machines),
        *say_settings(found, machines),
        *say_frameworks(found, machines, same),
        *say_years(found, machines, same),
        *say_layers(findings),
        *say_ceilings(found, findings),
        *say_energy(found),
        *say_shortfalls(measured, state),
    ]
    ranked = sorted(said, key=lambda statement: -statement.rank)
    return [statement.to_json() for statement in ranked[:MOST]]
