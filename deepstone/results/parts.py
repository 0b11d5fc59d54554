"""Building blocks of result types: the base class, values that may be absent, tables, numbers and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Self,
    TypeAlias,
    TypeGuard,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta

from deepstone.absent import Absent

T = TypeVar("T")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A result, or a part of one. A field with the default None may be missing in JSON."""

    def to_json(self) -> dict[str, Json]:
        """Return dictionaries and lists."""
        return msgspec.to_builtins(self)

    @classmethod
    def like(cls, source: object, **own: object) -> Self:
        """Make one with `own` fields; all others are those of `source` with the same names."""
        same: dict[str, Any] = {name: getattr(source, name) for name in cls.__struct_fields__ if name not in own}
        return cls(**same, **own)


if TYPE_CHECKING:
    Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json]"
    OrAbsent: TypeAlias = T | Absent  # pyright: ignore[reportGeneralTypeIssues]
    Table: TypeAlias = Mapping[str, T]
else:
    Json = Any

    class _Anything(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return True

    class OrAbsent(Generic[T], metaclass=_Anything):
        """T, or `{"absent": reason}`. msgspec has no union of two types that are both objects in JSON."""

    class Table(Generic[T], metaclass=_Anything):
        """An object with any keys. Unlike `dict[str, T]`, it names the key in an error."""


Number: TypeAlias = int | float
AtLeast0: TypeAlias = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
SomeText: TypeAlias = Annotated[str, Meta(min_length=1)]
Sha: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
RunId: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{20}-[1-9][0-9]{0,8}\Z")]
Time: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z\Z")]
Value: TypeAlias = str | int  # of an axis
Command: TypeAlias = Annotated[list[str], Meta(min_length=1)]

AT: Final = " - at `$"  # how msgspec writes a place


def from_builtins(kind: Any, content: object) -> Any:
    """Convert the types above: the `dec_hook` of `msgspec.convert`. Errors keep their place."""
    origin, (inner,) = get_origin(kind), get_args(kind)
    if origin is OrAbsent:
        return _absent(content) if _is_object(content) and "absent" in content else _convert(content, inner)
    if not _is_object(content):
        raise ValueError(f"Expected `object`, got `{type(content).__name__}`")
    return {key: _convert(value, inner, f"{AT}.{key}`") for key, value in content.items()}


def _is_object(content: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(content, Mapping)


def _absent(content: Mapping[str, object]) -> Absent:
    reason = content["absent"]
    if len(content) != 1 or not isinstance(reason, str) or not reason:
        raise ValueError("what is absent must be exactly {'absent': reason}")
    return Absent(reason)


def _convert(content: object, kind: Any, place: str = "") -> Any:
    try:
        return msgspec.convert(content, kind, dec_hook=from_builtins)
    except msgspec.ValidationError as error:  # add the place of `content` to the message
        raise ValueError(f"{error}{place}") from None
