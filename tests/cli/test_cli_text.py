"""What a person reads: the answer first, tables that fit the window, and no number cut."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_kit import Cli, Result

from deepstone.cli.output import Column, display_width, table_lines


def test_one_run_in_a_few_lines(cli: Cli) -> None:
    done = cli("run", "cifarnet", "framework=fake", "batch=8").assert_ok()
    first, answer = done.out.splitlines()[:2]
    assert first.startswith("cifarnet · batch 8 · train · fake 1 on cpu (fp32, nchw, native, 1 thread")
    found = re.match(r"  ([\d,]+) images/s    95 % interval ([\d,]+) – ([\d,]+) \(within process, \d+ samples", answer)
    assert found, answer
    rate, low, high = (int(text.replace(",", "")) for text in found.groups())
    assert low <= rate <= high
    assert 760 < rate < 840  # 8 images in 10 ms
    for word in (
        " ms    data 0 s · forward",
        "forward",
        "backward",
        "update",
        "start-up: import",
        "memory: host peak",
        "energy: ",
    ):
        assert word in done.out
    assert done.err == f"stored {cli.runs()[0].stem}\n"
    assert done.out.rstrip().endswith(f"run {cli.runs()[0].stem}")


def test_what_was_asked_for_and_not_read_back_is_named(cli: Cli) -> None:
    """The fake framework tells nothing of what it did."""
    done = cli("run", "cifarnet", "framework=fake", "batch=8", "layout=nhwc", "threads=2", "dropout=on").assert_ok()
    assert "  not read back: layout=nhwc, threads=2; " in done.out
    assert "not read back" not in cli("run", "cifarnet", "framework=fake", "batch=8").assert_ok().out


def test_a_stored_run_is_shown_as_it_was_and_with_its_command(measured: tuple[Cli, Result]) -> None:
    cli, done = measured
    shown = cli("results", "show", done.json[0]["id"]).assert_ok().out
    assert "images/s    95 % interval" in shown
    assert shown.rstrip().endswith("command: deepstone run cifarnet framework=fake batch=8 layout=nchw --budget 1")
    crashed = cli("results", "show", done.json[1]["id"]).assert_ok().out
    assert "  crashed: RuntimeError: scripted failure\n" in crashed
    assert "  | RuntimeError: scripted failure\n" in crashed


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Result:
    """Four runs shown on a terminal of 80 columns."""
    home = tmp_path_factory.mktemp("narrow")
    cli = Cli(store=home / "store", cache=cache, home=home)
    words = ("run", "cifarnet", "framework=fake", "batch=8,2048", "layout=nchw,nhwc", "--budget", 1)
    return cli.on_terminal(*words, columns=80)


class TestInAWindow:
    def test_several_runs_are_one_table_that_keeps_the_numbers(self, narrow: Result) -> None:
        assert narrow.code == 0
        assert widest(narrow.out) <= 80
        rows = re.findall(r"^(\d+) +(nchw|nhwc) +([\d,]+) +([\d,]+ – [\d,]+) +ok\b", narrow.out, re.MULTILINE)
        assert [(batch, layout) for batch, layout, *_ in rows] == [
            ("8", "nchw"),
            ("8", "nhwc"),
            ("2048", "nchw"),
            ("2048", "nhwc"),
        ]
        assert all(len(rate) == len("204,800") for _, _, rate, _ in rows[2:])

    def test_what_is_left_out_is_named(self, narrow: Result) -> None:
        (said,) = re.findall(r"^Not shown in a window this narrow: ([^.]*)\.", narrow.out, re.MULTILINE)
        assert "run" in said
        assert "images/s" not in said

    def test_progress_and_messages_are_not_in_it(self, narrow: Result) -> None:
        assert "stored" not in narrow.out
        assert narrow.err.count("stored ") == 4

    @pytest.mark.parametrize("columns", [80, 140])
    @pytest.mark.parametrize("words", [("axes",), ("models",), ("models", "googlenet")])
    def test_tables_fit(self, reader: Cli, words: tuple[str, ...], columns: int) -> None:
        done = reader.on_terminal(*words, columns=columns)
        assert done.code == 0
        assert widest(done.out) <= columns
        assert "…" not in done.out.replace("1…", "").replace("0…", "")

    def test_columns_may_be_given(self, reader: Cli) -> None:
        assert widest(reader.on_terminal("models", columns=300, COLUMNS="80").out) <= 80

    def test_models_keeps_its_counts(self, reader: Cli) -> None:
        shown = reader.on_terminal("models", columns=80).out
        assert re.search(r"^resnet152 +3×224×224 +517 +60,192,808 +23\.0 G \+ 45\.8 G$", shown, re.MULTILINE)

    def test_results_fit(self, measured: tuple[Cli, Result]) -> None:
        cli, done = measured
        for words in (("results", "list"), ("results", "show", done.json[1]["id"])):
            shown = cli.on_terminal(*words, columns=80).out
            assert widest(shown) <= 80
            assert done.json[1]["id"] in shown

    def test_a_file_gets_one_line_per_row_and_every_column(self, measured: tuple[Cli, Result]) -> None:
        cli, done = measured
        lines = cli("results", "list").assert_ok().out.splitlines()
        assert len(lines) == 2 + len(done.json)
        headings = "run started model framework device batch phase setup images/s step outcome"
        assert " ".join(lines[0].split()).removesuffix(" doubts") == headings


def test_what_a_record_says_cannot_command_the_terminal(cli: Cli, measured: tuple[Cli, Result]) -> None:
    record = measured[1].json[0]
    odd = {"code": "cpu_steal", "detail": "\x1b[2J\x1b]0;owned\x07 and \u202egnp.exe\n second line"}
    record["doubts"] = [*(doubt for doubt in record["doubts"] if doubt["code"] != odd["code"]), odd]
    record["setup"]["effective"]["engine"] = {"value": "\x9b31mred", "source": "set"}
    (cli.home / "odd.json").write_text(json.dumps(record))
    cli("results", "import", "odd.json").assert_ok()
    shown = cli("results", "show", record["id"]).assert_ok().out
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert r"\x1b[2J" in shown
    assert "second line" in shown
    listed = cli("results", "show", record["id"], "--json").assert_ok()
    assert listed.out.isascii()
    assert listed.json == record


class TestTables:
    COLUMNS = (
        Column(heading="name"),
        Column(heading="number", right=True),
        Column(heading="second", right=True, rank=2),
        Column(heading="words", rank=1, wraps=10),
    )
    ROWS = (("a", "1,234,567", "89", "some words that wrap"), ("long-name", "5", "6,000", ""))

    def test_all_in_a_file(self) -> None:
        assert table_lines(self.COLUMNS, self.ROWS, None) == [
            "name          number  second  words",
            "─────────  ─────────  ──────  ────────────────────",
            "a          1,234,567      89  some words that wrap",
            "long-name          5   6,000",
        ]

    def test_prose_wraps_before_a_column_goes(self) -> None:
        assert table_lines(self.COLUMNS, self.ROWS, 42)[2:4] == [
            "a          1,234,567      89  some words",
            "                              that wrap",
        ]

    def test_columns_go_by_rank(self) -> None:
        assert table_lines(self.COLUMNS, self.ROWS, 34) == [
            "name          number  words",
            "─────────  ─────────  ────────────",
            "a          1,234,567  some words",
            "                      that wrap",
            "long-name          5",
            "",
            "Not shown in a window this narrow:",
            "second. --json has everything.",
        ]

    def test_what_must_stay_stays_whole_in_the_narrowest_window(self) -> None:
        assert table_lines(self.COLUMNS, self.ROWS, 10)[2] == "a          1,234,567"

    def test_empty_columns_are_not_shown(self) -> None:
        assert table_lines(self.COLUMNS, [("a", "1", "", "")], None)[0] == "name  number"

    def test_wide_characters_keep_the_columns_straight(self) -> None:
        lines = table_lines(self.COLUMNS, [("模型", "1", "", ""), ("é", "2", "", "")], None)
        assert {display_width(line) for line in lines} == {12}


def test_doubts_follow_a_table_that_has_no_room_for_them() -> None:
    columns = [
        Column(heading="batch"),
        Column(heading="layout"),
        Column(heading="images/s", right=True),
        Column(heading="doubts", rank=1, wraps=20, below=True),
        Column(heading="run", rank=2),
    ]
    rows = [("8", "nchw", "1,234", "", "3f2a"), ("16", "nhwc", "2,345", "few_samples other_load", "4b5c")]
    wide = "\n".join(table_lines(columns, rows, 80))
    assert wide.count("few_samples") == 1
    assert "doubts of" not in wide
    narrow = table_lines(columns, rows, 26)
    told = narrow.index("doubts of batch 16 layout")
    assert narrow[told : told + 3] == ["doubts of batch 16 layout", "  nhwc: few_samples", "  other_load"]
    assert "doubts" not in " ".join(narrow[told + 3 :])
    assert "run" in " ".join(narrow[told + 3 :])
    counted = [Column(heading="processes", right=True), *columns[2:]]
    assert "doubts of processes 2:" in table_lines(counted, [("2", "1,234", "few_samples", "3f2a")], 24)


def test_doubts_of_runs_are_told_in_any_window(cli: Cli) -> None:
    words = ("run", "cifarnet", "framework=fake", "batch=2048,4096", "layout=nchw,nhwc", "--budget", "0.1")
    shown = cli.on_terminal(*words, columns=50).out
    assert len(re.findall(r"^doubts of batch \d+ layout nh?[cw]+", shown, re.MULTILINE)) == 4
    assert shown.count("above_peak") == 4
    assert "doubts" not in shown.partition("Not shown in a window this narrow")[2]


def widest(text: str) -> int:
    return max(display_width(line) for line in text.splitlines())
