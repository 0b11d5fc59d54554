"""`deepstone env` as a user types it: what it prints, what it exits with, and that runs use what it made."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli_kit import Cli
from kitchen import Kitchen

NAME = "torch@9.9.9"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def without_columns(table: str) -> str:
    """How wide they are depends on what else there is."""
    return " ".join(table.split())


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    kitchen = Kitchen(folder=tmp_path / "kitchen")
    kitchen.torch()
    return kitchen


@pytest.fixture
def cook(cli: Cli, kitchen: Kitchen) -> Cli:
    """A user with a recipe of their own and no environment yet."""
    return replace(cli, more=kitchen.variables)


def listed(cli: Cli) -> dict[str, dict[str, object]]:
    return {entry["name"]: entry for entry in cli("env", "list", "--json").assert_ok().json["environments"]}


@pytest.mark.slow
def test_the_life_of_an_environment(cook: Cli, kitchen: Kitchen) -> None:
    """Added, there already, listed, examined, found changed, removed: in one test, since making one takes seconds."""
    bar = cook.on_terminal("env", "add", "torch", error_too=True)
    assert bar.code == 0
    assert f"{NAME}: making a venv of Python 3." in bar.err
    assert f"{NAME}: installing 2 packages" in bar.err
    assert "0:00:0" in bar.err
    assert f"made {NAME} with Python" in bar.err
    made = listed(cook)[NAME]
    assert (made["name"], made["kind"], made["version"]) == (NAME, "venv", "9.9.9")
    assert int(str(made["size_bytes"])) > 5_000_000

    again = cook.on_terminal("env", "add", NAME, error_too=True)
    assert again.code == 0
    assert f"{NAME} is there already" in again.err

    shown = cook("env", "list").assert_ok().out
    assert f"{NAME}" in shown
    assert str(made["python"]) in shown
    assert "tensorflow@2.21.0 to add" in without_columns(shown)

    # It has no real framework in it, so it cannot train, and that is told.
    ill = cook("env", "doctor", NAME, "--json")
    assert ill.code == 1
    (checkup,) = ill.json["environments"]
    assert [problem["what"] for problem in checkup["problems"]] == ["training"]
    kitchen.wheel("numpy", "0.2")
    install = [str(made["python"]), "-m", "pip", "install", "-q", "--no-index", "--no-deps", "-f", str(kitchen.wheels)]
    subprocess.run([*install, "numpy==0.2"], check=True, capture_output=True)
    told = cook("env", "doctor", NAME)
    assert told.code == 1
    assert (
        f"{NAME} (venv): not well\n  versions: numpy was 0.1 and is 0.2 → deepstone env add {NAME} --again" in told.out
    )

    assert cook("env", "remove", "torch", "--json").assert_ok().json == {"removed": [NAME]}
    assert NAME not in listed(cook)
    assert kitchen.leftovers() == []


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "code", "says"),
        [
            (("add", "tensorflw"), 2, "tensorflw: no such environment to add; did you mean tensorflow"),
            (("add", "torch", "jaxx"), 2, "jaxx: no such environment to add"),
            (("add", "torch@1.2.3.4"), 2, "torch@1.2.3.4: no such environment to add"),
            (("add", "torch", "--name", "torch@1-x"), 2, "--name goes with --python or --program and one framework"),
            (("add", "torch", "--python", "/nowhere"), 4, "/nowhere does not exist"),
            (("add", "neon"), 2, "neon has no recipe: build it as github.com/NervanaSystems/neon says"),
            (("add", "neon@2.6.0"), 2, "then deepstone env add neon --python PATH"),
            (("add", "torch7"), 2, "then deepstone env add torch7 --program PATH/bin/luajit"),
            (("add", "torch8", "--program", "/bin/true"), 2, "torch8: no such framework; did you mean torch"),
            (("add", "torch7", "--program", "/nowhere"), 4, "/nowhere does not exist; name the luajit that runs it"),
            (("add", "torch7", "--program", "/etc"), 4, "/etc is a folder without bin/luajit"),
            (("add", "torch7", "--program", "/bin/true"), 4, "/bin/true is not a LuaJIT that runs (exit code 0)"),
            (("add", "torch7", "--python", sys.executable), 2, "torch7 runs in LuaJIT: give --program PATH"),
            (("add", "neon", "--program", "/bin/true"), 2, "neon runs in a Python: give --python PATH"),
            (("add", "neon", "--python", sys.executable), 4, "has no neon"),
            (("add", "neon", "--python", "/a", "--program", "/b"), 2, "name two interpreters; give one of them"),
            (("add", "jax", "--set", "A=1"), 2, "--set goes with --python or --program"),
            (("add", "jax", "--python", "/a", "--set", "A"), 2, "--set A: must be NAME=VALUE"),
            (("add", "jax", "--python", "/a", "--set", "1A=2"), 2, "--set 1A=2: must be NAME=VALUE"),
            (("add",), 2, "missing argument"),
            (("remove", "torch@9.9.9"), 2, "torch@9.9.9: no such environment; there is none"),
            (("remove", "../../etc"), 2, "../../etc: no such environment"),
            (("doctor", "jax"), 2, "jax: no such environment"),
            (("lst",), 2, "no such command 'lst'"),
        ],
    )
    def test_one_line_each(self, cook: Cli, kitchen: Kitchen, words: tuple[str, ...], code: int, says: str) -> None:
        cook("env", *words).assert_error(code, says)
        assert not kitchen.root.exists()

    def test_a_broken_recipe(self, cook: Cli, kitchen: Kitchen) -> None:
        (kitchen.recipes / "mine.toml").write_text('name = "torch@1"\nframework = torch\n')
        for words in (("list",), ("add", "jax")):
            cook("env", *words).assert_error(2, str(kitchen.recipes / "mine.toml"), "Invalid value (at line 2")

    def test_a_folder_that_is_a_file(self, cook: Cli, kitchen: Kitchen) -> None:
        kitchen.root.write_text("")
        cook("env", "add", "torch").assert_error(3, "it is a file and not a folder", "DEEPSTONE_ENVIRONMENTS")

    def test_no_interpreter(self, cook: Cli, kitchen: Kitchen) -> None:
        kitchen.recipe(python=["3.5"])
        cook("env", "add", "torch").assert_error(4, "no Python 3.5 found", "on PATH", "install python3.5")

    def test_what_belongs_to_deepstones_own_interpreter_is_not_removed(self, reader: Cli, tmp_path: Path) -> None:
        if find_spec("torch") is None:
            pytest.skip("torch is not installed")
        done = reader("env", "remove", "torch", DEEPSTONE_ENVIRONMENTS=str(tmp_path))
        done.assert_error(2, "which runs Deepstone; remove it there with pip")


@pytest.mark.skipif(shutil.which("luajit") is None, reason="there is no luajit; on Debian: apt install luajit")
def test_the_life_of_an_adopted_program(cook: Cli, kitchen: Kitchen, tmp_path: Path) -> None:
    """An installation of a framework in Lua, with its interpreter, as its users have it."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "luajit"
    program.symlink_to(str(shutil.which("luajit")))
    for module in ("torch", "nn"):
        (tmp_path / f"{module}.lua").write_text("print 'noise' return {}")
    assert "torch7 has no recipe. To get it, build it as" in cook("env", "list").assert_ok().out
    words = (
        "torch7",
        "--program",
        str(tmp_path),
        "--set",
        f"LUA_PATH={tmp_path}/?.lua;;",
        "--set",
        "OMP_WAIT_POLICY=a=b",
    )
    (added,) = cook("env", "add", *words, "--json").assert_ok().json
    assert (added["name"], added["kind"], added["program"]) == ("torch7@7", "adopted", str(program))
    assert added["program_version"].startswith("LuaJIT 2.")
    assert added["variables"] == {"LUA_PATH": f"{tmp_path}/?.lua;;", "OMP_WAIT_POLICY": "a=b"}
    found = cook("env", "list", "--json").assert_ok().json
    assert "torch7@7" in {entry["name"] for entry in found["environments"]}
    assert [entry["framework"] for entry in found["to_adopt"]] == ["neon"]
    (tmp_path / "nn.lua").write_text("return {changed = true}")
    told = cook("env", "doctor", "torch7")
    assert told.code == 1
    assert "versions: nn was sha256:" in told.out
    assert f"--program {program} --name torch7@7 --set" in told.out
    assert cook("env", "remove", "torch7", "--json").assert_ok().json == {"removed": ["torch7@7"]}
    assert program.exists()
    assert kitchen.leftovers() == []


