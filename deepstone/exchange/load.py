"""The front door for models: everything models/load.py knows, and what needs more than this Python to be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deepstone.errors import UsageError, nearest
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Shape
from deepstone.models.load import FRAMEWORK, ForeignModelError, LoadedModel, MissingModuleError, load_in_process
from deepstone.models.program import functions_in
from deepstone.models.reading import absolute, read_file, sha256_of


def load_model(
    reference: str,
    *,
    frameworks: Iterable[object] = (),
    timeout_s: float | None = None,
    image: Shape | None = None,
) -> LoadedModel:
    """The model that `reference` means; UsageError in one line when there is none, MissingError when a library is.

    A Python file that is for torch is looked at by the first torch of the `frameworks` that the user named: it has what
    the file needs. It has `timeout_s` to make a model, which the user gave with --timeout; a usual time otherwise.
    `image` is the size of an image, given with --input: for files that may leave it open.
    """
    _check_image(reference, image)
    if reference.endswith(".onnx"):
        return _load_onnx(absolute(reference), image)
    path, _, function = reference.rpartition(":")
    if path.endswith(".py"):
        return _load_python(absolute(path), function, frameworks, timeout_s)
    return load_in_process(reference, image=image)


def load_without_framework(reference: str, *, image: Shape | None = None) -> tuple[str, Graph | None]:
    """The name of a model and, if no framework must look at it, its graph. A file that is for torch is not run."""
    _check_image(reference, image)
    path, _, function = reference.rpartition(":")
    if not path.endswith(".py"):
        loaded = load_model(reference, image=image)
        return loaded.name, loaded.graph
    from deepstone.exchange.model_file import ModelFile

    content = read_file(absolute(path))
    file = ModelFile(path=absolute(path), content=content, function=function, timeout_s=None)
    name = f"{file.path.stem}:{function}"
    if function not in functions_in(content):
        raise UsageError(f"{path} has no function {function!r}; {nearest(function, functions_in(content))}")
    if file.imports(FRAMEWORK):
        return name, None
    try:
        graph = file.graph()
    except (ForeignModelError, MissingModuleError):
        return name, None
    return graph.name, graph


def _check_image(reference: str, image: Shape | None) -> None:
    if image is not None and not reference.endswith((".onnx", ".prototxt")):
        raise UsageError(f"--input: {reference} has its own size of images; it is for .onnx and .prototxt files")


def _load_onnx(path: Path, image: Shape | None) -> LoadedModel:
    from deepstone.exchange.onnx_file import LIMIT_BYTES
    from deepstone.exchange.onnx_read import read

    content = read_file(path, LIMIT_BYTES)
    return _loaded(read(path, content, image=image), path, content)


def _load_python(path: Path, function: str, frameworks: Iterable[object], timeout_s: float | None) -> LoadedModel:
    """A file that imports torch is looked at in torch's own Python, which need not be ours."""
    from deepstone.exchange.model_file import ModelFile

    content = read_file(path)
    file = ModelFile(path=path, content=content, function=function, timeout_s=timeout_s)
    named = [str(name) for name in frameworks if str(name).partition("@")[0] == FRAMEWORK]
    framework = named[0] if named else FRAMEWORK
    if not file.imports(FRAMEWORK):
        try:
            return _loaded(file.graph(), path, content)
        except ForeignModelError:
            pass  # it is a sibling of the file, or a library, that imports torch
        except MissingModuleError:
            if not file.another_python(framework):
                raise
    return _loaded(file.graph_of_module(framework), path, content)


def _loaded(graph: Graph, path: Path, content: bytes) -> LoadedModel:
    return LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256=sha256_of(content))
