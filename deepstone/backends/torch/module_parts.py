"""The parts of a user's own module, and callbacks for each part while it runs.

A part is an innermost submodule, or a call of one of torch's functions outside of these; the other submodules contain:

    blocks.0 (Block)
    ├── blocks.0.norm1 (LayerNorm)
    ├── blocks.0.attention (Attention)
    │   ├── blocks.0.attention.qkv (Linear)
    │   └── blocks.0.attention.scaled_dot_product_attention()
    └── blocks.0.add()                              all calls of a function in one forward are one part

Hooks see submodules, and a TorchFunctionMode sees calls. Times, FLOPs, memory and the ranges of a trace each have a
`Watcher`, so they speak of the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deepstone.backends.torch.own_module import OwnModule

LOSS: Final = "loss"  # the path of what a file's own loss function calls
# They tell something about a tensor, or name a range of a trace, and compute nothing. There are very many of them.
_QUESTIONS: Final = frozenset(
    {
        "__get__",
        "__set__",
        "__len__",
        "__hash__",
        "size",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "stride",
        "storage_offset",
        "element_size",
        "data_ptr",
        "get_device",
        "is_floating_point",
        "is_complex",
        "is_contiguous",
        "is_tensor",
        "has_names",
        "register_hook",
        "requires_grad_",
        "_record_function_enter_new",
        "_record_function_exit._RecordFunction",
    }
)
# They only look at a tensor's values in another way. Those that copy where they must, such as reshape, are not here.
_VIEWS: Final = frozenset(
    {
        "view",
        "view_as",
        "permute",
        "transpose",
        "t",
        "swapaxes",
        "swapdims",
        "movedim",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "unflatten",
        "unbind",
        "chunk",
        "split",
        "narrow",
        "select",
    }
)
_WORDS: Final = {"getitem": "index", "setitem": "index_put", "truediv": "div"}

Begins: TypeAlias = Callable[[Any], None]  # with the inputs, nested as they are
Ends: TypeAlias = Callable[[Any], None]  # with the output
Handlers: TypeAlias = tuple[Begins, Ends]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part. `path` is that of the submodule, or of the one whose forward makes the call. `op` is a class, or a
    function()."""

    path: str
    op: str
    module: nn.Module | None = None  # None: a call

    @property
    def name(self) -> str:
        if self.module is not None:
            return self.path or self.op
        return f"{self.path}.{self.op}" if self.path else self.op


class Watcher(Protocol):
    """Callbacks before and after each part. They are requested once for each part, so that a step costs little."""

    def part(self, part: Part) -> Handlers: ...

    def container(self, path: str, module: nn.Module) -> Handlers | None: ...


def innermost(module: nn.Module, *, root: bool = False) -> bool:
    """Whether a submodule is one part. The whole module is one only if it is torch's: else its calls are its parts."""
    if any(module.children()):
        return False
    return not root or type(module).__module__.startswith("torch.nn.")


def containers(own: OwnModule) -> dict[str, str]:
    """The class of each submodule that has parts, by its path."""
    return {
        path: type(module).__name__
        for path, module in own.inner.named_modules()
        if not innermost(module, root=module is own.inner)
    }


@contextmanager
def watching(own: OwnModule, watcher: Watcher) -> Generator[None, None, None]:
    """Have each forward of the module call the watcher's functions while it is entered."""
    watch = _Watch(watcher)
    handles: list[Any] = []
    try:
        handles.append(own.register_forward_pre_hook(watch.enter))
        handles.append(own.register_forward_hook(watch.leave, always_call=True))
        for path, module in own.inner.named_modules():
            if isinstance(module, nn.Identity):
                continue
            if innermost(module, root=module is own.inner):
                handles += watch.hook_part(Part(path=path, op=type(module).__name__, module=module), module)
            else:
                handles += watch.hook_container(path, module)
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Watch:
    """Tracks the submodule whose forward is running."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._paths: list[str] = []
        self._inside = 0  # of how many parts
        self._calls: dict[tuple[str, str], Handlers] = {}
        self._mode = _Calls(self)

    def enter(self, *_: object) -> None:
        self._paths[:] = [LOSS]
        self._inside = 0
        self._mode.__enter__()

    def leave(self, *_: object) -> None:
        self._mode.__exit__(None, None, None)

    def hook_part(self, part: Part, module: nn.Module) -> Iterator[Any]:
        begins, ends = self._watcher.part(part)

        def begin(_module: nn.Module, inputs: Any, named: Any) -> None:
            self._inside += 1
            if self._inside == 1:
                begins((inputs, named))

        def end(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if self._inside == 1:
                ends(output)
            self._inside -= 1

        yield module.register_forward_pre_hook(begin, with_kwargs=True)
        yield module.register_forward_hook(end)

    def hook_container(self, path: str, module: nn.Module) -> Iterator[Any]:
        handlers = self._watcher.container(path, module)

        def begin(_module: nn.Module, inputs: Any) -> None:
            self._paths.append(path)
            if handlers is not None:
                handlers[0](inputs)

        def end(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if handlers is not None:
                handlers[1](output)
            self._paths.pop()

        yield module.register_forward_pre_hook(begin)
        yield module.register_forward_hook(end)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        name = getattr(function, "__name__", "call")
        if self._inside or name in _QUESTIONS:
            return function(*args, **named)
        key = (self._paths[-1], name)
        handlers = self._calls.get(key)
        if handlers is None:
            part = Part(path=key[0], op=f"{_word(name)}()")
            self._calls[key] = handlers = self._watcher.part(part)
        handlers[0]((args, named))
        output = function(*args, **named)
        handlers[1](output)
        return output


class _Calls(TorchFunctionMode):
    """Intercepts calls. torch disables it while it handles a call, so nested calls are not seen."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._watch.call(func, args, kwargs or {})


def _word(name: str) -> str:
    """Return the usual name: add for `__add__` and `add_`."""
    if name in _VIEWS:
        return "views"
    plain = name.strip("_")
    return _WORDS.get(plain, plain)


def tensors_in(content: Any) -> Iterator[Tensor]:
    """Return the tensors that a module or a function takes or returns, however they are nested."""
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping):
        for each in cast(Mapping[object, Any], content).values():
            yield from tensors_in(each)
    elif isinstance(content, (tuple, list)):
        for each in cast(tuple[Any, ...], content):
            yield from tensors_in(each)
