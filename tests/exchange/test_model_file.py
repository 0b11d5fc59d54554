"""A model file is a program: whatever it does while it is loaded, we get a model or one line, and nothing stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deepstone.errors import UsageError
from deepstone.exchange.load import load_model

TINY = """
from deepstone.graph.builder import Builder

def make():
    b = Builder("tiny")
    b.softmax_cross_entropy("loss", b.dense("fc", b.flatten("flatten", b.input("data", (3, 8, 8))), features=10))
    return b.build()
"""
ENOUGH_S = 60.0
FLOOD_LIMIT = 2**20  # characters: a terminal survives that


@pytest.fixture
def net(tmp_path: Path):
    """A model file that does something more while it is loaded."""

    def write(beginning: str) -> str:
        path = tmp_path / "net.py"
        path.write_text(beginning + TINY)
        return f"{path}:make"

    return write


def refusal(reference: str, timeout_s: float = ENOUGH_S) -> str:
    with pytest.raises(UsageError) as caught:
        load_model(reference, timeout_s=timeout_s)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("code", [0, 3])
def test_one_that_exits_is_an_error(net, code: int) -> None:
    reference = net(f"import os; os._exit({code})\n")
    assert f"{reference}: the process that ran it exited with code {code} before make" in refusal(reference)


def test_one_that_dies_is_an_error(net) -> None:
    assert "was ended by signal 11" in refusal(net("import os; os.kill(os.getpid(), 11)\n"))


def test_an_endless_loop_is_ended_by_the_timeout(net) -> None:
    assert "no model within the time limit of 1 s; raise it with --timeout" in refusal(net("while True: pass\n"), 1)


def test_one_that_ignores_the_request_to_end_is_killed(net) -> None:
    beginning = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    assert "within the time limit" in refusal(net(beginning), 1)


def test_what_it_prints_reaches_no_terminal_raw(net, capfd: pytest.CaptureFixture[str]) -> None:
    """A terminal obeys escape sequences: they colour, move, and retitle what others wrote."""
    refusal(net("import os\nprint('seen\\r\\x1b[31mred \\x9b2J \\u202eback', flush=True)\nos._exit(3)\n"))
    assert capfd.readouterr().err == "seen\n\\x1b[31mred \\x9b2J \\u202eback\n"


@pytest.mark.parametrize("piece", ["'y' * 200", "'y' * 65536, end=''"])
def test_a_flood_is_ended_and_little_of_it_shown(net, piece: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert "printed more than 16 MiB" in refusal(net(f"while True: print({piece})\n"))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("yyy")
    assert "prints more than is shown here" in err
    assert len(err) < FLOOD_LIMIT


def test_its_daemons_end_with_it(net, tmp_path: Path) -> None:
    note = tmp_path / "daemon.pid"
    beginning = (
        "import os, pathlib, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        f"while not (note := pathlib.Path({str(note)!r})).exists() or not note.read_text():\n"
        "    time.sleep(0.01)\n"
    )
    assert load_model(net(beginning)).name == "tiny"
    assert not Path("/proc", note.read_text()).exists()


def test_a_thread_that_it_left_running_does_not_hold_us(net) -> None:
    start_s = time.monotonic()
    beginning = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    assert load_model(net(beginning)).name == "tiny"
    assert time.monotonic() - start_s < ENOUGH_S


def test_it_finds_files_where_the_user_stands(net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "width.txt").write_text("10")
    assert load_model(net("assert open('width.txt').read() == '10'\n")).name == "tiny"


def test_it_cannot_change_us(net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANTED", raising=False)
    beginning = "import os, deepstone.graph.graph as graph\nos.environ['PLANTED'] = '1'\ngraph.Graph.sha = 'forged'\n"
    assert load_model(net(beginning)).graph.sha != "forged"
