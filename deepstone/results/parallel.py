"""What a record holds of a job with several processes."""

from __future__ import annotations

from deepstone.absent import Absent
from deepstone.results.parts import AtLeast0, Count, Number, OrAbsent, Part, Positive, SomeText
from deepstone.results.quantity import Quantity
from deepstone.setups.world import Role


class HostFacts(Part, frozen=True, kw_only=True):
    """One node. `nodename`: as the launcher calls it. `machine`: the number of its machine; nodes may share one.
    `cores`: those that its first process may use."""

    node: Count
    host: str
    nodename: str
    machine: Count
    cores: Positive
    ranks: list[Count]


class Clock(Part, frozen=True, kw_only=True):
    """That of a rank against the controller's, by which all times are told: how far it is ahead, how much it gains in
    each second, and the error of this; all 0 where it is the same clock."""

    offset_s: Number
    drift: Number
    error_s: AtLeast0


class RankFacts(Part, frozen=True, kw_only=True):
    """One process. `node`: the number of its node among those of the job. `role`: whether it computes, keeps parameters
    for those that do, or makes them step. `step_bytes`: the memory that steps take: on the device, or what the process
    grew by since before the network was built. `predicted_bytes`: what the graph says that they need, without
    workspaces. Early records lack what has the default None."""

    rank: Count
    node: Count
    host: str = ""
    role: Role | None = None
    device: str
    threads: Positive
    cpus: str
    host_peak_bytes: OrAbsent[Count]
    device_peak_bytes: OrAbsent[Count] | None = None
    step_bytes: OrAbsent[Count] | None = None
    predicted_bytes: OrAbsent[Count] | None = None
    clock: Clock | None = None


class Launcher(Part, frozen=True, kw_only=True):
    """What started the processes. `version`: with the kind, where there are several. `argv` is empty where Deepstone
    did it itself."""

    name: SomeText
    version: str
    argv: list[str]


class Bucket(Part, frozen=True, kw_only=True):
    """Gradients that are reduced together."""

    bytes: Count


class RankAccount(Part, frozen=True, kw_only=True):
    """One process: see `Account`."""

    waiting_s: Quantity
    tail_s: Quantity
    slowdown_s: Quantity


class Account(Part, frozen=True, kw_only=True):
    """What the time that several processes add to a step is made of, from steps with timestamps, which took turns with
    plain ones. Every part is the mean over ranks, and they add up:

        total = waiting + tail + slowdown + packing + buffers + residual

    `total_s`: a plain step less one without communication. `waiting_s`: a rank is done with computing, and another one
    is not. `tail_s`: all ranks are done with computing, and gradients are still being reduced. `slowdown_s`: how much
    longer computing takes because reductions run beside it. `packing_s`: what copying gradients into buffers and back
    costs. `buffers_s`: rank 0 sends its buffers (batch norm) before forward. `residual_s`: what none of these explains.

    `in_flight_s`: how long at least one reduction is under way in a step, beside computing or not. `traced_step_s`: the
    step with timestamps.
    """

    total_s: Quantity
    waiting_s: Quantity
    tail_s: Quantity
    slowdown_s: Quantity
    packing_s: Quantity
    buffers_s: Quantity
    residual_s: Quantity
    in_flight_s: Quantity
    traced_step_s: Quantity
    ranks: list[RankAccount]
    method: SomeText

    @property
    def parts(self) -> dict[str, Quantity]:
        """Those that add up to the total, by name."""
        names = ("waiting", "tail", "slowdown", "packing", "buffers", "residual")
        return {name: getattr(self, f"{name}_s") for name in names}


class Logged(Part, frozen=True, kw_only=True):
    """What the framework itself logs of plain steps, the mean over ranks: computing of forward and backward, the time
    from the first reduction to the last, and how long both run at once."""

    forward_s: Quantity
    backward_s: Quantity
    communication_s: Quantity
    overlap_s: Quantity


class Span(Part, frozen=True, kw_only=True):
    """A part of a step, in seconds from the begin of the step on the rank that began first. `kind`: data, buffers,
    forward, backward, pack, reduce, waiting, unpack or update; `bytes` has only `reduce`, one bucket; `stage` and
    `microbatch` has what a pipeline computes."""

    kind: SomeText
    begin_s: Number
    end_s: Number
    bytes: Count = 0
    stage: Count | None = None
    microbatch: Count | None = None


