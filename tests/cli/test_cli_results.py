"""Runs leave and enter a store as files; nothing but a whole, honest record gets in."""

from __future__ import annotations

import csv
import getpass
import io
import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_kit import SCRIPT, Cli, Result


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """A store with a run of a model file of the user's own, whose path must not leave the house."""
    home = tmp_path_factory.mktemp("secret-project")
    cli = Cli(store=home / "store", cache=cache, home=home)
    text = "from deepstone.models.chains import cifarnet\n\n\ndef make():\n    return cifarnet()\n"
    (home / "hidden.py").write_text(text)
    for words in (("run", home / "hidden.py:make"), ("run", "cifarnet", "batch=8")):
        cli(*words, "framework=fake", "--budget", 1).assert_ok()
    return cli


class TestOut:
    def test_jsonl_goes_into_another_store_and_stays_the_same(self, mine: Cli, cli: Cli) -> None:
        mine("results", "export", "-o", cli.home / "runs.jsonl").assert_ok()
        done = cli("results", "import", "runs.jsonl").assert_ok()
        assert (done.out, done.err) == ("", "2 runs added, 0 were there already\n")
        assert cli("results", "import", "runs.jsonl", "--json").assert_ok().json == {"added": 0, "skipped": 2}
        assert [path.name for path in cli.runs()] == [path.name for path in mine.runs()]
        assert cli("results", "export").assert_ok().out == (cli.home / "runs.jsonl").read_text()

    def test_a_json_list_can_be_imported_too(self, mine: Cli, cli: Cli) -> None:
        mine("results", "export", "--json", "-o", cli.home / "runs.json").assert_ok()
        assert cli("results", "import", "runs.json", "--json").assert_ok().json == {"added": 2, "skipped": 0}

    @pytest.mark.parametrize("form", [(), ("--format", "csv"), ("--json",)])
    def test_host_user_and_paths_stay_at_home(self, mine: Cli, form: tuple[str, ...]) -> None:
        given = mine("results", "export", *form).assert_ok().out
        kept = mine("results", "export", *form, "--private").assert_ok().out
        assert "hidden.py" in kept
        assert "<path>" in given
        for secret in ("hidden.py", "secret-project", str(mine.home), str(SCRIPT.parent)):
            assert secret not in given
        for name in (socket.gethostname(), getpass.getuser()):
            assert not re.search(rf"(?<![\w<]){re.escape(name)}(?!\w)", given)

    def test_csv_has_one_line_per_run(self, mine: Cli) -> None:
        text = mine("results", "export", "--format", "csv").assert_ok().out
        rows = list(csv.DictReader(io.StringIO(text)))
        assert len(text.splitlines()) == 3
        assert [row["id"] for row in rows] == [row["id"] for row in mine("results", "list", "--json").json]
        assert [row["batch"] for row in rows] == ["32", "8"]
        assert float(rows[1]["samples_per_s_median"]) == pytest.approx(800, rel=0.05)

    def test_filters(self, measured: tuple[Cli, Result]) -> None:
        cli, done = measured
        ids = [record["id"] for record in done.json]

        def found(*words: str) -> list[str]:
            return [row["id"] for row in cli("results", "list", *words, "--json").assert_ok().json]

        assert found("outcome=ok") == [ids[0], ids[2]]
        assert found("layout=nhwc", "batch=16") == [ids[3]]
        assert found("model=vgg16") == []
        exported = cli("results", "export", "batch=8", "outcome=crashed").assert_ok().out
        assert [json.loads(line)["id"] for line in exported.splitlines()] == [ids[1]]


