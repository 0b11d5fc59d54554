"""What has changed in an environment since it was made: measurements before and after are not of the same thing."""

from __future__ import annotations

from collections.abc import Mapping


def drift(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Each change in words, none when the locks are equal."""
    names = sorted({*then, *now})
    return [_change(name, then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)]


def _change(name: str, then: str | None, now: str | None) -> str:
    if then is None:
        return f"{name} {now} was added"
    if now is None:
        return f"{name} {then} was removed"
    return f"{name} was {then} and is {now}"
