"""A framework's own module as a graph of one layer. What it takes and gives is asked of its framework, elsewhere.

controller ── describe.py BACKEND_MODULE ANSWER FILE FUNCTION ──▶ the framework's own Python
           ◀───────────── ANSWER: JSON in a file ──────────────── runs the file, and the module once
"""

from __future__ import annotations

import ast
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from deepstone.backends.registry import BACKENDS
from deepstone.environments.child import ChildTimeout, run
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import GraphError, MissingError, UsageError
from deepstone.faults import reason
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Module, SoftmaxCrossEntropy
from deepstone.models.load import FRAMEWORK
from deepstone.models.reading import sha256_of

_SCRIPT: Final = Path(__file__).resolve().parent.parent / "worker" / "describe.py"
_TIMEOUT_S: Final = 300.0  # a large framework on a cold network file system takes minutes


def imports(content: bytes, package: str) -> bool:
    """Whether a Python file imports a package anywhere in it. One that is no Python imports nothing."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the latter two: nested too deeply
        return False
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        if any(name.partition(".")[0] == package for name in names):
            return True
    return False


def look_at(path: Path, content: bytes, function: str, *, say: Callable[[str], None]) -> Graph:
    """The graph of what the function makes. `say` gets every line that the user's file prints."""
    answer = _ask(find_environment(FRAMEWORK), path, function, say)
    if "error" in answer:
        raise (GraphError if answer["in_graph"] else UsageError)(answer["error"])
    if "graph" in answer:  # the file uses the framework for something else
        return Graph.from_json(answer["graph"])
    if answer["sha256"] != sha256_of(content):
        raise UsageError(f"{path} changed while it was looked at; try again")
    module = Module(
        path=str(path),
        function=function,
        sha256=answer["sha256"],
        features=answer["features"],
        weights=answer["weights"],
    )
    layers = [
        Layer(name="data", op=Input(shape=tuple(answer["input_shape"]))),
        Layer(name="module", op=module, inputs=("data",)),
        Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("module",)),
    ]
    return Graph(f"{path.stem}:{function}", layers)


def _ask(environment: Environment, path: Path, function: str, say: Callable[[str], None]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="deepstone-look-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        target = folder / "answer.json"
        try:
            code = run(
                [*environment.command, str(_SCRIPT), BACKENDS[FRAMEWORK].own_modules, str(target), str(path), function],
                variables=environment.variables_over(os.environ),
                folder=folder,
                line=say,
                timeout_s=_TIMEOUT_S,
            )
        except ChildTimeout:
            raise UsageError(f"{path}:{function} made and ran no module within {_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise MissingError(f"{environment.command[0]} cannot be run: {reason(error)}") from error
        try:
            return json.loads(target.read_bytes())
        except (OSError, ValueError):
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise UsageError(f"{path}:{function}: the process that looked at it {ended}") from None
