"""`deepstone results gate` fails a build exactly when something became worse; `results compare` says what differs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_kit import SCRIPT, Cli, Result
from factory import make_draft, typed_draft, typed_record

from deepstone.results import codec
from deepstone.results.record import Draft
from deepstone.store.export.jsonl import export_jsonl
from deepstone.store.store import Store

ROOT = Path(__file__).resolve().parents[2]
FAILED, USAGE, STORE, REGRESSED = 1, 2, 3, 5


def kept(folder: Path, *drafts: Any) -> Path:
    store = Store.open(folder)
    for draft in drafts:
        store.add(draft)
    return folder


def over_launches(**settings: Any) -> Any:
    """A run of several launches, whose interval tells how processes differ."""
    draft: Any = make_draft(**settings)
    draft["summary"]["interval"] = "across launches"
    return codec.convert(draft, Draft)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four stores of one job: the baseline, the same again, one that is slower, one that fails. Not to be changed."""
    home = tmp_path_factory.mktemp("stores")
    kept(home / "main", over_launches(step_s=0.0100))
    kept(home / "again", over_launches(step_s=0.0102))
    kept(home / "slower", over_launches(step_s=0.0108))
    kept(home / "broken", typed_draft(outcome="crashed"))
    return home


def gate(cli: Cli, store: Path, baseline: Path, *more: object) -> Result:
    return cli("results", "gate", "--store", store, "--baseline", baseline, *more)


class TestVerdicts:
    def test_slower_fails_and_noise_does_not(self, cli: Cli, stores: Path) -> None:
        same = gate(cli, stores / "again", stores / "main")
        assert (same.code, same.err) == (0, "")
        assert "no change shown" in same.out
        slower = gate(cli, stores / "slower", stores / "main")
        assert slower.code == REGRESSED
        assert "steps take more than 5 % longer" in slower.out
        assert "regression: 1" in slower.out

    def test_a_file_that_export_wrote_is_a_baseline(self, cli: Cli, stores: Path) -> None:
        cli("results", "export", "--store", stores / "main", "-o", "main.jsonl").assert_ok()
        done = gate(cli, stores / "slower", Path("main.jsonl"), "--json")
        assert done.code == REGRESSED
        found = done.json
        assert not found["passed"]
        assert found["counts"]["regression"] == 1
        (job,) = found["jobs"]
        assert job["ratio"]["high"] < 1 / 1.05
        assert job["ratio"]["low"] < job["ratio"]["median"] < job["ratio"]["high"]
        assert job["baseline"]["interval"] == "across launches"

    def test_a_run_that_fails_and_did_not(self, cli: Cli, stores: Path) -> None:
        done = gate(cli, stores / "broken", stores / "main")
        assert done.code == REGRESSED
        assert "it worked before" in done.out

    def test_the_tolerance_is_the_users(self, cli: Cli, tmp_path: Path) -> None:
        before = kept(tmp_path / "before", typed_draft(step_s=0.010))
        now = kept(tmp_path / "now", typed_draft(step_s=0.012))
        assert gate(cli, now, before).code == REGRESSED
        assert gate(cli, now, before, "--tolerance", 30).code == 0

    def test_memory_when_asked(self, cli: Cli, tmp_path: Path) -> None:
        before = kept(tmp_path / "before", typed_draft())
        now = kept(tmp_path / "now", typed_draft(memory={"host_peak_bytes": 10**12}))
        assert gate(cli, now, before).code == 0
        done = gate(cli, now, before, "--memory")
        assert done.code == REGRESSED
        assert "host_peak_bytes" in done.out


