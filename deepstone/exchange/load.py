"""The front door for models: everything models/load.py knows, and what needs more than this Python to be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from deepstone.errors import UsageError
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Conv, Shape
from deepstone.models.load import FRAMEWORK, ForeignModelError, LoadedModel, MissingModuleError, load_in_process
from deepstone.models.program import why_not_callable
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


class Glance(Struct, frozen=True, kw_only=True):
    """A model as far as it is known without a framework. `graph`: None of a file that is for torch, which is not run.
    `may_convolve`: whether it may have convolutions."""

    name: str
    graph: Graph | None
    may_convolve: bool

    @staticmethod
    def of(graph: Graph) -> Glance:
        may_convolve = bool(graph.opaque) or any(isinstance(layer.op, Conv) for layer in graph.layers)
        return Glance(name=graph.name, graph=graph, may_convolve=may_convolve)


def load_without_framework(reference: str, *, image: Shape | None = None) -> Glance:
    """What is known of a model without running a file that is for torch."""
    _check_image(reference, image)
    path, _, function = reference.rpartition(":")
    if not path.endswith(".py"):
        loaded = load_model(reference, image=image)
        return replace(Glance.of(loaded.graph), name=loaded.name)
    from deepstone.exchange.model_file import ModelFile

    content = read_file(absolute(path))
    file = ModelFile(path=absolute(path), content=content, function=function, timeout_s=None)
    unseen = Glance(name=f"{file.path.stem}:{function}", graph=None, may_convolve=file.may_take_images)
    if refusal := why_not_callable(file.path, content, function):
        raise UsageError(refusal)
    if file.imports(FRAMEWORK):
        return unseen
    try:
        return Glance.of(file.graph())
    except (ForeignModelError, MissingModuleError):
        return unseen


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
