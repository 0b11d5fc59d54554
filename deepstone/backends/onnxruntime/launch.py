"""What must be in the environment before ONNX Runtime is imported: nothing, it is told all through its interface."""

from __future__ import annotations

from deepstone.setups.request import Request


def environment(request: Request) -> dict[str, str]:
    return {}
