"""One lane of a measurement of communication: the processes of one transport, and what was measured of them so far."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.results.comm import CommWire
from deepstone.results.parallel import Launcher
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched
from deepstone.runner.team import Team
from deepstone.scaling.turns import Pace
from deepstone.scaling.under_load import LoadRound
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World

UNDER_LOAD: Final = "under load"
Samples = list[list[list[float]]]  # launch → round → seconds of one transfer


class Measured(Struct, kw_only=True):
    """One transfer. `wrong`: what was wrong with its result, once it was."""

    program: str = ""
    launches: Samples = field(default_factory=list[list[list[float]]])
    wrong: str = ""

    def begin_launch(self, launch: int) -> None:
        while len(self.launches) <= launch:
            self.launches.append([])


class LaneFacts(Struct, frozen=True, kw_only=True):
    """As the processes themselves told it. `framework`: with its version. `step_buckets`: the bytes of each bucket of
    gradients, in order."""

    transport: str
    framework: str
    library: str
    launcher: Launcher
    device: str
    threads: int
    emulated: bool
    step_buckets: tuple[int, ...]


class Lane(Struct, kw_only=True):
    """Filled step by step, so that a failure loses nothing that was measured before it."""

    job: Job
    facts: LaneFacts | None = None
    started: Launched = field(default_factory=Launched)
    cells: dict[tuple[str, int], Measured] = field(default_factory=dict[tuple[str, int], Measured])
    paces: dict[tuple[str, int], Pace] = field(default_factory=dict[tuple[str, int], Pace])
    unsupported: dict[str, str] = field(default_factory=dict[str, str])  # operations, and under load: why
    left_out: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    wires: dict[str, CommWire | Absent] = field(default_factory=dict[str, CommWire | Absent])
    loads: list[LoadRound] = field(default_factory=list[LoadRound])
    load_bytes: int = 0
    clock_error_s: float = 0.0  # of a difference between times of two processes
    shortest_sample_s: float = math.inf
    failure: JobFailed | MissingError | None = None

    @property
    def world(self) -> World:
        return World.of(self.job.request)

    @property
    def transport(self) -> str:
        """As it was asked for; where that was left to the framework, as it says."""
        asked = str(self.job.request["transport"])
        return asked if asked != AUTO or self.facts is None else self.facts.transport

    @property
    def title(self) -> str:
        return f"{self.transport}, {self.world.processes} processes"

    def describe(self, team: Team, buckets: tuple[int, ...]) -> None:
        prepared = team.prepared[0]
        self.facts = LaneFacts(
            transport=team.transport,
            framework=prepared.value("framework"),
            library=team.library,
            launcher=team.launcher(),
            device=prepared.value("device"),
            threads=int(prepared.value("threads")),
            emulated=team.started is not None and team.started.are_emulated,
            step_buckets=buckets,
        )
