"""What must be in the environment before an old framework is imported. Read by the controller, so it imports none.

One for all of them: which library computes differs, and a switch of a library that is not there does nothing.
"""

from __future__ import annotations

from typing import Final

from deepstone.setups.axes import AUTO
from deepstone.setups.request import Request

# OpenMP for MKL-DNN, GNU's and Intel's alike; the rest for libraries with a count of their own.
_COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def environment(request: Request) -> dict[str, str]:
    if request["threads"] == AUTO:
        return {}
    return dict.fromkeys(_COUNTS, str(request["threads"]))
