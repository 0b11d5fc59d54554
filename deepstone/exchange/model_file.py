"""A user's Python file as a model: what its function makes is a graph, or a framework's own module.

The file is a program: it may hang, exit, print without end or leave daemons behind. So it runs in a process of its own,
within a time, and whatever it started is ended with it.

controller ── describe.py MODULE ANSWER FILE FUNCTION ──▶ a Python: ours, or the framework's own
           ◀──────── ANSWER: JSON in a file ───────────── runs the file, calls the function, tells what it made
"""

from __future__ import annotations

import ast
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from deepstone.backends.registry import BACKENDS, backend_of
from deepstone.environments.find import find_environment
from deepstone.errors import GraphError, MissingError, UsageError, reason
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Module, ModuleLoss, Op, SoftmaxCrossEntropy, Tensors
from deepstone.models.load import FRAMEWORK, ForeignModelError, MissingModuleError
from deepstone.models.reading import FILE_LIMIT_BYTES, sha256_of
from deepstone.supervise import OutputFlood, ProcessTimeout, make_harmless, run_program

_SCRIPT: Final = Path(__file__).resolve().parent.parent / "worker" / "describe.py"
_PLAIN: Final = "deepstone.models.load"  # whose `describe` needs no framework
_KINDS: Final = {kind.__name__: kind for kind in (UsageError, GraphError, ForeignModelError, MissingModuleError)}
_USUAL_TIMEOUT_S: Final = 300.0  # a large framework on a cold network file system takes minutes
# No file has a reason to print so much. Of what it prints the beginning is shown.
_MOST_PRINTED_BYTES: Final = 16 * 2**20
_MOST_SHOWN_BYTES: Final = 64 * 2**10
_INPUTS: Final = "INPUTS"  # the name by which a file says what a sample is
_IMAGE_DIMENSIONS: Final = 3


def _has_image(inputs: ast.expr | None) -> bool:
    """Whether `INPUTS` names an input of three dimensions or more, or does not show its dimensions."""
    if not isinstance(inputs, ast.Dict) or not all(isinstance(each, ast.Dict) for each in inputs.values):
        return True
    specs = [each for each in inputs.values if isinstance(each, ast.Dict)]
    return any(_dimensions(spec) >= _IMAGE_DIMENSIONS for spec in specs)