class TestNothingToCompare:
    @pytest.mark.parametrize("empty", ["before", "now"])
    def test_an_empty_side_is_never_a_success(self, cli: Cli, tmp_path: Path, empty: str) -> None:
        for name in ("before", "now"):
            kept(tmp_path / name, *([] if name == empty else [typed_draft()]))
        done = gate(cli, tmp_path / "now", tmp_path / "before")
        assert done.code == FAILED
        assert "nothing was compared" in done.err

    def test_other_jobs_only(self, cli: Cli, tmp_path: Path) -> None:
        before, now = kept(tmp_path / "a", typed_draft(batch=1)), kept(tmp_path / "b", typed_draft(batch=2))
        done = gate(cli, now, before, "--json")
        assert done.code == FAILED
        assert not done.json["passed"]
        assert (done.json["counts"]["new"], done.json["counts"]["vanished"]) == (1, 1)
        assert "no job could be compared" in done.err

    def test_filters_hold_for_both_sides(self, cli: Cli, tmp_path: Path) -> None:
        drafts = [typed_draft(batch=1), typed_draft(batch=2)]
        before = tmp_path / "main.jsonl"
        before.write_text("".join(export_jsonl([typed_record(batch=1), typed_record(batch=2)])))
        now = kept(tmp_path / "b", *drafts)
        done = gate(cli, now, before, "outcome=ok", "model=cifarnet", "--json").assert_ok()
        assert len(done.json["jobs"]) == 2
        done = gate(cli, now, before, "job=" + drafts[0].job, "--json").assert_ok()
        assert [job["title"].split(" · ")[1] for job in done.json["jobs"]] == ["batch 1"]
        assert gate(cli, now, before, "outcome=oom").code == FAILED

    def test_a_job_of_the_baseline_that_is_missing(self, cli: Cli, tmp_path: Path) -> None:
        before = kept(tmp_path / "a", typed_draft(batch=1), typed_draft(batch=2))
        now = kept(tmp_path / "b", typed_draft(batch=1))
        done = gate(cli, now, before).assert_ok()
        assert "vanished" in done.out
        assert gate(cli, now, before, "--require-all").code == FAILED


class TestBadInput:
    def test_a_baseline_that_is_not_there(self, cli: Cli, tmp_path: Path) -> None:
        now = kept(tmp_path / "now", typed_draft())
        gate(cli, now, tmp_path / "none").assert_error(USAGE, "none: no such store or file")

    def test_a_folder_that_is_no_store(self, cli: Cli, tmp_path: Path) -> None:
        now = kept(tmp_path / "now", typed_draft())
        gate(cli, now, tmp_path).assert_error(STORE, "there is no store in")

    def test_a_file_that_is_no_export(self, cli: Cli, tmp_path: Path) -> None:
        now = kept(tmp_path / "now", typed_draft())
        (tmp_path / "bad.jsonl").write_text("{}\n")
        gate(cli, now, tmp_path / "bad.jsonl").assert_error(USAGE, "bad.jsonl: line 1")

    @pytest.mark.parametrize("value", ["nan", "-1", "much"])
    def test_a_tolerance_that_is_none(self, cli: Cli, tmp_path: Path, value: str) -> None:
        now = kept(tmp_path / "now", typed_draft())
        gate(cli, now, now, "--tolerance", value).assert_error(USAGE, "--tolerance")

    def test_a_filter_with_a_slip(self, cli: Cli, tmp_path: Path) -> None:
        now = kept(tmp_path / "now", typed_draft())
        gate(cli, now, now, "modle=vgg16").assert_error(USAGE, "did you mean model")

    def test_a_damaged_record_is_told(self, cli: Cli, tmp_path: Path) -> None:
        before = kept(tmp_path / "a", typed_draft(batch=1), typed_draft(batch=2))
        now = kept(tmp_path / "b", typed_draft(batch=1), typed_draft(batch=2))
        bad = sorted(now.glob("runs/*/*.json"))[0]
        bad.write_text("{}")
        done = gate(cli, now, before).assert_ok()
        assert f"damaged record {bad}" in done.err
        assert "vanished" in done.out


class TestMarkdown:
    def test_a_comment_is_written_whatever_the_verdict(self, cli: Cli, tmp_path: Path) -> None:
        before = kept(tmp_path / "before", typed_draft(step_s=0.010))
        now = kept(tmp_path / "now", typed_draft(step_s=0.020))
        target = tmp_path / "comment.md"
        assert gate(cli, now, before, "--markdown", target).code == REGRESSED
        text = target.read_text()
        assert text.startswith("**Deepstone gate failed**")
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) == 3
        assert len({line.count("|") for line in rows}) == 1

    def test_names_in_it_do_nothing(self, cli: Cli, tmp_path: Path) -> None:
        model = "a|b <img src=x onerror=alert(1)> [x](javascript:1) @everyone `c`\n| d |"
        now = kept(tmp_path / "now", typed_draft(model=model))
        target = tmp_path / "comment.md"
        gate(cli, now, now, "--markdown", target).assert_ok()
        (row,) = [line for line in target.read_text().splitlines() if "everyone" in line]
        assert len(re.findall(r"(?<!\\)\|", row)) == 8
        assert "<" not in row
        assert "@everyone" not in row
        assert not re.search(r"(?<!\\)[\[`]", row)

    def test_where_it_cannot_be_written(self, cli: Cli, tmp_path: Path) -> None:
        now = kept(tmp_path / "now", typed_draft())
        gate(cli, now, now, "--markdown", tmp_path / "none" / "x.md").assert_error(USAGE, "cannot write", "--markdown")


