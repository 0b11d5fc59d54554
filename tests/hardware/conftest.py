"""The stand-in for NVML lies with the tests of `measure.nvml`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "measure"))

from nvml_stand_in import compile_fake_nvml, fake_nvml, no_driver

__all__ = ["compile_fake_nvml", "fake_nvml", "no_driver"]