def test_with_nothing_made_there_is_what_can_be(reader: Cli) -> None:
    found = reader("env", "list", "--json").assert_ok().json
    assert {recipe["framework"] for recipe in found["recipes"]} >= {"torch", "tensorflow", "jax"}
    for recipe in found["recipes"]:
        assert recipe["size_bytes"] > 10**8
        assert recipe["python_versions"]
    assert all(entry["kind"] == "own" for entry in found["environments"])
    shown = reader.on_terminal("env", "list", columns=80).out
    assert max(map(len, shown.splitlines())) <= 80


def test_half_made_is_not_listed_and_told_by_the_doctor(cook: Cli, kitchen: Kitchen) -> None:
    (kitchen.root / NAME).mkdir(parents=True)
    assert NAME not in listed(cook)
    told = cook("env", "doctor", NAME)
    assert told.code == 1
    assert "half-made: its making was cut short" in told.out
    assert cook("env", "doctor", "jax@1", "torch").code == 2
    cook("env", "remove", NAME).assert_ok()
    assert kitchen.leftovers() == []


def note(kitchen: Kitchen, name: str, **changes: object) -> None:
    """The note of an environment, as if it had been adopted."""
    framework, _, version = name.partition("@")
    content = {
        "format": 1,
        "name": name,
        "framework": framework,
        "version": version,
        "kind": "adopted",
        "python": sys.executable,
        "variables": {},
        "recipe_sha": "",
        "size_bytes": 0,
        "made_at": "2026-11-15T06:50:09Z",
        "lock": {"python": "3.11.7"},
    }
    (kitchen.root / name).mkdir(parents=True)
    (kitchen.root / name / "environment.json").write_text(json.dumps(content | changes))


