"""Study files: what is read, and what is refused with its line and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import UsageError
from deepstone.studies.find import builtin_names, find_study, read_toml
from deepstone.studies.read import Source, read_table
from deepstone.studies.study import Study
from deepstone.studies.values import Listed, Range

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

WHOLE = """title = "Which settings?"
description = "One at a time"
[effort]
repetitions = 4
target = 3.0
budget = 2.5
timeout = 60
[plan]
order = "written"
seed = 7
time = "20 min"
rerun = "failed"
[[jobs]]
measure = "run"
model = ["alexnet-owt", "resnet50"]
vary = "one"
batch = [16, 32]
threads = { from = 1, to = "cores", times = 2 }
layout = "nhwc"
exclude = [{ layout = "nhwc", engine = "native" }, { model = "resnet50", batch = 32 }]
priority = 2
[[jobs]]
measure = "conv"
model = "alexnet-owt"
[[jobs]]
measure = "layers"
model = "alexnet-owt"
method = "in-place"
repetitions = 2
[[jobs]]
measure = "peaks"
[[figures]]
form = "lines"
x = "batch"
series = "model"
"""


def read(text: str) -> Study:
    return read_toml(text.encode(), shown_as="my.toml", name="my")


def test_a_whole_study() -> None:
    found = read(WHOLE)
    assert (found.name, found.title, found.description) == ("my", "Which settings?", "One at a time")
    assert (found.rules.order, found.rules.seed, found.rules.time_s, found.rules.rerun) == (
        "written",
        7,
        1200,
        "failed",
    )
    run, conv, layers, peaks = found.sweeps
    assert run.models == ("alexnet-owt", "resnet50")
    assert run.vary == "one"
    assert run.axes["batch"] == Listed(values=(16, 32))
    assert isinstance(run.axes["threads"], Range)
    assert run.axes["layout"] == Listed(values=("nhwc",))
    assert run.exclude == ({"layout": "nhwc", "engine": "native"}, {"model": "resnet50", "batch": 32})
    assert (run.effort.repetitions, run.effort.target_share, run.effort.budget_s, run.effort.timeout_s) == (
        4,
        0.03,
        2.5,
        60,
    )
    assert run.tier == 2
    # The budget for all is that of runs and layers, the rounds for all are those of runs.
    assert (conv.effort.budget_s, conv.effort.repetitions) == (None, None)
    assert (layers.effort.budget_s, layers.effort.repetitions, layers.method) == (2.5, 2, "in-place")
    assert peaks.tier < 0
    assert found.figures == ({"form": "lines", "x": "batch", "series": "model"},)


JOBS = '[[jobs]]\nmodel = "alexnet"\n'
BASE = 'title = "x"\n' + JOBS
# The mistake is in the last line of each.
BEFORE_THE_JOBS = {
    'titel = "x"\n': "titel: no such key; did you mean title?",
    "[efort]\n": "did you mean effort?",
    "[effort]\n\nrepetition = 3\n": "did you mean repetitions?",
    "[effort]\nrepetitions = 0\n": "whole number from 1 to 1000, not 0",
    '[effort]\nbudget = "5"\n': "budget: must be a number",
    '[plan]\norder = "randm"\n': "did you mean random?",
    '[plan]\ntime = "soon"\n': "20 min",
    '[plan]\nrerun = "fail"\n': "did you mean failed?",
}
OF_A_JOB = {
    "bach = 3\n": "bach: no such key; did you mean batch?",
    'layout = ["nchw",\n"nwhc"]\n': "did you mean nhwc",
    "batch = [8, 8]\n": "8 is listed twice",
    "batch = []\n": "the list is empty",
    "threads = { from = 1, too = 4 }\n": "too: no such key of a range; did you mean to?",
    'measure = "layer"\n': "did you mean layers?",
    'vary = "ones"\n': "did you mean one?",
    'method = "in-place"\n': "only layers",
    "exclude = [{ bach = 3 }]\n": "did you mean batch?",
    "exclude = [{}]\n": "would exclude everything",
    "exclude = 3\n": "must be a list of tables",
    'measure = "conv"\nengine = "native"\n': "conv tries every engine",
    '[[figures]]\nx = "batch"\nform = "line"\n': "did you mean lines?",
    '[[figures]]\nx = "bach"\n': "did you mean batch",
}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        *((mistake + JOBS, mistake.count("\n"), told) for mistake, told in BEFORE_THE_JOBS.items()),
        *((BASE + mistake, (BASE + mistake).count("\n"), told) for mistake, told in OF_A_JOB.items()),
        ('[[jobs]]\nmodel = "alexnt"\n', 2, "did you mean alexnet"),
        ('[[jobs]]\nmodel = [\n"alexnet",\n"resnt50"]\n', 4, "did you mean resnet50"),
        ('[[jobs]]\nmodel = ["alexnet", "alexnet"]\n', 2, "listed twice"),
        ("[[jobs]]\nmodel = []\n", 2, "the list is empty"),
        ("[[jobs]]\nbatch = 3\n", 1, "has no model"),
        ('[[jobs]]\nmeasure = "peaks"\nmodel = "alexnet"\n', 3, "leave it out"),
        ('[[jobs]]\nmeasure = "peaks"\nbatch = 3\n', 3, "framework and device only"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(UsageError) as error:
        read(text)
    assert str(error.value).startswith(f"my.toml, line {line}: ")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'title = "x"\n', "my.toml: has no [[jobs]]"),
        (b'title = "x"\n[[jobs]\n', "is not TOML: Expected ']]' at the end of an array declaration (at line 2"),
        (b"a = 1\n\xff\n", "line 2: is not UTF-8"),
        (b"a = " + b"[" * 5000, "nested too deeply"),
        (b"#" * (2**20 + 1), "larger than"),
    ],
)
def test_what_is_no_study_at_all(data: bytes, told: str) -> None:
    with pytest.raises(UsageError) as error:
        read_toml(data, shown_as="my.toml", name="my")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["title", "effort", "plan", "jobs", "figures", "model", "batch", "exclude", "budget", "time", "x"]
)


@given(st.dictionaries(KEYS, JSON_LIKE | st.lists(st.dictionaries(KEYS, JSON_LIKE, max_size=3), max_size=2)))
def test_whatever_a_function_returns_is_a_study_or_told_in_one_line(table: object) -> None:
    told = "my.py:make"
    try:
        read_table(table, Source(shown="my.py:make"), name="my")
    except UsageError as error:
        told = str(error)
    assert told.startswith("my.py:make")
    assert "\n" not in told


class TestFinding:
    def test_all_that_come_with_it_can_be_read(self) -> None:
        for name in builtin_names():
            assert find_study(name).name == name

    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
    def test_examples_can_be_read(self, path: Path) -> None:
        found = find_study(str(path))
        assert found.name == path.stem
        assert found.description
        assert found.figures

    @pytest.mark.parametrize(
        ("reference", "told"),
        [
            ("no.toml", "no file no.toml; a study is"),
            ("no/such", "is no study; a study is"),
            ("my.py", "write FILE.py:FUNCTION"),
            ("no.py:make", "no file"),
        ],
    )
    def test_what_is_not_there(self, reference: str, told: str) -> None:
        with pytest.raises(UsageError, match=told):
            find_study(reference)

    def test_a_folder_and_a_pipe_are_no_studies(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").mkdir()
        with pytest.raises(UsageError, match="is not a file"):
            find_study(str(tmp_path / "a.toml"))

    def test_a_function(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "def make():\n    return {'title': 'T', 'jobs': [{'model': 'cifarnet', 'batch': [1, 2]}]}\n"
        )
        found = find_study(f"{tmp_path}/mine.py:make")
        assert (found.name, found.title) == ("mine-make", "T")
        assert found.sweeps[0].axes["batch"] == Listed(values=(1, 2))

    def test_a_function_may_return_a_study(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "from deepstone.studies.study import Effort, Rules, Study, Sweep\n"
            "def make():\n"
            "    sweep = Sweep(models=('cifarnet',), axes={}, effort=Effort())\n"
            "    return Study(name='mine', title='T', sweeps=(sweep,), rules=Rules())\n"
        )
        assert find_study(f"{tmp_path}/mine.py:make").name == "mine"

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            (
                "def make():\n    return {'jobs': [{'model': 'cifarnet', 'bach': 1}]}\n",
                "jobs[0].bach: bach: no such key",
            ),
            ("def make():\n    return 3\n", "returned int"),
            ("def make():\n\n    1 / 0\n", "line 3: ZeroDivisionError"),
            ("def mak():\n    return {}\n", "has no function 'make'; did you mean mak?"),
        ],
    )
    def test_a_function_that_is_wrong(self, tmp_path: Path, body: str, told: str) -> None:
        (tmp_path / "mine.py").write_text(body)
        with pytest.raises(UsageError) as error:
            find_study(f"{tmp_path}/mine.py:make")
        assert told in str(error.value)

    def test_a_model_beside_the_study(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "studies"
        folder.mkdir()
        (folder / "net.py").write_text("from deepstone.models.chains import cifarnet as make\n")
        (folder / "mine.toml").write_text('title = "x"\n[[jobs]]\nmodel = "net.py:make"\n')
        monkeypatch.chdir(tmp_path)
        assert find_study("studies/mine.toml").sweeps[0].models == (str(folder / "net.py:make"),)
