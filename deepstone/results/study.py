"""The state of a study, as far as a report and its sentences tell of it."""

from __future__ import annotations

from deepstone.results.parts import Json, Part


class StudyTask(Part, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """`state`: waiting, done, failed, pruned or left out. `runs`: ids of the run or finding that settled it."""

    title: str
    state: str = "done"
    why: str = ""
    round: int = 1
    runs: tuple[str, ...] = ()


class StudyState(Part, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """`base`: the first setup of the study. `sameness`: by network and framework, whether it computes what the graph
    says. `addable`: frameworks that the study would measure too, were they installed."""

    name: str
    tasks: list[StudyTask]
    title: str = ""
    description: str = ""
    resume: str = ""
    base: dict[str, str | int] | None = None
    figures: tuple[dict[str, Json], ...] = ()
    sameness: dict[str, dict[str, bool]] | None = None
    addable: tuple[str, ...] = ()
