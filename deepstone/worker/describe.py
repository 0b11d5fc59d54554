"""Tells what a user's file makes, in the framework's own Python: describe.py BACKEND_MODULE ANSWER FILE FUNCTION.

The answer is JSON in a file, since frameworks and users print: what BACKEND_MODULE's `describe` gives, or an error.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(backend_module: str, target: str, path: str, function: str) -> None:
    from deepstone.errors import GraphError, UsageError

    try:
        answer: dict[str, Any] = importlib.import_module(backend_module).describe(Path(path), function)
    except UsageError as error:
        answer = {"error": str(error), "in_graph": isinstance(error, GraphError)}
    Path(target).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    from serve import borrow_package  # pyright: ignore  it lies beside this file, and the package is not there yet

    borrow_package()
    del sys.modules["serve"]  # a user's file may have a sibling of that name
    main(*sys.argv[1:])
