"""Bytes per value of a precision, and arrays per weight of an optimizer."""

from __future__ import annotations

_VALUE_BYTES = {"fp64": 8, "bf16": 2, "bf16-mixed": 2, "fp16-mixed": 2}
_MASTER_BYTES = {"bf16-mixed": 4, "fp16-mixed": 4}
_OPTIMIZER_SLOTS = {"sgd": 0, "adam": 2, "adamw": 2}


def value_bytes(precision: str) -> int:
    """Return the bytes of one activation, or of one weight as the layers read it."""
    return _VALUE_BYTES.get(precision, 4)


def master_bytes(precision: str) -> int:
    """Return the bytes of each weight's master copy in mixed precision; 0 if there is none."""
    return _MASTER_BYTES.get(precision, 0)


def optimizer_slots(optimizer: str) -> int:
    """Return the number of state arrays per weight: a momentum, or Adam's two moments."""
    return _OPTIMIZER_SLOTS.get(optimizer, 1)
