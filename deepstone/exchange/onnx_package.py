"""The `onnx` package, which is an extra: only who reads or writes an ONNX file needs it."""

from __future__ import annotations

from types import ModuleType

from deepstone.errors import MissingError


def onnx_package() -> ModuleType:
    try:
        import onnx
    except ImportError as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"does not import: {error}"
        raise MissingError(f"the package onnx {why}; pip install 'deepstone[onnx]'") from error
    return onnx
