"""Values that we convert are what typer makes of them; all others are left to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from deepstone.cli.values import skip_needless_conversions

app = typer.Typer()


@app.command()
def command(
    path: Annotated[Path | None, typer.Option()] = None,
    there: Annotated[Path | None, typer.Option(exists=True)] = None,
    seconds: Annotated[float, typer.Option(min=0.5, max=100)] = 1.0,
    count: Annotated[int, typer.Option(min=1)] = 1,
    text: Annotated[str, typer.Option()] = "",
) -> None: ...


def outcome(name: str, value: str, *, ours: bool) -> tuple[type, str]:
    """The type and the text of what the value becomes, or of the refusal."""
    made: Any = typer.main.get_command(app)
    if ours:
        skip_needless_conversions(made.params)
    try:
        with made.make_context("command", [f"--{name}={value}"]) as context:
            found = context.params[name]
    except Exception as refusal:  # noqa: BLE001
        return type(refusal), str(refusal)
    return type(found), repr(found)


WORDS = "/|.|x/../y|nowhere|1|0|007|0.5|1.|.5|1e1|101|-1|nan|1_0| 1|1.5|99999999999999999999||~|\u0661"  # an Arabic one
values = st.sampled_from(WORDS.split("|")) | st.text("0123456789._+-e ", max_size=8)


@pytest.mark.parametrize("name", ["path", "there", "seconds", "count", "text"])
@given(value=values)
def test_it_is_what_typer_makes_of_it(name: str, value: str) -> None:
    assert outcome(name, value, ours=True) == outcome(name, value, ours=False)
