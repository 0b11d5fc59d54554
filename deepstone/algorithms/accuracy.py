"""How far a result is from the exact one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepstone.absent import Absent


def relative_error(found: NDArray[Any], exact: NDArray[np.float64]) -> float | Absent:
    """‖found − exact‖ / ‖exact‖, in float64."""
    if found.shape != exact.shape:
        return Absent(f"the result has the shape {list(found.shape)} and not {list(exact.shape)}")
    size = float(np.linalg.norm(exact))
    error = float(np.linalg.norm(found.astype(np.float64) - exact))
    if not math.isfinite(error):
        return Absent("the result holds numbers that are not finite")
    return error / size if size else error