class Lane(Part, frozen=True, kw_only=True):
    """One process in a timeline."""

    rank: Count
    spans: list[Span]


class Timeline(Part, frozen=True, kw_only=True):
    """One step with timestamps, the one whose time is in the middle of all of them."""

    step_s: AtLeast0
    lanes: list[Lane]


class Communication(Part, frozen=True, kw_only=True):
    """Where the time between processes goes, from steps that do less and less of it, in turns.

    `exposed_s`: how much longer a step takes because gradients are exchanged. `waiting_s`: by rank, how long it waits
    for the others in every step. `meeting_s`: what meeting costs where nobody waits. `alone_s`: the exchange without
    computing beside it. `hidden_share`: how much of that the step hides behind computing. Differences may come out
    negative. Where a driver makes workers step, they do not meet. `account`: what it is made of. `logged`: what the
    framework itself says of it. Early records have plain numbers for `meeting_s` and `hidden_share`.
    """

    exposed_s: Quantity
    waiting_s: OrAbsent[list[Quantity]]
    meeting_s: OrAbsent[Quantity | Number]
    alone_s: OrAbsent[Quantity]
    hidden_share: OrAbsent[Quantity | Number]
    local_step_s: Quantity
    method: SomeText
    account: OrAbsent[Account] = Absent("not traced")
    logged: OrAbsent[Logged] = Absent("not asked for")


class StageFacts(Part, frozen=True, kw_only=True):
    """Some consecutive layers of a network, which one process of a pipeline computes. `layers`: how many. `share`: of
    the cost of all stages, which `method` says how it is known."""

    rank: Count
    stage: Count
    layers: Positive
    first: str
    last: str
    share: AtLeast0
    method: SomeText


class Bubbles(Part, frozen=True, kw_only=True):
    """How long the stages of a pipeline wait. `share`: of a step, the mean over processes; `ranks`: by process.
    `ideal_share`: with stages that cost the same and no communication. `replayed_share`: with the passes as long as
    they were, and no communication. `exposed_s`: how much longer a step takes than that."""

    share: Quantity
    ranks: list[Quantity]
    ideal_share: AtLeast0
    replayed_share: Quantity
    exposed_s: Quantity
    traced_step_s: Quantity
    method: SomeText


class Wire(Part, frozen=True, kw_only=True):
    """Bytes of a step: those that the network interfaces of all nodes sent, loopback if there is one node; and those
    that the scheme needs: with data parallelism, an all-reduce of the gradients. `windows`: how often it was counted;
    the fewest bytes are taken, since other programs send too. Early records lack it."""

    sent_bytes: AtLeast0
    needed_bytes: AtLeast0
    ratio: AtLeast0
    windows: Positive | None = None


class Rates(Part, frozen=True, kw_only=True):
    """Samples in a second. Early records have plain numbers."""

    per_process: Quantity | AtLeast0
    per_node: Quantity | AtLeast0
    total: Quantity | AtLeast0


class Skew(Part, frozen=True, kw_only=True):
    """How far apart in time the ranks end a step. `spread_s`: from the first to the last of them. `behind_s`: by rank,
    how long after the first. What is not above `error_s`, that of their clocks, is not resolved."""

    spread_s: OrAbsent[Quantity]
    behind_s: list[OrAbsent[Quantity]]
    error_s: AtLeast0


class Parallel(Part, frozen=True, kw_only=True):
    """`world`: how many processes compute together. `servers`: how many more keep the parameters; in TensorFlow one
    more drives them all, the last of `ranks`, and `samples` has its steps alone. `local_batch`: the samples of one
    process, or of one pipeline. A run that failed early has no `ranks`."""

    world: Positive
    servers: Count = 0
    scheme: str = "data"
    nodes: Positive
    local_batch: Positive
    launcher: Launcher
    hosts: list[HostFacts] | None = None  # early records lack it
    ranks: list[RankFacts]
    buckets: OrAbsent[list[Bucket]]
    communication: OrAbsent[Communication]
    wire: OrAbsent[Wire] = Absent("not counted")
    timeline: OrAbsent[Timeline] = Absent("not traced")
    stages: list[StageFacts] | None = None  # of a pipeline
    bubbles: OrAbsent[Bubbles] | None = None  # of a pipeline
    rates: OrAbsent[Rates]
    skew: OrAbsent[Skew] | None = None  # early records lack it
