"""The console script itself, in a new process, line after line as a user would type them.

The other tests run commands in forks (command_server.py). Here every line is typed into both, by two users who begin
alike: the exit codes are the same, and so are both streams but for times.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import Cli, Result, script
from report.made_up import layers_result

H200 = Path(__file__).resolve().parents[2] / "results" / "h200" / "runs.jsonl"
STUDY = """[effort]
repetitions = 1
budget = 0.05
target = 50
[[jobs]]
model = "cifarnet"
framework = "fake"
batch = [1, 2]
"""
LINES = [
    ("--version", 0),
    ("--help", 0),
    ("", 2),
    ("nonsense", 2),
    ("run alexnt", 2),
    ("run cifarnet framework=torch@0.0.1", 4),
    ("results list", 3),
    ("models", 0),
    ("models resnet50 --json", 0),
    ("models cifarnet --export net.onnx", 0),
    ("axes --json", 0),
    ("run net.onnx framework=fake batch=4,8 --budget 0.5", 0),
    ("run cifarnet framework=fake batch=8 --budget 0.5 --json", 0),
    ("run cifarnet framework=fake precision=tf32 device=cpu", 1),
    ("compare cifarnet framework=fake batch=4", 2),
    ("layers cifarnet framework=fake --budget 0.5", 0),
    ("draw layers.json -o layers.svg", 0),
    ("memory cifarnet framework=fake", 0),
    ("conv --shape 8x10x10 --filters 16 --kernel 3x3 framework=fake batch=4", 0),
    ("study small.toml", 0),
    ("results list", 0),
    ("results export -o runs.jsonl", 0),
    ("results gate --baseline runs.jsonl", 0),
    ("report -o report.html", 0),
    (f"papers kim2017 --no-run --also {H200}", 0),
    ("env list", 0),
]
SAY_LIMIT = """import atexit, ctypes, os, sys
def say(when):
    read = ctypes.CDLL(None).getenv
    read.restype = ctypes.c_char_p
    with open(os.environ["SAID"], "a") as file:
        file.write(f"{os.path.basename(sys.orig_argv[1])} {when} {read(b'OPENBLAS_THREAD_TIMEOUT')}\\n")
say("starts")
atexit.register(say, "ends")
"""
FAKE = script(algorithms={"slow": 0.004, "quick": 0.001}, noise=0.001, seed=1)
MEASURED = re.compile(
    "run (cifarnet|net).*|layers|memory|conv|study|results|report"
)  # doubts come and go with the load
_NUMBER = re.compile(r"[-+]?\d[\d.,e+-]*( [a-zµ%]+\b)?")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Cli, Cli]:
    """One who types into new processes, and one who types into forks."""
    homes = [tmp_path_factory.mktemp(name) for name in ("real", "fork")]
    for home in homes:
        (home / "small.toml").write_text(STUDY)
        (home / "layers.json").write_text(json.dumps(layers_result("cifarnet")))
    real, fork = (Cli(store=home / "store", cache=cache, home=home) for home in homes)
    return replace(real, real=True), fork


@pytest.mark.parametrize(("line", "code"), LINES, ids=[f"{number} {line}" for number, (line, _) in enumerate(LINES)])
def test_a_line_as_it_is_typed(users: tuple[Cli, Cli], line: str, code: int) -> None:
    real, fork = (user(*line.split(), DEEPSTONE_FAKE=FAKE) for user in users)
    assert real.code == code, real.err
    assert fork.code == code, fork.err
    assert "Traceback" not in real.err + fork.err
    assert bool(fork.out) == bool(real.out)
    if not MEASURED.match(line):
        assert told(users[1], fork) == told(users[0], real)


def test_threads_that_idle_sleep_here_and_spin_as_ever_in_workers(users: tuple[Cli, Cli], tmp_path: Path) -> None:
    """Every Python of the command writes which limit C code reads in it, when it starts and when it ends."""
    (tmp_path / "sitecustomize.py").write_text(SAY_LIMIT)
    said = tmp_path / "said.txt"
    users[0](
        "run", "cifarnet", "framework=fake", "--budget", "0.1", PYTHONPATH=str(tmp_path), SAID=str(said)
    ).assert_ok()
    lines = said.read_text().splitlines()
    assert lines.count("deepstone starts None") == lines.count("deepstone ends b'4'") == 1
    assert "serve.py starts None" in lines
    assert {line.partition(" ")[2] for line in lines if not line.startswith("deepstone")} <= {
        "starts None",
        "ends None",
    }


def told(user: Cli, done: Result) -> tuple[str, str]:
    """Without what two users cannot share: homes, times, and the padding of tables that show them."""
    out, err = (text.replace(str(user.home), "~") for text in (done.out, done.err))
    out = re.sub(r"/\S+/python[\d.]*", "python", out)
    out, err = (re.sub(r"[ ─]+", " ", _NUMBER.sub("#", text)) for text in (out, err))
    return out, err
