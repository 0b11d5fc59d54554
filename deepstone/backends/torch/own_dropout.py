"""Dropout of a user's own module: turned off if the job requests it, in layers and in functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # pyright: ignore[reportPrivateImportUsage]
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from deepstone.backends.base import Unsupported

_LAYERS: Final = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_FUNCTIONS: Final = (
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
)
_LOW_LEVEL: Final = (torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.feature_alpha_dropout)
_ATTENTION: Final[Callable[..., Tensor]] = F.scaled_dot_product_attention
_drops = True  # whether the functions that take the place of torch's drop anything


def turn_off_inner(module: nn.Module) -> None:
    """Turn off dropout inside recurrent and attention layers, which have their own rate."""
    for each in module.modules():
        if isinstance(each, (nn.RNNBase, nn.MultiheadAttention)):
            each.dropout = 0.0


def turn_off_layers(module: nn.Module) -> None:
    """Turn off dropout layers. Call it after `train`, which turns them on."""
    for each in module.modules():
        if isinstance(each, _LAYERS):
            each.eval()


def let_functions_drop(drops: bool) -> None:
    """Decide for this process whether functions of `torch.nn.functional` drop.

    Call this before the user's file runs, so that it imports the functions that obey.
    """
    global _drops
    _drops = drops
    if not drops:
        for function in _FUNCTIONS:
            setattr(F, function.__name__, _obeying(function))
        F.scaled_dot_product_attention = _obeying_attention


# TorchScript compiles these as they are, so it must see plain parameters, and no variable of this module that changes.


@functools.cache
def _obeying(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if is_scripting():
            return input
        else:  # noqa: RET505  what TorchScript does not compile
            return function(input, p, training, inplace) if _drops else input

    return dropout


def _obeying_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if is_scripting():  # noqa: SIM108  TorchScript compiles both sides of an expression
        rate = 0.0
    else:
        rate = dropout_p if _drops else 0.0
    return _ATTENTION(query, key, value, attn_mask, rate, is_causal, scale=scale, enable_gqa=enable_gqa)


class RefusesDropout(TorchFunctionMode):
    """Raises an error, while it is entered, for dropout that was not turned off."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        low_level = func in _LOW_LEVEL and all((*args, *options.values())[1:])  # the rate, and whether it is training
        drops = func in _FUNCTIONS and options.get("training", True) and options.get("p", 0.5) > 0
        if low_level or drops or options.get("dropout_p", 0.0) > 0:
            raise Unsupported(
                f"the module calls {func.__name__} in a way that dropout=off does not reach; use dropout=on"
            )
        return func(*args, **options)
