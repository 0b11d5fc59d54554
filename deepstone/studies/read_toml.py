"""A study in TOML, with the line of every mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from deepstone.errors import UsageError, shown
from deepstone.studies.read_table import read_table
from deepstone.studies.source import Source
from deepstone.studies.study import Study
from deepstone.studies.toml_lines import places

LIMIT_BYTES: Final = 2**20


def read_toml(data: bytes, *, shown_as: str, name: str, folder: Path | None = None) -> Study:
    """`shown_as` is what messages call the file; UsageError in one line for anything wrong in it."""
    if len(data) > LIMIT_BYTES:
        raise UsageError(f"{shown_as}: is larger than {LIMIT_BYTES // 2**20} MiB; no study is")
    try:
        text = data.decode("utf-8")
        table = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{shown_as}: is nested too deeply") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{shown_as}, line {line}: is not UTF-8 text") from None
    except ValueError as error:  # what tomllib raises names the line itself
        raise UsageError(f"{shown_as}: is not TOML: {shown(' '.join(str(error).split()))}") from None
    return read_table(table, Source(shown=shown_as, folder=folder, lines=places(text)), name=name)
