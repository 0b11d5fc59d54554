"""Names as a figure can show them: harmless, and no longer than the room they have."""

from __future__ import annotations

import textwrap

from deepstone.errors import shown

_LONGEST_NAME = 300  # beyond it nobody reads, and a line of megabytes stops a renderer
LONGEST_SENTENCE = 1500


def harmless(text: str, longest: int = _LONGEST_NAME) -> str:
    """With control characters, and those that turn the direction of writing, spelt out."""
    return shortened(shown(text), longest)


def shortened(text: str, room: int) -> str:
    """Of at most so many characters: both ends stay, since names of layers differ at either."""
    if len(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[-tail:] if tail else ''}"


def cut(text: str, room: int) -> str:
    """The beginning of a sentence, of at most so many characters."""
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"


def listed(words: list[str], at_most: int = 4) -> str:
    """A few of them, and how many more there are."""
    more = len(words) - at_most
    return ", ".join(words[:at_most]) + (f" and {more} more" if more > 0 else "")


def wrapped_name(name: str, room: int, lines: int = 3) -> list[str]:
    """A name over a few lines, broken at blanks and underscores where it has any."""
    parts = textwrap.wrap(name.replace("_", "_ ").replace("-", "- "), room) or [""]
    joined = [part.replace("_ ", "_").replace("- ", "-") for part in parts]
    return joined if len(joined) <= lines else [*joined[: lines - 1], shortened("".join(joined[lines - 1 :]), room)]


def file_name(name: str) -> str:
    """Of letters, digits and dashes alone: fit for an anchor and for a file."""
    words = "".join(sign if sign.isascii() and sign.isalnum() else " " for sign in name).split()
    return "-".join(words)[:100] or "figure"
