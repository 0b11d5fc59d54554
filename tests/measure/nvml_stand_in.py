"""A stand-in for NVIDIA's library, compiled for the tests so that the calls of pynvml really run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from deepstone.measure import nvml

SOURCE = Path(__file__).with_name("fake_nvml.c")


class FakeNvml:
    """The compiled library in the driver's place, and the variables that script it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library["fake_reset"]()
        monkeypatch.setattr(nvml, "LIBRARY", str(path))
        monkeypatch.setattr(pynvml, "nvmlLib", self._library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def set(self, **values: int) -> None:
        for name, value in values.items():
            ctypes.c_ulonglong.in_dll(self._library, f"fake_{name}").value = value

    @property
    def users(self) -> int:
        return ctypes.c_ulonglong.in_dll(self._library, "fake_users").value


@pytest.fixture(scope="session")
def compile_fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc to compile the stand-in for NVML")
    folder = tmp_path_factory.mktemp("nvml")

    def compiled(*options: str) -> Path:
        path = folder / f"libfake{''.join(options)}.so"
        if not path.exists():
            subprocess.run([gcc, "-shared", "-fPIC", *options, "-o", str(path), str(SOURCE)], check=True)
        return path

    return compiled


@pytest.fixture
def fake_nvml(compile_fake_nvml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(compile_fake_nvml(), monkeypatch)


@pytest.fixture
def old_fake_nvml(compile_fake_nvml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(compile_fake_nvml("-DOLD_DRIVER"), monkeypatch)


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without NVIDIA's driver."""
    monkeypatch.setattr(nvml, "LIBRARY", "libnot-here.so.1")
