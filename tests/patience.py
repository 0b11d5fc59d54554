"""What times show on a machine where others work too."""

from __future__ import annotations

from collections.abc import Callable


def shown(is_so: Callable[[], bool], tries: int = 10) -> bool:
    """Whether one of some looks shows it. Others on the machine hide what is there; they do not make up what is not."""
    return any(is_so() for _ in range(tries))
