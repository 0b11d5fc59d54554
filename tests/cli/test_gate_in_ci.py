"""The shell lines of the GitHub Action and of the Containerfile, run by bash as a CI would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest
from cli_kit import SCRIPT, Cli, script

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github" / "actions" / "gate" / "action.yml"
CONTAINERFILE = ROOT / "Containerfile"
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # as GitHub starts it


def steps() -> dict[str, str]:
    """What each step of the action runs, by its name."""
    pieces = re.split(r"^    - name: ", ACTION.read_text(), flags=re.MULTILINE)[1:]
    found: dict[str, str] = {}
    for piece in pieces:
        body = re.search(r"^      run: \|\n((?:        .*\n|\n)+)", piece, re.MULTILINE)
        assert body is not None
        found[piece.splitlines()[0]] = textwrap.dedent(body[1])
    return found


def bash(cli: Cli, lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = cli.environment(**variables)
    environment["PATH"] = f"{SCRIPT.parent}:{os.environ['PATH']}"
    return subprocess.run(
        [*BASH, lines], env=environment, cwd=cli.home, capture_output=True, text=True, timeout=200, check=False
    )


def measure(cli: Cli, store: str, step_s: float) -> None:
    words = "cifarnet framework=fake batch=8 --launches 2 --budget 0.3"
    fake = script(step_s=step_s, noise=0.001)
    done = bash(cli, steps()["Measure"], RUN=words, STORE=store, DEEPSTONE_FAKE=fake)
    assert done.returncode == 0, done.stderr


def gate(cli: Cli, store: str) -> subprocess.CompletedProcess[str]:
    more = {"BASELINE": "main.jsonl", "TOLERANCE": "5", "COMMENT": "comment.md", "GITHUB_STEP_SUMMARY": "summary.md"}
    return bash(cli, steps()["Compare with the baseline"], STORE=store, **more)


def test_the_action_passes_and_fails_as_the_gate_does(cli: Cli) -> None:
    assert bash(cli, steps()["Install Deepstone"]).returncode == 0  # it is there already
    measure(cli, "main", 0.010)
    (cli.home / "main.jsonl").rename(cli.home / "kept.jsonl")
    first = gate(cli, "main")
    assert first.returncode == 0
    assert "no baseline at main.jsonl yet" in first.stderr
    (cli.home / "kept.jsonl").rename(cli.home / "main.jsonl")
    measure(cli, "slower", 0.015)
    assert json.loads((cli.home / "slower.jsonl").read_text().splitlines()[0])
    done = gate(cli, "slower")
    assert done.returncode == 5, done.stderr
    assert "regression" in done.stdout
    assert "regression" in (cli.home / "summary.md").read_text()
    assert gate(cli, "main").returncode == 0


@pytest.mark.parametrize(
    ("torch", "told"), [("torch>=2.6", ["torch>=2.6", "/opt/deepstone"]), ("", ["/opt/deepstone"])]
)
def test_the_containerfile_installs_and_starts(reader: Cli, torch: str, told: list[str]) -> None:
    lines = dict(line.split(" ", 1) for line in CONTAINERFILE.read_text().splitlines() if re.match("[A-Z]", line))
    done = bash(reader, f"pip() {{ printf '%s\\n' \"$@\"; }}; {lines['RUN']}", TORCH=torch)
    assert done.stdout.splitlines() == ["install", "--no-cache-dir", *told]
    started = bash(reader, shlex.join([*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]))
    assert started.returncode == 0
    assert "gate" in started.stdout
