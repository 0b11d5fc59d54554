"""Facts about each part of a user's module: class, parameters, and FLOPs by torch's own counter.

In one separate step the counter replaces the clock: its readings at the ends of a part, forward and backward, give that
part's FLOPs. It counts matrix products, convolutions and attention, 2 for a multiply-add. If a part runs a multiplying
operator that the counter does not know, its FLOPs are absent and not 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from deepstone.backends.base import InPlace, ModulePart
from deepstone.backends.torch.in_place import InPlaceTimer, accounts
from deepstone.backends.torch.module_parts import containers
from deepstone.backends.torch.own_module import OwnModule
from deepstone.graph.graph import Graph

_MULTIPLIES: Final = re.compile(r"(attention|rnn|lstm|gru|conv|linear|mm|matmul|bilinear|mv|dot)(_|\b|\d|$)")
_ATEN: Final = torch.ops.aten
_NOT_SEEN: Final = {"absent": "this part did not run in the step in which FLOPs were counted"}

MakeTimer = Callable[[Callable[[], float]], InPlaceTimer]
Flops = dict[tuple[str, str], Any]  # by part and pass: a number, or {"absent": reason}


def _as_counted(operator: Any) -> Callable[..., int]:
    """Apply the counter's formula of an operator to another one with the same arguments."""

    def formula(*args: Any, **named: Any) -> int:
        return flop_registry[operator](*args, **named)

    formula._get_raw = True  # pyright: ignore[reportFunctionMemberAccess]  # how it is told not to turn tensors into shapes first
    return formula


# The counter leaves attention on the CPU out, and knows the same work on a GPU.
_ON_CPU: Final = {
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _as_counted(_ATEN._scaled_dot_product_flash_attention),
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _as_counted(
        _ATEN._scaled_dot_product_flash_attention_backward
    ),
}


class ModuleFacts:
    """Facts about the module in one job; FLOPs are counted once, on first use."""

    def __init__(
        self, network: nn.Module, graph: Graph, make_timer: MakeTimer, synchronize: Callable[[], None]
    ) -> None:
        self._own = next(module for module in network.modules() if isinstance(module, OwnModule))
        self._graph = graph
        self._make_timer = make_timer
        self._synchronize = synchronize
        self._flops: Callable[[str, str], Any] | None = None

    def add_to(self, found: InPlace, timer: InPlaceTimer) -> InPlace:
        """Return the same, with the facts about its timed parts."""
        if self._flops is None:
            self._flops = self._counted()
        numbers = _parameters(self._own)
        names = dict.fromkeys(name for step in found.steps for name, _ in step.layers)
        for name in names:
            part = timer.parts.get(name)
            if part is not None:  # else it is a layer of the graph around the module
                flops = {direction: self._flops(name, direction) for direction in ("forward", "backward")}
                count = 0 if part.module is None else numbers.get(part.path, 0)
                found.parts.append(ModulePart(name, part.op, part.path, count, flops))
        found.containers = containers(self._own)
        return found

    def _counted(self) -> Callable[[str, str], Any]:
        try:
            flops = flops_by_part(self._make_timer, self._graph, self._synchronize)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError) as error:
            # A module may hold tensors of kinds that cannot be looked at in this way. Its times are good without it.
            first_line = str(error).partition("\n")[0]
            absent = {"absent": f"torch's counter failed: {type(error).__name__}: {first_line}"}
            return lambda name, direction: absent
        ran = {name for name, _ in flops}
        return lambda name, direction: flops.get((name, direction), 0 if name in ran else _NOT_SEEN)


def _parameters(own: OwnModule) -> dict[str, int]:
    """Count the numbers in each submodule's own parameters. Shared parameters count for the first."""
    counts: dict[str, int] = {}
    for name, parameter in own.inner.named_parameters():  # tells each of them once
        path = name.rpartition(".")[0]
        counts[path] = counts.get(path, 0) + parameter.numel()
    return counts


def flops_by_part(make_timer: MakeTimer, graph: Graph, synchronize: Callable[[], None]) -> Flops:
    """Run one step and return the FLOPs by part. Parts without multiply-adds are not included."""
    counter = FlopCounterMode(display=False, custom_mapping=_ON_CPU)
    timer = make_timer(counter.get_total_flops)
    unknown = _Unknown(timer.stamped)
    with unknown, counter:
        what, counts = timer.look(1, synchronize)
    (account,) = accounts(what, counts, graph)
    found: Flops = {key: round(flops) for key, flops in account.layers.items()}
    for position, operator in unknown.seen:
        owner = what[position] if position < len(what) else None
        if isinstance(owner, tuple) and not owner[2]:  # it ran before the end of this part
            found[owner[:2]] = {"absent": f"torch's counter does not know {operator}"}
    return found


class _Unknown(TorchDispatchMode):
    """Records multiplying operators that the counter does not know, each with the number of timestamps before."""

    def __init__(self, stamped: list[Any]) -> None:
        super().__init__()
        self.seen: list[tuple[int, str]] = []
        self._stamped = stamped

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        packet = getattr(func, "overloadpacket", None)
        if packet is not None and packet not in flop_registry and packet not in _ON_CPU:
            name = str(packet)
            if _MULTIPLIES.search(name.rpartition(".")[2]):
                self.seen.append((len(self._stamped), name.replace(".", "::")))
        return func(*args, **(kwargs or {}))
