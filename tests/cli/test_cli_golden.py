"""The prose of the command line: what it answers to a fixed list of lines is in golden.txt, to be reviewed in diffs.

Other tests assert structure and numbers. Nothing is measured here, so the words are the same on every machine. After a
change of words:

    DEEPSTONE_TEST_GOLDEN=write pytest tests/cli/test_cli_golden.py
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from cli_kit import Cli
from factory import typed_draft
from test_cli_help import COMMANDS

from deepstone.store.store import Store

GOLDEN = Path(__file__).with_name("golden.txt")
RESULTS = Path(__file__).resolve().parents[2] / "results"
LINES = (
    *(shlex.join((*command, "--help")) for command in COMMANDS),
    "run alexnt",
    "run cifarnet bach=8",
    "run cifarnet layout=nwhc",
    "run cifarnet batch=0",
    "run cifarnet batch=8,8",
    "run cifarnet --bugdet 3",
    "run nowhere.py:make",
    "run cifarnet framework=fake --dry-run",
    "compare cifarnet batch=8",
    "study nothing.toml",
    "models cifarnet",
    "axes",
    "results list",
    "results list --store nowhere",
    "results show {first}",
    "results show {second}",
    "results show zzzz",
    "results compare {first} {second}",
    "results export --format xml",
    "papers kim2017 --no-run --also {results}/h200/runs.jsonl",
)


def said(cli: Cli, line: str, **names: object) -> str:
    done = cli(*shlex.split(line.format(**names)))
    streams = "".join(
        f"{name}| {text}".rstrip() + "\n"
        for name, whole in (("out", done.out), ("err", done.err))
        for text in whole.splitlines()
    )
    hidden = {str(cli.home): "HOME", str(cli.store): "STORE", str(RESULTS): "RESULTS"}
    for path, name in hidden.items():
        streams = streams.replace(path, name)
    return f"$ deepstone {line}\nexit {done.code}\n{streams}"


def test_the_words_are_those_that_were_reviewed(cli: Cli) -> None:
    store = Store.open(cli.store)
    first, second = (store.add(draft).id for draft in (typed_draft(), typed_draft(outcome="crashed")))
    found = "\n".join(said(cli, line, first=first, second=second, results=RESULTS) for line in LINES)
    if os.environ.get("DEEPSTONE_TEST_GOLDEN") == "write":
        GOLDEN.write_text(found, encoding="utf-8")
        pytest.skip("written")
    assert found == GOLDEN.read_text(encoding="utf-8"), f"the words changed; see {__file__}"