def test_the_example_of_the_docs_works_when_typed(cli: Cli) -> None:
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- tried -->\n```sh\n(.*?)```", page, re.DOTALL)
    lines = block.splitlines()
    setting_up, gates = lines[:-2], lines[-2:]
    told = "\n".join(f"{line}; echo $?" for line in gates)
    done = subprocess.run(
        ["bash", "-ec", "\n".join(setting_up) + "\nset +e\n" + told],
        env={**cli.environment(), "PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"},
        cwd=cli.home,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert re.findall(r"^\d+$", done.stdout, re.MULTILINE) == ["0", "5"], done.stderr


class TestCompare:
    @pytest.fixture
    def store(self, cli: Cli) -> Store:
        store = Store.open(cli.store)
        for layout, step_s in (("nchw", 0.010), ("nhwc", 0.020)):
            asked = {"framework": "torch", "device": "cpu", "layout": layout}
            store.add(typed_draft(requested=asked, step_s=step_s))
        return store

    def test_two_ids(self, cli: Cli, store: Store) -> None:
        fast, slow = sorted(store.list().rows, key=lambda row: row.step_s_median or 0)
        done = cli("results", "compare", fast.id, slow.id).assert_ok()
        assert "they differ in: layout" in done.out
        assert "measured apart" in done.out
        assert "verdict: a faster" in done.out
        found = cli("results", "compare", slow.id, fast.id, "--json").assert_ok().json
        assert found["verdict"] == "b faster"
        assert found["measured_apart"] is True
        assert found["ratio"]["median"] == pytest.approx(0.5)
        assert found["differ_in"] == ["layout"]

    def test_two_filters(self, cli: Cli, store: Store) -> None:
        done = cli("results", "compare", "model=cifarnet", "layout=nchw", "--", "layout=nhwc", "--json").assert_ok()
        assert done.json["a"]["requested"]["layout"] == "nchw"
        assert done.json["b"]["requested"]["layout"] == "nhwc"
        assert done.json["verdict"] == "a faster"

    def test_one_setup_measured_twice(self, cli: Cli, store: Store) -> None:
        again = store.add(typed_draft(requested={"framework": "torch", "device": "cpu", "layout": "nchw"})).id
        done = cli("results", "compare", again, again.replace("-2", "-1")).assert_ok()
        assert "nothing that was chosen" in done.out

    def test_what_cannot_be_compared(self, cli: Cli, store: Store) -> None:
        other = store.add(typed_draft(model="vgg16")).id
        first = store.list().rows[0].id
        done = cli("results", "compare", first, other)
        assert done.code == FAILED
        assert "not the same network" in done.out

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ((), "two sides"),
            (("model=cifarnet",), "two sides"),
            (("layout=nchw", "--", "layout=nope"), "side B has no run"),
            (("model=cifarnet", "--", "layout=nhwc"), "side A holds 2 setups"),
            (("layout=nchw", "--", "layout=nhwc", "--", "batch=8"), "one --"),
            (("zzzz", "yyyy"), "no run 'zzzz'"),
        ],
    )
    def test_bad_words(self, cli: Cli, store: Store, words: tuple[str, ...], told: str) -> None:
        cli("results", "compare", *words).assert_error(USAGE, told)

    def test_json_holds_no_infinity(self, cli: Cli, store: Store) -> None:
        summary: Any = make_draft(batch=9)["summary"]
        summary["samples_per_s"] = {**summary["samples_per_s"], "low": 0}
        weak = store.add(typed_draft(batch=9, summary=summary)).id
        done = cli("results", "compare", store.list().rows[0].id, weak, "--json")
        assert done.code in (0, FAILED)
        json.loads(done.out)