def test_a_damaged_one_is_told(cook: Cli, kitchen: Kitchen) -> None:
    note(kitchen, NAME, lock=[])
    done = cook("env", "list").assert_ok()
    told = done.err.splitlines()
    assert any(f"{NAME}: damaged: environment.json" in line and "lock" in line for line in told)
    assert any(f"deepstone env add {NAME}" in line for line in told)
    assert f"{NAME}" not in without_columns(done.out).replace(f"{NAME} to add", "")
    cook("run", "cifarnet", f"framework={NAME}").assert_error(4, f"environment {NAME}: damaged")


def test_one_whose_interpreter_is_gone(cook: Cli, kitchen: Kitchen) -> None:
    note(kitchen, "jax@0.4.1", python="/nowhere/bin/python")
    assert "/nowhere/bin/python is gone" in cook("env", "list").assert_ok().out
    assert listed(cook)["jax@0.4.1"]["runs"] is False
    cook("run", "cifarnet", "framework=jax").assert_error(4, "/nowhere/bin/python is gone", "env remove jax@0.4.1")
    told = cook("env", "doctor", "jax")
    assert told.code == 1
    assert "/nowhere/bin/python cannot be run: no such file or directory" in told.out


def test_removing_asks_which_one(cook: Cli, kitchen: Kitchen) -> None:
    for name in ("jax@0.4.1", "jax@0.4.2"):
        note(kitchen, name)
    cook("env", "remove", "jax").assert_error(2, "jax: there are several; name one of jax@0.4.1, jax@0.4.2")
    cook("env", "remove", "jax@0.4.1", "nonsense").assert_error(2, "nonsense")
    assert kitchen.leftovers() == ["jax@0.4.1", "jax@0.4.2"]  # all names are looked at before any is gone
    cook("env", "remove", "jax@0.4.1", "jax@0.4.1").assert_ok()
    assert kitchen.leftovers() == ["jax@0.4.2"]
    assert Path(sys.executable).exists()


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("by_version", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_an_adopted_interpreter_runs_what_deepstones_own_cannot(
    torchless: Cli, tmp_path: Path, by_version: bool
) -> None:
    """Deepstone in a Python without torch, and torch in another: the first real use of two interpreters."""
    cli = replace(
        torchless, store=tmp_path / "store", more={**torchless.more, "DEEPSTONE_ENVIRONMENTS": str(tmp_path / "e")}
    )
    cli("run", "cifarnet", "framework=torch").assert_error(4, "framework torch is not installed")
    (adopted,) = cli("env", "add", "torch", "--python", sys.executable, "--json").assert_ok().json
    version = adopted["version"].partition("+")[0]
    assert adopted["kind"] == "adopted"
    well = cli("env", "doctor", "--json").assert_ok().json["environments"]
    assert well == [{"name": adopted["name"], "kind": "adopted", "well": True, "problems": []}]
    framework = f"torch@{version}" if by_version else "auto"
    words = (f"framework={framework}", "batch=4", "device=cpu", "--budget", 0.1, "--target", 50, "--json")
    record = cli("run", "cifarnet", *words).assert_ok().json
    assert record["setup"]["effective"]["framework"]["value"] == f"torch@{version}"


def test_one_that_fails_spares_the_rest(cook: Cli, kitchen: Kitchen) -> None:
    """The first cannot be made, the second can: what is missing is told at the end, with the first's exit code."""
    kitchen.recipe("8.8.8", python=["3.5"])
    done = cook("env", "add", "torch@8.8.8", NAME, "--json")
    assert done.code == 4
    assert done.json == [listed(cook)[NAME]]
    lines = done.err.splitlines()
    stages = ["making a venv", "downloading", "installing", "trying it"]
    assert [line for line in lines if line.startswith(f"{NAME}: ")] == [f"{NAME}: {stage}" for stage in stages]
    assert any(line.startswith(f"made {NAME} with Python 3.") for line in lines)
    assert lines[-1] == "deepstone: not made: torch@8.8.8; made or there already: 1 of 2"
    assert sum(line.startswith("deepstone: ") and "no Python 3.5 found" in line for line in lines) == 1
    assert (kitchen.root / NAME / "environment.json").exists()