class TestDamage:
    def test_a_flipped_bit_is_told_and_costs_only_its_own_run(self, cli: Cli) -> None:
        cli("run", "cifarnet", "framework=fake", "batch=1,2", "precision=tf32", "device=cpu")
        bad, good = cli.runs()
        data = bytearray(bad.read_bytes())
        data[len(data) // 2] ^= 1
        bad.write_bytes(data)
        listed = cli("results", "list", "--json").assert_ok()
        assert [row["id"] for row in listed.json] == [good.stem]
        assert listed.err.startswith(f"deepstone: damaged record {bad}: ")
        assert cli("results", "show", bad.stem).code == 3
        rebuilt = cli("results", "rebuild", "--json")
        assert rebuilt.code == 3
        assert rebuilt.json["runs"] == 1
        assert rebuilt.json["damaged"][0]["path"] == str(bad)
        cli("results", "delete", bad.stem).assert_ok()
        assert cli("results", "rebuild", "--json").assert_ok().json == {"runs": 1, "damaged": []}


def _set(*path: str | int, to: Any) -> Callable[[Any], Any]:
    def change(record: Any) -> Any:
        place = record
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to
        return record

    return change


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "id climbs out": _set("id", to="../../../../escaped-1"),
    "job is chosen": _set("job", to="f" * 64),
    "model is a path": _set("workload", "model", to="/etc/passwd"),
    "text for a number": _set("summary", "step_s", "median", to="0.01"),
    "null": _set("failure", to=None),
    "unknown doubt": _set("doubts", to=[{"code": "none_at_all", "detail": "x"}]),
    "unknown key": _set("payload", to="x"),
    "interval upside down": _set("summary", "step_s", "low", to=1e9),
    "not a record": lambda _: {"hello": "world"},
}


@pytest.fixture(scope="module")
def record(mine: Cli) -> str:
    """A good record as a line."""
    return mine("results", "export", "batch=8").assert_ok().out


class TestHostile:
    @pytest.fixture
    def refuses(self, cli: Cli) -> Callable[..., None]:
        def check(content: bytes | str, *told: str) -> None:
            path = cli.home / "hostile.json"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            before = sorted(cli.home.parent.rglob("*"))
            cli("results", "import", path).assert_error(2, "hostile.json", "nothing was imported", *told)
            assert cli.runs() == []
            new = set(cli.home.parent.rglob("*")) - set(before)
            assert all(path.is_relative_to(cli.store) for path in new)

        return check

    @pytest.mark.parametrize("name", HOSTILE)
    def test_changed_records(self, record: str, refuses: Callable[..., None], name: str) -> None:
        refuses(json.dumps(HOSTILE[name](json.loads(record))))

    def test_one_bad_record_refuses_the_whole_file(self, record: str, refuses: Callable[..., None]) -> None:
        bad = json.dumps(HOSTILE["null"](json.loads(record)))
        refuses(f"{record.rstrip()}\n{bad}\n", "line 2")

    @pytest.mark.parametrize("number", ["NaN", "1e999", "9" * 400])
    def test_numbers_that_are_none(self, record: str, refuses: Callable[..., None], number: str) -> None:
        changed, count = re.subn(r'"sustained_samples_per_s":[0-9.e+-]+', f'"sustained_samples_per_s":{number}', record)
        assert count == 1
        refuses(changed)

    @pytest.mark.parametrize("opening", ["[", '{"a":'])
    def test_deep_nesting(self, refuses: Callable[..., None], opening: str) -> None:
        refuses(opening * 100_000, "nested")

    def test_a_key_twice(self, record: str, refuses: Callable[..., None]) -> None:
        refuses(record.replace('"schema":1', '"schema":1,"schema":1'), "twice")

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[]"])
    def test_what_is_no_json(self, refuses: Callable[..., None], content: bytes) -> None:
        refuses(content)

    def test_a_file_of_a_gigabyte_is_refused_soon(self, cli: Cli) -> None:
        with (cli.home / "huge.json").open("wb") as file:
            file.truncate(2**30 + 1)
        started = time.monotonic()
        cli("results", "import", "huge.json").assert_error(2, "huge.json", "nothing was imported")
        assert time.monotonic() - started < 120
        assert cli.runs() == []

    @pytest.mark.parametrize("place", ["/dev/zero", "."])
    def test_what_is_no_file(self, cli: Cli, place: str) -> None:
        cli("results", "import", place).assert_error(2, place)
        assert cli.runs() == []


def test_the_list_tells_the_setup_that_is_not_default(cli: Cli) -> None:
    cli("run", "cifarnet", "framework=fake", "batch=8", "layout=auto,nhwc", "seed=3", "--budget", 0.2).assert_ok()
    plain, nhwc = cli.on_terminal("results", "list", columns=200).out.splitlines()[2:4]
    assert "seed=3" in plain
    assert "layout=" not in plain
    assert "layout=nhwc seed=3" in nhwc
    narrow = cli.on_terminal("results", "list", columns=60).out
    assert all(path.stem in narrow for path in cli.runs())  # an id is never cut
    assert "layout=nhwc" in narrow
