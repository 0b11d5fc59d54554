"""The request's axes as Paddle settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import paddle

NAME = f"paddle {paddle.__version__}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings that affect how layers are lowered."""

    batch: int
    dtype: str
    training: bool
    dropout: bool
    input_grad: bool

    @staticmethod
    def of(request: Mapping[str, Any]) -> Settings:
        return Settings(
            batch=request["batch"],
            dtype="float64" if request["precision"] == "fp64" else "float32",
            training=request["phase"] != "forward",
            dropout=request["dropout"] == "on",
            input_grad=request["input_grad"] == "on",
        )

    @property
    def exact(self) -> bool:
        """In double precision, and with no constant in less."""
        return self.dtype == "float64"
