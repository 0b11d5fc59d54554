"""What a record holds of a job with several processes."""

from __future__ import annotations

from deepstone.absent import Absent
from deepstone.results.parts import AtLeast0, Count, Number, OrAbsent, Part, Positive, SomeText
from deepstone.results.quantity import Quantity
from deepstone.setups.world import Role


class RankFacts(Part, frozen=True, kw_only=True):
    """One process. `node`: the number of its machine among those of the job. `role`: whether it computes, or keeps
    parameters for those that do."""

    rank: Count
    role: Role = "worker"
    node: Count
    host: str = ""
    device: str
    threads: Positive
    cpus: str
    host_peak_bytes: OrAbsent[Count]


class Launcher(Part, frozen=True, kw_only=True):
    """What started the processes. `version`: with the kind, where there are several. `argv` is empty where Deepstone did
    it itself."""

    name: SomeText
    version: str
    argv: list[str]


class Bucket(Part, frozen=True, kw_only=True):
    """Gradients that are reduced together."""

    bytes: Count


class Communication(Part, frozen=True, kw_only=True):
    """Where the time between processes goes, from steps that do less and less of it, in turns.

    `exposed_s`: how much longer a step takes because gradients are exchanged. `waiting_s`: by rank, how long it waits
    for the others in every step. `meeting_s`: what meeting costs where nobody waits. `alone_s`: the exchange without
    computing beside it. `hidden_share`: how much of that the step hides behind computing. Differences may come out
    negative.
    """

    exposed_s: Quantity
    waiting_s: list[Quantity]
    meeting_s: Number
    alone_s: OrAbsent[Quantity]
    hidden_share: OrAbsent[Number]
    local_step_s: Quantity
    method: SomeText


class Wire(Part, frozen=True, kw_only=True):
    """Bytes of a step: those that the network interfaces of all nodes sent, loopback if there is one node; and those
    that an all-reduce of the gradients needs."""

    sent_bytes: AtLeast0
    needed_bytes: AtLeast0
    ratio: AtLeast0


class Rates(Part, frozen=True, kw_only=True):
    """Samples in a second."""

    per_process: AtLeast0
    per_node: AtLeast0
    total: AtLeast0


class Parallel(Part, frozen=True, kw_only=True):
    """`world`: how many processes compute together. `servers`: how many more keep the parameters. `local_batch`: the
    samples of one process, or of one pipeline."""

    world: Positive
    servers: Count = 0
    scheme: str = "data"
    nodes: Positive
    local_batch: Positive
    launcher: Launcher
    ranks: list[RankFacts]
    buckets: OrAbsent[list[Bucket]]
    communication: OrAbsent[Communication]
    wire: OrAbsent[Wire] = Absent("not counted")
    rates: OrAbsent[Rates]
