"""Who wants to know how far the making of an environment is."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    def tell(self, stage: str, detail: str, share: float) -> None:
        """What is going on (few different ones), with what, and which share of all is done."""
        ...

    def say(self, message: str) -> None:
        """A message for the person."""
        ...


class Silent:
    def tell(self, stage: str, detail: str, share: float) -> None:
        del stage, detail, share

    def say(self, message: str) -> None:
        del message
