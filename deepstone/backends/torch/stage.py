"""One stage of a pipeline: its module, what crosses its cuts, and its computing and transfers by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from deepstone.backends.torch.lower import Lowering
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph
from deepstone.graph.stages import Stage

_LOSSES: Final = ""  # among what crosses a cut: the sum of the losses so far


class StageModule(nn.Module):
    """The layers of a stage. What crosses a cut is contiguous both ways: it is sent as it lies in memory."""

    def __init__(self, graph: Graph, stage: Stage, settings: Settings) -> None:
        super().__init__()
        self.layers = Lowering(graph, stage.layers, **settings.lowering).stage(stage)
        self._casting = settings.casting()

    def forward(self, *inputs: Tensor, labels: Tensor) -> Any:
        with self._casting:
            outputs = self.layers(*map(_contiguous_both_ways, inputs), labels)
        return tuple(output.contiguous() for output in outputs) if isinstance(outputs, tuple) else outputs


def _contiguous_both_ways(tensor: Tensor) -> Tensor:
    if not tensor.requires_grad:
        return tensor
    return _Contiguous.apply(tensor)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportReturnType]


class _Contiguous(torch.autograd.Function):
    """The identity, whose gradient is contiguous."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return gradient.contiguous()


class Crossing:
    """The arrays of one microbatch that cross the begin and the end of a stage."""

    def __init__(self, graph: Graph, stage: Stage, microbatch: int, settings: Settings) -> None:
        self._graph, self._microbatch, self._settings = graph, microbatch, settings
        self._takes = (*stage.takes, _LOSSES) if stage.takes_loss else stage.takes
        self._gives = (*stage.gives, _LOSSES) if stage.gives_loss else stage.gives
        # Automatic casting and narrow weights decide about types while they compute: torch finds them out by a trial.
        self.types_are_known = settings.autocast is None and settings.weights in (torch.float32, torch.float64)

    def taken(self, device: torch.device | str = "meta") -> tuple[Tensor, ...]:
        """Like what the stage gets; the first one gets the batch."""
        return tuple(self._like(name, device) for name in self._takes or (self._graph.input.name,))

    def given(self, device: torch.device | str = "meta") -> tuple[Tensor, ...]:
        """Like what the stage passes on; the last one has the loss."""
        return tuple(self._like(name, device) for name in self._gives or (_LOSSES,))

    def _like(self, name: str, device: torch.device | str) -> Tensor:
        shape = () if name == _LOSSES else (self._microbatch, *self._graph.shapes[name])
        tensor = torch.empty(shape, dtype=self._settings.weights, device=device)
        return (tensor if tensor.is_meta else tensor.normal_()).requires_grad_(self._has_gradient(name))

    def _has_gradient(self, name: str) -> bool:
        """Whether backward computes the gradient of what crosses."""
        if name == _LOSSES or self._settings.input_grad:
            return True
        return name in self._graph.after_parameters or bool(self._graph.parameters(self._graph.layer(name)))


class StageAlone:
    """Computes microbatches without the other stages, on arrays drawn at random."""

    def __init__(self, module: nn.Module, crossing: Crossing, labels: Tensor, device: torch.device) -> None:
        self._module = module
        self._inputs = crossing.taken(device)
        self._labels = labels
        self._upstream: list[Tensor] = []

    def forward(self) -> list[Tensor]:
        outputs = self._module(*self._inputs, labels=self._labels)
        return [output for output in (outputs if isinstance(outputs, tuple) else (outputs,)) if output.requires_grad]

    def backward(self, outputs: Sequence[Tensor]) -> None:
        if not self._upstream:
            self._upstream = [torch.randn_like(output) for output in outputs]
        torch.autograd.backward(list(outputs), self._upstream)  # pyright: ignore[reportUnknownMemberType]
        for tensor in self._inputs:
            tensor.grad = None


class StageTransfers:
    """What a stage sends and receives, with nothing computed beside it. `before` and `after`: the ranks of its
    neighbours; None at an end of the pipeline."""

    def __init__(self, crossing: Crossing, before: int | None, after: int | None, device: torch.device) -> None:
        self._before, self._after = before, after
        self._taken, self._given = crossing.taken(device), crossing.given(device)

    def forward(self) -> list[dist.P2POp]:
        return [*_ops(dist.irecv, self._taken, self._before), *_ops(dist.isend, self._given, self._after)]

    def backward(self) -> list[dist.P2POp]:
        given, taken = ([each for each in some if each.requires_grad] for some in (self._given, self._taken))
        return [*_ops(dist.irecv, given, self._after), *_ops(dist.isend, taken, self._before)]

    def sends(self) -> list[tuple[int, int]]:
        """To which rank, and how many bytes, of one microbatch."""
        gradients = [each for each in self._taken if each.requires_grad]
        both = ((self._after, self._given), (self._before, gradients))
        return [(rank, _bytes(tensors)) for rank, tensors in both if rank is not None]


def _ops(kind: Callable[..., Any], tensors: Sequence[Tensor], peer: int | None) -> list[dist.P2POp]:
    return [] if peer is None else [dist.P2POp(kind, tensor.detach(), peer) for tensor in tensors]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
