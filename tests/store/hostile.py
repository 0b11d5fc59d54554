"""Records with names that someone made up to break a reader."""

from __future__ import annotations

from typing import Any

from factory import JsonRecord, make_record
from hypothesis import strategies as st

from deepstone.results.paths import holds_path

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30)
NASTY = st.sampled_from(['"', "\\", "\n", "\\n", '"} 1\nx 2', "a,b", "{}", "\r\n", "\u2028", "=1+1", "🪨", "# HELP x"])
NAMES = st.one_of(NASTY, TEXT).filter(lambda text: bool(text) and not holds_path(text))


@st.composite
def records(draw: st.DrawFn) -> JsonRecord:
    """Valid ones: every name in them passes the checks, and is as odd as those allow."""
    record: Any = make_record(
        model=draw(NAMES),
        batch=draw(st.integers(1, 4096)),
        outcome=draw(st.sampled_from(["ok", "oom"])),
        requested={"framework": "torch", "device": "cpu", "layout": draw(NAMES), "threads": draw(st.integers(0, 9))},
    )
    record["setup"]["effective"]["layout"] = {"value": draw(NAMES), "source": "set"}
    record["environment"]["framework"]["version"] = draw(NAMES)
    return record