def _dimensions(spec: ast.Dict) -> float:
    for key, value in zip(spec.keys, spec.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "shape":
            is_plain = isinstance(value, ast.Tuple | ast.List)
            is_counted = is_plain and not any(isinstance(each, ast.Starred) for each in value.elts)
            return len(value.elts) if is_plain and is_counted else math.inf
    return 0 if None not in spec.keys else math.inf


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What describe.py writes: an error, a graph, or what a framework's own module is."""

    error: str = ""
    kind: str = ""  # of the error
    sha256: str = ""  # of the file that it ran
    graph: object = None
    features: int = 0
    weights: int = 0
    input_shape: tuple[int, ...] = ()
    # Of a module whose file says what its inputs are:
    inputs: str = ""
    values: int = 0
    unit: str = ""
    units_per_sample: int = 0
    own_optimizer: bool = False


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of the file, and the function in it that makes a model."""

    path: Path
    content: bytes
    function: str
    timeout_s: float | None = None  # None: the user gave none

    def imports(self, package: str) -> bool:
        """Whether the file imports a package anywhere in it. One that is no Python imports nothing."""
        try:
            tree = ast.parse(self.content)
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

    @property
    def may_take_images(self) -> bool:
        """Whether a sample may be an image, or have places as one has; by what the file says without running."""
        try:
            body = ast.parse(self.content).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return True
        for node in body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(each, ast.Name) and each.id == _INPUTS for each in targets):
                    return _has_image(node.value)
        return True

    def graph(self) -> Graph:
        """What the function makes, asked of our own Python. ForeignModelError where a framework's must be asked."""
        # Where the user stands, so that a file which opens others by relative names finds them.
        return Graph.from_json(self._ask((sys.executable,), _PLAIN, os.environ, Path.cwd()).graph)

    def another_python(self, framework: str) -> bool:
        """Whether a framework is installed for another Python, which may have packages that ours has not."""
        try:
            return find_environment(framework).command != (sys.executable,)
        except MissingError:
            return False

    def graph_of_module(self, framework: str) -> Graph:
        """What the function makes, asked of the Python that `framework=` means. A module is a graph of one layer."""
        environment = find_environment(framework)
        if not backend_of(environment.framework, environment.version).own_modules:
            environment = find_environment(FRAMEWORK)  # another can tell what it makes; the job will be refused
        module = BACKENDS[environment.framework].own_modules
        answer = self._ask(environment.command, module, environment.variables_over(os.environ))
        if answer.graph is not None:  # the file uses the framework for something else
            return Graph.from_json(answer.graph)
        layers = self._step_layers(answer) if answer.inputs else self._classifier_layers(answer)
        return Graph(f"{self.path.stem}:{self.function}", layers)

    def _classifier_layers(self, answer: _Answer) -> list[Layer]:
        """A module from images to classes."""
        op = self._op(Module, answer, features=answer.features)
        return [
            Layer(name="data", op=Input(shape=answer.input_shape)),
            Layer(name="module", op=op, inputs=("data",)),
            Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("module",)),
        ]

    def _step_layers(self, answer: _Answer) -> list[Layer]:
        """A module with inputs and a loss of its own."""
        unit, count = answer.unit, answer.units_per_sample
        op = self._op(ModuleLoss, answer, unit=unit, units_per_sample=count, own_optimizer=answer.own_optimizer)
        return [
            Layer(name="data", op=Tensors(spec=answer.inputs, values=answer.values)),
            Layer(name="module", op=op, inputs=("data",)),
        ]

    def _op(self, kind: Callable[..., Op], answer: _Answer, **facts: object) -> Op:
        """The module as an operation: the file and function that make it, its weights, and these facts."""
        file, function = str(self.path), self.function
        return kind(path=file, function=function, sha256=answer.sha256, weights=answer.weights, **facts)

    def _ask(
        self, command: Sequence[str], module: str, variables: Mapping[str, str], folder: Path | None = None
    ) -> _Answer:
        with tempfile.TemporaryDirectory(prefix="deepstone-look-", ignore_cleanup_errors=True) as name:
            target = Path(name, "answer.json")
            words = [*command, str(_SCRIPT), module, str(target), str(self.path), self.function]
            code = self._run(words, variables, folder or Path(name))
            answer = _answer(target)
        if answer is None:
            ended = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
            raise UsageError(f"{self}: the process that ran it {ended} before {self.function} had returned")
        if answer.error:
            raise _KINDS.get(answer.kind, UsageError)(answer.error)
        if answer.sha256 != sha256_of(self.content):
            raise UsageError(f"{self.path} changed while it was looked at; try again")
        return answer

    def _run(self, command: Sequence[str], variables: Mapping[str, str], folder: Path) -> int:
        limit_s = _USUAL_TIMEOUT_S if self.timeout_s is None else self.timeout_s
        relay = _Relay(self)
        try:
            return run_program(
                command,
                env=variables,
                cwd=folder,
                on_line=relay.show,
                timeout_s=limit_s,
                most_bytes=_MOST_PRINTED_BYTES,
            )
        except ProcessTimeout:
            remedy = "" if self.timeout_s is None else "; raise it with --timeout"
            raise UsageError(f"{self}: no model within the time limit of {limit_s:g} s{remedy}") from None
        except OutputFlood:
            most = f"{_MOST_PRINTED_BYTES // 2**20} MiB"
            raise UsageError(f"{self}: it printed more than {most} before {self.function} had returned") from None
        except OSError as error:
            raise MissingError(f"{command[0]} cannot be run: {reason(error)}") from error

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"


class _Relay:
    """What a user's file prints goes to standard error, wherever it runs; not all of a flood, and without the control
    characters that a terminal would obey."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._left_bytes = _MOST_SHOWN_BYTES

    def show(self, line: str) -> None:
        if self._left_bytes <= 0:
            return
        shown = make_harmless(line[: self._left_bytes])
        self._left_bytes -= len(shown) + 1
        sys.stderr.write(f"{shown}\n")
        if self._left_bytes <= 0:
            sys.stderr.write(f"{self._file}: it prints more than is shown here\n")


def _answer(path: Path) -> _Answer | None:
    """None where there is none: the process ended before."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(FILE_LIMIT_BYTES), type=_Answer)
    except (OSError, ValueError):
        return None
