"""Whatever a user gets wrong is told in one line with the way out, the right exit code, and nothing stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Cli, script

USAGE, STORE, MISSING = 2, 3, 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "alexnt"), ("alexnet",)),
        (("models", "resnt152"), ("resnet152",)),
        *((("run", "cifarnet", word), (word, "whole number")) for word in ("batch=0", "batch=-1", "batch=1.5")),
        *(
            (("run", "cifarnet", word), told)
            for word, told in {
                "bach=8": ("bach", "batch"),
                "layout=nwhc": ("layout=nwhc", "nhwc"),
                "precision=fp23": ("fp32",),
                "precision=fp16": ("did you mean fp16-mixed",),
                "framework=pytorch": ("framework=pytorch", "torch"),
                "batch=99999999999": ("batch=99999999999",),
                "batch=8,": ("batch=",),
                "batch=8,8": ("batch=8,8", "twice"),
                "threads=0": ("threads=0", "auto"),
                "batch": ("'batch'", "AXIS=VALUE", "deepstone axes"),
            }.items()
        ),
        (("run", "cifarnet", "batch=8", "batch=16"), ("batch", "twice")),
        (("run", "cifarnet", "--target", "0"), ("--target", "deepstone run --help")),
        (("run", "cifarnet", "--target", "nan"), ("--target",)),
        (("compare", "cifarnet", "--budget", "nan", "--", "batch=8"), ("--budget",)),
        (("run", "cifarnet", "--timeout", "inf"), ("--timeout",)),
        (("run", "cifarnet", "--bugdet", "3"), ("--bugdet", "--budget")),
        (("run", "cifarnet", "--batch", "3"), ("no such option: --batch; batch is an axis: write batch=VALUE; see",)),
        (("doctor", "--launcher"), ("no such option: --launcher; did you mean --launchers?",)),
        (("modells",), ("no such command 'modells'; did you mean models? see `deepstone --help`",)),
        (("results", "lst"), ("no such command 'lst'; did you mean list? see `deepstone results --help`",)),
        (("run",), ("MODEL",)),
        (("run", ""), ("''",)),
        (("nonsense",), ("nonsense", "deepstone --help")),
        (("results", "nonsense"), ("nonsense", "deepstone results --help")),
        (("results", "export", "--format", "xml"), ("xml", "csv", "jsonl")),
        (("results", "import"), ("FILE",)),
        (("models", "cifarnet", "vgg11"), ("vgg11",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_usage(cli: Cli, words: tuple[str, ...], told: tuple[str, ...]) -> None:
    cli(*words).assert_error(USAGE, *told)
    assert not cli.store.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("models", "x" * 300), USAGE),
        (("models", "x" * 5000), USAGE),
        (("run", f"{'x' * 300}.py:make"), USAGE),
        (("run", "cifarnet", "framework=fake", "--store", "x" * 300), STORE),
        (("study", f"{'x' * 300}.toml"), USAGE),
        (("results", "import", "x" * 300), USAGE),
        (("env", "remove", "x" * 5000), USAGE),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else None,
)
def test_a_name_that_no_file_system_takes(cli: Cli, words: tuple[str, ...], code: int) -> None:
    done = cli(*words)
    done.assert_error(code, "xxx")
    assert len(done.err) < 1000


@pytest.mark.parametrize("words", [(), ("results",)])
def test_no_command_shows_the_help(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (USAGE, "")
    assert done.err.startswith("Usage: deepstone")


class TestModelFiles:
    def test_missing_file(self, cli: Cli) -> None:
        cli("run", "nowhere.py:make").assert_error(USAGE, "no file", "nowhere.py", "deepstone models")
        cli("models", "nowhere.json").assert_error(USAGE, "no file", "nowhere.json")

    def test_file_without_a_function(self, cli: Cli) -> None:
        cli("run", "mine.py").assert_error(USAGE, "mine.py", "FILE.py:FUNCTION")

    @pytest.mark.parametrize(
        ("text", "function", "told"),
        [
            ("def make():\n    return 1\n", "mak", ("mak", "make")),
            ("def make():\n    return 1\n", "make", ("returned int", "Builder")),
            ("def make(depth):\n    return 1\n", "make", ("no arguments", "depth")),
            ("def make(:\n", "make", ("line 1", "SyntaxError")),
            ("def make():\n    x = 0\n    return 1 / x\n", "make", ("line 3", "ZeroDivisionError")),
            ("import nothing_of_that_name\n", "make", ("line 1", "nothing_of_that_name")),
            ("raise SystemExit(0)\n", "make", ("line 1", "SystemExit")),
            ("make = 3\n", "make", ("make is int",)),
        ],
    )
    def test_python_that_makes_no_graph(self, cli: Cli, text: str, function: str, told: tuple[str, ...]) -> None:
        (cli.home / "mine.py").write_text(text)
        cli("run", f"mine.py:{function}", "framework=fake").assert_error(USAGE, "mine.py", *told)
        assert not cli.store.exists()
        assert [path.name for path in cli.home.iterdir()] == ["mine.py"]  # no bytecode beside it

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("{", "not JSON"),
            ("[1]", "mine.json"),
            (json.dumps({"schema": 1, "name": "x", "layers": [{"name": "a", "op": "conw", "inputs": []}]}), "conv"),
            ("[" * 5000, "mine.json"),
        ],
    )
    def test_json_that_is_no_graph(self, cli: Cli, content: str, told: str) -> None:
        (cli.home / "mine.json").write_text(content)
        cli("models", "mine.json").assert_error(USAGE, told)


class TestWhatIsNotThere:
    def test_no_framework_at_all(self, torchless: Cli) -> None:
        torchless("run", "cifarnet").assert_error(MISSING, "no framework is installed", "pip install")

    def test_framework_not_installed(self, torchless: Cli) -> None:
        torchless("run", "cifarnet", "framework=torch").assert_error(MISSING, "torch is not installed", "pip install")

    def test_version_not_installed(self, reader: Cli) -> None:
        reader("run", "cifarnet", "framework=torch@0.0.1").assert_error(MISSING, "torch@0.0.1 is not installed")

    @pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")
    def test_no_gpu(self, cli: Cli) -> None:
        cli("run", "cifarnet", "device=gpu", "--json").assert_error(MISSING, "gpu:0", "device=cpu")
        assert cli.runs() == []

    def test_cpus_that_are_not_ours(self, cli: Cli) -> None:
        cli("run", "cifarnet", "framework=fake", "affinity=4321").assert_error(MISSING, "affinity=4321")

    def test_one_of_several_is_missing_and_the_others_run(self, cli: Cli) -> None:
        missing = {"fault": {"at": "build", "kind": "missing"}}
        done = cli(
            "run",
            "cifarnet",
            "framework=fake",
            "batch=4,8",
            "--json",
            DEEPSTONE_FAKE=script(by={"batch=4": missing}),
        )
        assert done.code == MISSING
        assert [record["workload"]["batch"] for record in done.json] == [8]
        complaints = [line for line in done.err.splitlines() if line.startswith("deepstone: ")]
        assert complaints == ["deepstone: scripted: not there; install it"]


class TestOutcomes:
    def test_a_combination_that_cannot_run_is_recorded_as_unsupported(self, cli: Cli) -> None:
        done = cli("run", "cifarnet", "framework=fake", "precision=tf32", "device=cpu", "--json")
        assert done.code == 1
        assert done.json["outcome"] == "unsupported"
        assert "TF32" in done.json["failure"]["reason"]
        assert len(cli.runs()) == 1

    @pytest.mark.parametrize(
        ("keys", "outcome"),
        [
            ({"fault": {"at": "step", "step": 3, "kind": "segfault"}}, "crashed"),
            ({"fault": {"at": "build", "kind": "memory_error"}}, "oom"),
            ({"fault": {"at": "build", "kind": "unsupported"}}, "unsupported"),
            ({"loss": "nan"}, "diverged"),
            ({"effective": {"layout": "nhwc"}}, "unsupported"),
        ],
    )
    def test_what_goes_wrong_in_the_worker_is_an_outcome(self, cli: Cli, keys: dict[str, object], outcome: str) -> None:
        done = cli("run", "cifarnet", "framework=fake", "layout=nchw", "--budget", 1, DEEPSTONE_FAKE=script(**keys))
        assert done.code == 1
        assert outcome in done.out
        assert "Traceback" not in done.err
        assert len(cli.runs()) == 1


class TestStores:
    def test_no_store_yet(self, cli: Cli) -> None:
        for words in (("list",), ("delete", "ab")):
            cli("results", *words).assert_error(STORE, "no store", "--store")
        assert not cli.store.exists()

    def test_store_that_is_a_file(self, cli: Cli) -> None:
        cli.store.write_text("mine")
        cli("run", "cifarnet", "framework=fake").assert_error(STORE, str(cli.store), "--store")
        cli("results", "list").assert_error(STORE, str(cli.store))
        assert cli.store.read_text() == "mine"

    def test_folder_of_something_else(self, cli: Cli) -> None:
        (cli.home / "thesis.tex").write_text("mine")
        cli("run", "cifarnet", "framework=fake", "--store", cli.home).assert_error(STORE, "thesis.tex")
        assert [path.name for path in cli.home.iterdir()] == ["thesis.tex"]

    def test_store_where_nothing_can_be_written(self, cli: Cli) -> None:
        cli("run", "cifarnet", "framework=fake", "--store", "/proc/deepstone").assert_error(STORE, "/proc/deepstone")

    def test_unknown_and_ambiguous_runs(self, measured: tuple[Cli, object]) -> None:
        cli = measured[0]
        cli("results", "show", "zzzz").assert_error(USAGE, "zzzz", "deepstone results list")
        cli("results", "show", "../../etc/passwd").assert_error(USAGE, "no run")
        cli("results", "delete", "0" * 20 + "-1").assert_error(USAGE, "no run")
        assert len(cli.runs()) == 4

    def test_delete_is_all_or_nothing(self, cli: Cli) -> None:
        cli("run", "cifarnet", "framework=fake", "precision=tf32", "device=cpu")
        cli("results", "delete", cli.runs()[0].stem, "zzzz").assert_error(USAGE, "zzzz")
        assert len(cli.runs()) == 1

    def test_filters(self, measured: tuple[Cli, object]) -> None:
        cli = measured[0]
        cli("results", "list", "model").assert_error(USAGE, "NAME=VALUE")
        cli("results", "list", "modle=cifarnet").assert_error(USAGE, "modle", "model")

    def test_export_to_a_file_that_cannot_be(self, measured: tuple[Cli, object]) -> None:
        measured[0]("results", "export", "-o", "/proc/runs.jsonl").assert_error(USAGE, "/proc/runs.jsonl", "-o")

    def test_two_forms_of_export(self, measured: tuple[Cli, object]) -> None:
        measured[0]("results", "export", "--json", "--format", "csv").assert_error(USAGE, "--json", "--format")


def test_standard_output_that_is_full(reader: Cli) -> None:
    import subprocess

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            reader.command("models"),
            env=reader.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=200,
        )
    assert done.returncode == 1
    assert done.stderr == "deepstone: cannot write to standard output: no space left on device\n"


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}])
def test_a_terminal_without_our_characters(reader: Cli, locale: dict[str, str]) -> None:
    assert "60,192,808" in reader("models", **locale).assert_ok().out
    assert reader("axes", "--json", **locale).assert_ok().json
