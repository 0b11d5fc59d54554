"""Describes the model in a user's file, in our own Python or a framework's: describe.py MODULE ANSWER FILE FUNCTION.

The answer is JSON in a file, since frameworks and users print: the result of MODULE's `describe`, or an error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn


def main(module: str, target: str, path: str, function: str) -> NoReturn:
    from deepstone.errors import UsageError

    try:
        answer: dict[str, Any] = importlib.import_module(module).describe(Path(path), function)
    except UsageError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    unready = Path(f"{target}.new")
    unready.write_text(json.dumps(answer), encoding="utf-8")
    unready.rename(target)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread that the file started must not keep this process alive


if __name__ == "__main__":
    from serve import borrow_package  # pyright: ignore  it is in this folder, and the package is not importable yet

    borrow_package()
    del sys.modules["serve"]  # a user's file may have a sibling of that name
    main(*sys.argv[1:])
