"""The fake backend reads its script from the environment of the controller."""

from __future__ import annotations

import os

from deepstone.setups.request import Request

SCRIPT_VARIABLE = "DEEPSTONE_FAKE"


def environment(request: Request) -> dict[str, str]:
    script = os.environ.get(SCRIPT_VARIABLE)
    return {} if script is None else {SCRIPT_VARIABLE: script}
