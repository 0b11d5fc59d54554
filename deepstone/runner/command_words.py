"""The words of a command that gives a job again."""

from __future__ import annotations


def changed(*options: tuple[str, float, float]) -> list[str]:
    """Of (name, value, default), those that differ, as words: a record's command must give the same run again."""
    return [word for name, value, default in options if value != default for word in (name, f"{value:.12g}")]
