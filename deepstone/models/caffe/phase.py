"""Which layers are there in a phase: Caffe's `include` and `exclude` rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deepstone.models.caffe.fields import Fields
from deepstone.models.caffe.layer import CaffeLayer

Phase: TypeAlias = Literal["TRAIN", "TEST"]
PHASES: tuple[Phase, Phase] = ("TRAIN", "TEST")  # in the order of Caffe's enumeration


@dataclass(frozen=True, kw_only=True, slots=True)
class NetState:
    """What rules are held against. As `caffe time` has it: the phase asked for, level 0, the file's own stages."""

    phase: Phase
    stages: frozenset[str] = frozenset()
    level: int = 0


def net_state(net: Fields, phase: Phase) -> NetState:
    """The phase of the file's own `state` does not count: whoever runs a network decides it."""
    given = net.message("state")
    given.ignore("phase", "level")
    return NetState(phase=phase, stages=frozenset(given.texts("stage")))


def present(layers: Sequence[CaffeLayer], state: NetState) -> list[CaffeLayer]:
    return [layer for layer in layers if _is_present(layer, state)]


def _is_present(layer: CaffeLayer, state: NetState) -> bool:
    includes, excludes = layer.fields.messages("include"), layer.fields.messages("exclude")
    if includes and excludes:
        layer.fields.complain("give include or exclude rules, not both")
    met = [_meets(rule, state) for rule in (*includes, *excludes)]
    return any(met) if includes else not any(met)


def _meets(rule: Fields, state: NetState) -> bool:
    phase = rule.choice("phase", PHASES, state.phase)
    lowest = rule.whole("min_level", state.level, least=-(2**31))
    highest = rule.whole("max_level", state.level, least=-(2**31))
    wanted, unwanted = set(rule.texts("stage")), set(rule.texts("not_stage"))
    in_level = lowest <= state.level <= highest
    return phase == state.phase and in_level and wanted <= state.stages and not unwanted & state.stages
