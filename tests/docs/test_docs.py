"""The documentation holds: links lead somewhere, commands can be typed, and lists are complete."""

from __future__ import annotations

import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from deepstone.analysis.facts import value_of, version_of
from deepstone.cli.commands import app
from deepstone.cli.compare import OTHER_SIDES
from deepstone.environments.cookbook import find_recipe
from deepstone.errors import UsageError
from deepstone.exchange.load import load_model
from deepstone.models.zoo import ZOO
from deepstone.papers.gather import read_elsewhere
from deepstone.results.doubt import DOUBT_CODES
from deepstone.results.record import OUTCOMES, Record
from deepstone.scaling.comm_words import read_words
from deepstone.setups.axes import AXES, FAKE
from deepstone.setups.request import parse_words
from deepstone.setups.schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
STAND_INS = ("my_net.py:make", "my_net.json", "my_net.onnx")  # files that a reader is to have

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


def commands() -> list[tuple[str, str]]:
    """Every line of a shell example that calls deepstone, without comment and pipe."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for language, body in _FENCE.findall(page.read_text(encoding="utf-8")):
            lines = [line.removeprefix("$ ") for line in body.splitlines() if language == "sh" or line.startswith("$ ")]
            for line in lines:
                call = re.match(r"(?:\.venv/bin/)?(deepstone .*?)\s*(?:#.*|\|.*)?$", line)
                if call:
                    found.append((page_name(page), call[1]))
    return found


COMMANDS = commands()
load_once = cache(load_model)  # a torch module takes seconds


def parsed(words: list[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The command, its parameters and its context's notes, as typer reads the words; nothing is run."""
    command: Any = get_command(app)
    context = command.make_context("deepstone", list(words))
    name, command, rest = command.resolve_command(context, list(words))
    context = command.make_context(name, list(rest), parent=context)
    if name in ("results", "env", "caffe"):
        name, command, rest = command.resolve_command(context, list(rest))
        context = command.make_context(name, list(rest), parent=context)
    return name, context.params, context.meta


def test_there_are_commands_for_all_that_users_do() -> None:
    groups = ("results", "env", "caffe")
    used = {" ".join(call.split()[1 : 3 if call.split()[1] in groups else 2]) for _, call in COMMANDS}
    assert {"doctor", "models", "run", "compare", "results export", "results import", "results list"} <= used
    assert {"env add", "env list", "env remove", "env doctor"} <= used


@pytest.mark.parametrize(("page", "call"), COMMANDS, ids=[f"{page}: {call}" for page, call in COMMANDS])
def test_commands_can_be_typed(page: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "best.toml").write_text('[setup]\nlayout = "nhwc"\n')  # as a search writes it
    monkeypatch.chdir(tmp_path)
    check_command(call)


def check_command(call: str) -> None:
    words = shlex.split(call)[1:]
    words = words[: words.index(">")] if ">" in words else words  # a shell keeps the rest to itself
    if words == ["--install-completion"]:
        return
    name, given, meta = parsed(words)
    assert name
    model = given.get("model") or given.get("name")
    if model is not None and model not in (*STAND_INS, "MODEL"):
        load_once(model if model in ZOO else str(ROOT / model))
    if name == "comm":
        model = read_words(given["axes"] or []).model
        assert model is None or load_once(model)
        return
    own_words = ("mode", "base") if name == "scale" else ()
    parse_words([word for word in given.get("axes") or [] if word.partition("=")[0] not in own_words])
    if name == "compare":
        for side in meta[OTHER_SIDES]:
            parse_words(side)
    if name == "add" and given["python"] is None and given["program"] is None:
        for wanted in given["names"]:
            find_recipe(wanted)


@pytest.mark.parametrize(
    "call",
    ["deepstone rn cifarnet", "deepstone run cifarnet --bugdet 3", "deepstone run alexnt", "deepstone env add trch"],
)
def test_the_check_of_commands_can_fail(call: str) -> None:
    wrong = (typer.BadParameter.__base__, UsageError)
    with pytest.raises(wrong):  # pyright: ignore[reportArgumentType]
        check_command(call)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        used = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
        assert used <= targets, page


def test_generated_parts_are_current() -> None:
    """If this fails: python docs/generate.py"""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, (page, make) in generate.PARTS.items():
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert generate.with_part(text, name, make()) == text, f"{page}: {name} is out of date"


def test_every_doubt_and_outcome_is_explained() -> None:
    text = (ROOT / "docs" / "measure.md").read_text(encoding="utf-8")
    for name in (*DOUBT_CODES, *OUTCOMES):
        assert f"\n| `{name}` |" in text, name


def test_every_key_of_a_record_is_explained() -> None:
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert "samples" in Record.__struct_fields__
    assert sorted(told) == sorted(Record.__struct_fields__)


def test_every_request_of_the_protocol_is_explained() -> None:
    source = (ROOT / "deepstone" / "worker" / "serve.py").read_text(encoding="utf-8")
    _, _, handlers = source.partition("known: Dict[")
    handlers, _, _ = handlers.partition("\n        }\n")
    known = re.findall(r'^            "(\w+)": self\._\w+,$', handlers, re.MULTILINE)
    assert len(known) >= 30
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in (*known, "close"):
        assert f"\n| `{name}` |" in text, name


def test_decisions_are_numbered_and_short() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]} ")
        assert len(text.splitlines()) < 25
        for part in ("**Context.**", "**Decision.**", "**Consequences.**"):
            assert part in text, page


def test_what_is_said_of_nchw_in_tensorflow_is_what_was_recorded() -> None:
    """The version that trained in NCHW on a CPU, by the records kept with the sources, is not called unable to."""
    trained = {
        version_of(record)
        for record in read_elsewhere(ROOT / "results" / "two-cores")[0]
        if record.outcome == "ok"
        and record.workload.phase == "train"
        and value_of(record, "framework") == "tensorflow"
        and value_of(record, "layout") == "nchw"
    }
    page = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| TensorFlow") and "NCHW |" in line]
    assert trained
    for version in trained:
        [row] = [row for row in rows if f"TensorFlow {version.removesuffix('.0')} " in row]
        assert "| trains with " in row


def test_lists_of_values_are_complete() -> None:
    """Of tables with a row for each axis: every value of an axis that has a choice of them."""
    checked: set[str] = set()
    for page in PAGES:
        for table in re.findall(r"^\| (?:axis|word) \| values \|.*\n(?:\|.*\n)+", prose(page), re.MULTILINE):
            for name, cell in re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE):
                axis = AXES.get(name)
                if axis is not None and axis.type == "choice":
                    missing = [str(value) for value in axis.values if str(value) not in re.split(r"[^\w-]+", cell)]
                    assert not missing, f"{page_name(page)}: {name}"
                    checked.add(name)
    assert {"scheme", "transport", "collective", "compression", "launcher", "library"} <= checked


def test_verify_says_which_framework_has_which_scheme() -> None:
    text = (ROOT / "docs/verify.md").read_text(encoding="utf-8")
    told: dict[str, set[str]] = {}
    for names, frameworks in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", text.partition("| scheme |")[2], re.MULTILINE):
        for name in re.findall(r"`([\w-]+)`", names):
            told[name] = {word.strip().lower() for word in frameworks.split(",")}
    parallel = set(AXES["processes"].honoured_by) - {FAKE}
    assert told == {name: set(scheme.frameworks) & parallel for name, scheme in SCHEMES.items()}
