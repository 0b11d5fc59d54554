"""What a user may write for a model, and the one line they get when it is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from deepstone.errors import GraphError, UsageError
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models import load
from deepstone.models.load import ForeignModelError, load_in_process
from deepstone.models.program import why_not_callable
from deepstone.models.zoo import ZOO

TINY = """\
from deepstone.graph.builder import Builder

def tiny():
    b = Builder("tiny")
    x = b.input("data", (3, 8, 8))
    x = b.conv("conv1", x, channels=CHANNELS, kernel=3)
    x = b.flatten("flatten", x)
    x = b.dense("fc", x, features=10)
    b.softmax_cross_entropy("loss", x)
    return b.build()
"""


def tiny_graph() -> Graph:
    b = Builder("tiny")
    x = b.input("data", (3, 8, 8))
    x = b.flatten("flatten", x)
    x = b.dense("fc", x, features=10)
    b.softmax_cross_entropy("loss", x)
    return b.build()


@pytest.fixture
def write(tmp_path: Path):
    def write_text(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write_text


def refusal(reference: str, kind: type[UsageError] = UsageError) -> str:
    """The message, which must be one line."""
    with pytest.raises(kind) as caught:
        load_in_process(reference)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


# ---- the zoo


@pytest.mark.parametrize("name", ["cifarnet", "resnet50"])
def test_zoo_name(name: str) -> None:
    model = load_in_process(name)
    assert (model.name, model.source, model.file_sha256) == (name, "zoo", "")
    assert model.graph.sha == ZOO[name].make().sha


@pytest.mark.parametrize(("word", "meant"), [("resnet5", "resnet50"), ("AlexNet", "alexnet"), ("vgg_16", "vgg16")])
def test_unknown_name_is_answered_with_near_ones(word: str, meant: str) -> None:
    message = refusal(word)
    assert repr(word) in message
    assert f"did you mean {meant}" in message or f"or {meant}" in message


@pytest.mark.parametrize("word", ["zzzzzz", "", "two\nlines"])
def test_name_near_none_is_answered_with_all(word: str) -> None:
    message = refusal(word)
    assert all(name in message for name in ZOO)


@pytest.mark.parametrize("reference", ["net.onnx", "models/net", "net:make", "resnet50:make", ":", "/"])
def test_what_is_no_reference_at_all(reference: str) -> None:
    assert load.FORMS in refusal(reference)


# ---- Python files


def test_python_file(write) -> None:
    text = TINY.replace("CHANNELS", "5")
    path = write("net.py", text)
    model = load_in_process(f"{path}:tiny")
    assert model.graph.shapes["conv1"] == (5, 6, 6)
    assert (model.name, model.source) == ("tiny", path)
    assert model.file_sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_relative_path_is_taken_from_the_current_directory(write, tmp_path, monkeypatch) -> None:
    path = write("folder/net.py", TINY.replace("CHANNELS", "5"))
    monkeypatch.chdir(tmp_path)
    assert load_in_process("folder/net.py:tiny").source == path
    monkeypatch.chdir(tmp_path / "folder")
    assert load_in_process("net.py:tiny").source == path


def test_path_with_a_colon(write) -> None:
    path = write("a:b/net.py", TINY.replace("CHANNELS", "5"))
    assert load_in_process(f"{path}:tiny").source == path


def test_edited_file_is_read_anew(write) -> None:
    for channels in (5, 7):
        path = write("net.py", TINY.replace("CHANNELS", str(channels)))
        assert load_in_process(f"{path}:tiny").graph.shapes["conv1"][0] == channels


def test_file_may_import_its_siblings_and_leaves_no_trace(write, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write("width.py", "CHANNELS = 6\n")
    write("package/__init__.py", "")
    write("package/late.py", "KERNEL = 3\n")
    text = "from width import CHANNELS\n" + TINY.replace("    b = ", "    import package.late\n    b = ")
    path = write("net.py", text)
    before = (list(sys.path), set(sys.modules), sys.dont_write_bytecode)
    assert load_in_process(f"{path}:tiny").graph.shapes["conv1"] == (6, 6, 6)
    assert (list(sys.path), set(sys.modules), sys.dont_write_bytecode) == before
    assert sorted(file.name for file in tmp_path.rglob("*")) == [
        "__init__.py",
        "late.py",
        "net.py",
        "package",
        "width.py",
    ]


def test_two_files_each_import_their_own_sibling_of_one_name(write) -> None:
    for folder, channels in (("one", 4), ("two", 9)):
        write(f"{folder}/width.py", f"CHANNELS = {channels}\n")
        path = write(f"{folder}/net.py", "from width import CHANNELS\n" + TINY)
        assert load_in_process(f"{path}:tiny").graph.shapes["conv1"][0] == channels


def test_file_may_hold_dataclasses(write) -> None:
    head = "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = 3\n"
    path = write("net.py", head + TINY.replace("CHANNELS", "C().n"))
    assert load_in_process(f"{path}:tiny").graph.shapes["conv1"][0] == 3


def test_what_a_file_prints_does_not_go_to_stdout(write, capsys) -> None:
    path = write("net.py", "print('hello')\n" + TINY.replace("CHANNELS", "5"))
    load_in_process(f"{path}:tiny")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")


def test_missing_file(tmp_path) -> None:
    message = refusal(f"{tmp_path}/absent.py:make")
    assert f"no file {tmp_path}/absent.py" in message
    assert load.FORMS in message


@pytest.mark.parametrize(
    ("word", "meant"),
    [("resnet81.onnx", ["resnet18.onnx"]), ("resnet18", ["resnet18.onnx"]), ("net.py:make", []), ("vgg.onnx", [])],
)
def test_a_file_beside_it_with_a_near_name_is_proposed(tmp_path, word: str, meant: list[str]) -> None:
    for name in ("resnet18.onnx", "resnet18.txt", "lenet_train.prototxt"):
        (tmp_path / name).touch()
    message = refusal(f"{tmp_path}/{word}")
    for name in meant:
        assert message.endswith(f"; did you mean {tmp_path / name}?")
    assert (load.FORMS in message) == (not meant)


def test_functions_of_a_file_are_proposed(write) -> None:
    text = "import missing\ndef _own(): ...\ndef with_one(x): ...\ndef make(classes=3): ...\nother = lambda: 1\n"
    path = write("net.py", text)
    assert refusal(path).endswith(f"which function makes the model; write {path}:make or {path}:other")
    assert refusal(write("none.py", "def (")).endswith("write FILE.py:FUNCTION")


def test_directory_instead_of_a_file(tmp_path) -> None:
    (tmp_path / "net.py").mkdir()
    assert "is not a file" in refusal(f"{tmp_path}/net.py:make")


def test_pipe_instead_of_a_file(tmp_path) -> None:
    os.mkfifo(tmp_path / "net.json")
    assert "is not a file" in refusal(f"{tmp_path}/net.json")


def test_loop_of_links(tmp_path) -> None:
    (tmp_path / "net.py").symlink_to(tmp_path / "net.py")
    assert "net.py" in refusal(f"{tmp_path}/net.py:make")


def test_name_too_long_for_a_file() -> None:
    assert "cannot read" in refusal("n" * 5000 + ".json")


def test_path_that_is_not_one_line() -> None:
    assert "cannot be shown" in refusal("a\nb.json")
    assert "cannot be shown" in refusal("a\0b.py:make")


def test_file_that_cannot_be_read_even_by_root(tmp_path) -> None:
    (tmp_path / "net.json").symlink_to("/proc/self/mem")
    assert "Input/output error" in refusal(f"{tmp_path}/net.json")


def test_no_function_named(write) -> None:
    path = write("net.py", TINY)
    assert refusal(path).endswith(f"write {path}:tiny")


def test_no_such_function(write) -> None:
    path = write("net.py", TINY)
    assert "has no function 'tinny'; did you mean tiny?" in refusal(f"{path}:tinny")
    assert "has no function ''; known: tiny" in refusal(f"{path}:")
    empty = write("empty.py", "from deepstone.graph.builder import Builder\n")
    assert "it defines none" in refusal(f"{empty}:make")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("make = Net", ""),
        ("from somewhere import make", ""),
        ("from somewhere import *", ""),
        ("try:\n    from somewhere import make\nexcept ImportError:\n    pass", ""),
        ("if True:\n    def make():\n        pass", ""),
        ("import functools\nmake = functools.partial(Net)", ""),
        ("make: object = lambda: Net()", ""),
        ("class make(Net):\n    pass", ""),
        ("class make:\n    def __init__(self, width=3):\n        pass", ""),
        ("class make:\n    def __init__(self, width):\n        pass", "make must need no arguments"),
        ("def make(depth):\n    pass", "make must need no arguments"),
        ("def mak():\n    pass", "did you mean mak?"),
        ("", "known: Net"),
    ],
)
def test_what_a_file_has_is_seen_without_running_it(tmp_path, source: str, told: str) -> None:
    """As running it would find it: functions, classes, and other names of them."""
    content = f"class Net:\n    def __init__(self):\n        pass\n\n{source}\n".encode()
    found = why_not_callable(tmp_path / "net.py", content, "make")
    assert told in found
    assert bool(told) == bool(found)


def test_a_file_that_has_nothing_says_so(tmp_path) -> None:
    assert why_not_callable(tmp_path / "net.py", b"import os\n", "make").endswith("it defines none")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"import torch\n\ndef make(:\n    pass\n", ", line 3: SyntaxError: "),
        (b"def make():\n    pass\nreturn 1\n", ", line 3: SyntaxError: "),
        (b"def make():\n\tif 1:\n        pass\n", ", line 3: TabError: "),
        (b"a = '\xe9'\n", ", line 1: SyntaxError: "),
        (b"def make():\n    pass\n\0", "null byte"),
    ],
    ids=str,
)
def test_a_file_that_python_cannot_read_names_its_line(tmp_path: Path, content: bytes, told: str):
    """Without running it, in the words of the command that runs it."""
    found = why_not_callable(tmp_path / "net.py", content, "make")
    assert told in found
    assert "defines none" not in found


def test_a_class_is_named_after_functions(write) -> None:
    path = write("net.py", f"class Block:\n    def __init__(self):\n        pass\n\n{TINY}")
    assert refusal(path).endswith(f"write {path}:tiny or {path}:Block")


def test_not_a_function(write) -> None:
    path = write("net.py", "make = 3\n")
    assert "make is int; name a function that returns a Graph" in refusal(f"{path}:make")


def test_function_that_needs_arguments(write) -> None:
    path = write("net.py", "def make(depth, *, width):\n    pass\n")
    assert "must need no arguments: missing a required argument: 'depth'" in refusal(f"{path}:make")


def test_function_that_raises(write) -> None:
    path = write("net.py", "def make():\n    helper()\n\ndef helper():\n    raise ValueError('two\\nlines')\n")
    assert refusal(f"{path}:make") == f"{path}, line 5: ValueError: two lines"


def test_function_that_raises_in_a_library_is_shown_at_its_own_line(write) -> None:
    path = write("net.py", "import json\ndef make():\n    return json.loads('{')\n")
    assert refusal(f"{path}:make").startswith(f"{path}, line 3: JSONDecodeError: ")


def test_function_that_exits(write) -> None:
    path = write("net.py", "import sys\ndef make():\n    sys.exit('no')\n")
    assert refusal(f"{path}:make") == f"{path}, line 3: SystemExit: no"


def test_interrupt_is_not_an_error_of_the_file(write) -> None:
    path = write("net.py", "def make():\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_in_process(f"{path}:make")


def test_function_that_makes_a_malformed_graph(write) -> None:
    path = write("net.py", TINY.replace("CHANNELS", "0"))
    message = refusal(f"{path}:tiny", GraphError)
    assert message.startswith(f"{path}, line 10: GraphError: layer 'conv1': channels must be at least 1")


def test_file_that_fails_while_it_is_read(write) -> None:
    path = write("net.py", "\nimport no_such_module_anywhere\n")
    message = refusal(f"{path}:make")
    told, _, remedy = message.partition("; ")
    assert told == f"{path}, line 2: ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    assert sys.executable in remedy


def test_file_that_is_not_python(write) -> None:
    path = write("net.py", "def make():\n    return (\n")
    assert f"{path}, line 2: SyntaxError: " in refusal(f"{path}:make")
    assert "null bytes" in refusal(write("null.py", b"a = 1\0") + ":make")
    assert "SyntaxError" in refusal(write("latin.py", b"a = '\xe9'\n") + ":make")


def test_sibling_that_is_not_python(write) -> None:
    write("broken_sibling.py", "def (\n")
    path = write("net.py", "\n\nimport broken_sibling\n")
    assert f"{path}, line 3: SyntaxError: " in refusal(f"{path}:make")


def test_failed_file_leaves_no_trace(write) -> None:
    write("fine_sibling.py", "")
    path = write("net.py", "import fine_sibling\nraise ValueError\n")
    before = (list(sys.path), set(sys.modules), sys.dont_write_bytecode)
    refusal(f"{path}:make")
    assert (list(sys.path), set(sys.modules), sys.dont_write_bytecode) == before


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("def make():\n    return None\n", "NoneType"),
        ("def make():\n    return {'layers': []}\n", "dict"),
        ("class Net:\n    pass\nmake = Net\n", "Net"),
    ],
)
def test_function_that_returns_no_graph(write, body: str, what: str) -> None:
    path = write("net.py", body)
    message = refusal(f"{path}:make")
    assert f"{path}: make returned {what}, not a Graph" in message
    assert "deepstone.graph.builder.Builder" in message


def test_framework_module_is_left_to_who_can_ask_the_framework(write) -> None:
    path = write("net.py", "import torch\ndef make():\n    return torch.nn.Linear(2, 2)\n")
    assert "returned Linear, a module of torch" in refusal(f"{path}:make", ForeignModelError)


def test_file_for_a_framework_that_is_not_here_is_left_to_who_can_ask_it(write, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = write("net.py", "from torch import nn\n")
    assert f"{path}, line 1: ModuleNotFoundError" in refusal(f"{path}:make", ForeignModelError)


# ---- JSON


def test_json_file(write) -> None:
    text = json.dumps(tiny_graph().to_json())
    path = write("net.json", text)
    model = load_in_process(path)
    assert model.graph.sha == tiny_graph().sha
    assert (model.name, model.source) == ("tiny", path)
    assert model.file_sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_missing_json(tmp_path) -> None:
    assert f"no file {tmp_path}/net.json" in refusal(f"{tmp_path}/net.json")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "Expecting value at line 1, column 1"),
        ('{"schema": 1,\n "name": }', "at line 2, column 10"),
        (b"\xff\xfe\xff", "is not JSON"),
        ("[" * 200_000, "is not JSON we can read"),
        ('{"schema": 1' + "0" * 5000 + "}", "is not JSON we can read"),
        ("[]", "must be a JSON object"),
        ('{"schema": 99}', "schema 99 is not 1"),
        ('{"schema": 1, "name": "n", "layers": [{"name": "a", "op": "covn"}]}', "unknown op 'covn'"),
        ('{"schema": 1, "name": "n", "layers": [{"name": "a", "op": "relu", "inputs": ["b"]}]}', "'b' is no layer"),
        ('{"schema": 1, "name": "n", "layers": []}', "input layers"),
    ],
)
def test_malformed_json(write, content: str | bytes, why: str) -> None:
    path = write("net.json", content)
    message = refusal(path, GraphError)
    assert message.startswith(path)
    assert why in message


@pytest.mark.parametrize(("name", "suffix"), [("net.json", ""), ("net.py", ":make")])
def test_file_too_large(tmp_path, name: str, suffix: str) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    assert "is larger than 64 MiB" in refusal(f"{path}{suffix}")


def test_largest_file_is_read(tmp_path) -> None:
    path = tmp_path / "net.json"
    text = json.dumps(tiny_graph().to_json()).encode()
    path.write_bytes(text + b" " * (64 * 2**20 - len(text)))
    assert load_in_process(str(path)).name == "tiny"
