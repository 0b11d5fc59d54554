"""What records say about setups in general: rules with the facts under which they hold, and the advice made of them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from deepstone.results.parts import Count, Number, Part, Positive, RunId, SomeText, Table, Value
from deepstone.results.quantity import Quantity
from deepstone.results.record import WorkloadPhase

Device: TypeAlias = Literal["cpu", "gpu"]
# Units for products of narrow numbers: none; bf16 in vectors; amx: in matrices. Of a GPU: fp16 alone, or bf16 and TF32.
MatrixUnits: TypeAlias = Literal["none", "fp16", "bf16", "amx"]
Confidence: TypeAlias = Literal["measured here", "measured on a machine of this type", "high", "medium", "low"]

CORES: Final = "cores"  # in a rule, a count of processes or threads may be a part of the machine: cores/4


class Facts(Part, frozen=True, kw_only=True):
    """What decides whether a rule may hold. A fact that is not known is missing."""

    device: Device
    phase: WorkloadPhase
    batch: Positive
    cores: Positive | None = None
    matrix_units: MatrixUnits | None = None
    batch_norm: bool | None = None
    convolution_share: Number | None = None  # of the FLOPs; the rest is of dense layers
    parameters: Count | None = None


class Conditions(Part, frozen=True, kw_only=True):
    """A rule holds where the facts are like this; a missing condition always holds."""

    device: Device
    phase: WorkloadPhase
    matrix_units: MatrixUnits | None = None
    least_cores: Positive | None = None
    most_cores: Positive | None = None
    batch_norm: bool | None = None
    least_batch: Positive | None = None
    most_batch: Positive | None = None

    def hold(self, facts: Facts) -> bool:
        """Whether no known fact speaks against it."""
        return (
            self.device == facts.device
            and self.phase == facts.phase
            and _fits(self.matrix_units, facts.matrix_units)
            and _fits(self.batch_norm, facts.batch_norm)
            and (facts.cores is None or (self.least_cores or 1) <= facts.cores <= (self.most_cores or facts.cores))
            and (self.least_batch or 1) <= facts.batch <= (self.most_batch or facts.batch)
        )


def _fits(wanted: object, known: object) -> bool:
    return wanted is None or known is None or wanted == known


class Seen(Part, frozen=True, kw_only=True):
    """One group of records: a network with one batch on one machine. `gain`: speed of the setup over that of the other.
    `machine`: its name; `machine_sha`: what it is known by. `rounds`: how often both sides ran in turns, also in a
    comparison; 0 if they were measured apart."""

    machine: SomeText
    machine_sha: str
    model: SomeText
    batch: Positive
    gain: Quantity
    how: SomeText
    checked: bool  # whether losses of both sides show that they compute the same
    records: list[RunId]
    rounds: Count = 0


class Rule(Part, frozen=True, kw_only=True):
    """`setup` is faster than `over` by `gain` where the conditions hold. The gain is the median over groups; it spans
    from the lowest to the highest end of their intervals, and its n counts them. A gain below 1 is a rule, too."""

    when: Conditions
    over: Table[Value]
    setup: Table[Value]
    gain: Quantity
    seen: list[Seen]


class Chosen(Part, frozen=True, kw_only=True):
    """What a framework chooses for `auto` on a kind of device."""

    framework: SomeText
    device: Device
    axis: SomeText
    value: Value


class Rules(Part, frozen=True, kw_only=True):
    """Rules, and what `auto` means in their setups. `records`: how many they were made of."""

    records: Count
    chosen: list[Chosen]
    rules: list[Rule]


class Advice(Part, frozen=True, kw_only=True):
    """One setup to try. `over`: the setup that the gain is about: what was asked for, or the nearest that was measured.
    `gives_up`: what the training loses with it. `checked`: whether records show that both sides compute the same."""

    setup: Table[Value]
    over: Table[Value]
    gain: Quantity
    machines: Positive
    models: list[str]
    confidence: Confidence
    gives_up: list[str]
    checked: bool
    records: list[RunId]
    words: SomeText


class Advised(Part, frozen=True, kw_only=True):
    """The answer of `advise`. `asked`: the settings that the advice keeps. `notes`: what it could not take into
    account."""

    model: SomeText
    facts: Facts
    asked: Table[Value]
    advice: list[Advice]
    notes: list[str]
