"""Protobuf's text format: every way to write a value, and where an error is told to be."""

from __future__ import annotations

import pytest
from depth import examples
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import GraphError
from deepstone.models.caffe import text
from deepstone.models.caffe.text import Kind, Message, Scalar, parse


def read(source: str) -> Message:
    return parse(source.encode(), "net.prototxt")


def plain(message: Message) -> dict[str, list[object]]:
    """Without kinds and lines."""
    return {
        name: [plain(value) if isinstance(value, Message) else value.text for value in values]
        for name, values in message.fields.items()
    }


def refusal(source: str | bytes) -> str:
    with pytest.raises(GraphError) as caught:
        parse(source if isinstance(source, bytes) else source.encode(), "net.prototxt")
    message = str(caught.value)
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("", {}),
        ("# nothing\n  # at all", {}),
        ("a: 1", {"a": ["1"]}),
        ("a:1,b:2;c:3", {"a": ["1"], "b": ["2"], "c": ["3"]}),
        ("a: 1 a: 2", {"a": ["1", "2"]}),
        ("a: [1, 2,3]", {"a": ["1", "2", "3"]}),
        ("a: [] b: 1", {"b": ["1"]}),
        ("a [ { b: 1 }, < b: 2 > ]", {"a": [{"b": ["1"]}, {"b": ["2"]}]}),
        ("a { b { c: 1 } }", {"a": [{"b": [{"c": ["1"]}]}]}),
        ("a: { b: 1 } c <>", {"a": [{"b": ["1"]}], "c": [{}]}),
        ("a { b: 1 };a { }", {"a": [{"b": ["1"]}, {}]}),
        ("a: TRAIN # b: 2\nc: true", {"a": ["TRAIN"], "c": ["true"]}),
        ("a: 'x' \"y\"\n 'z'", {"a": ["xyz"]}),
        (
            r"a: 'it\'s' b: '\x41\102\n\t\\' c: 'é' d: '\u00e9'",
            {"a": ["it's"], "b": ["AB\n\t\\"], "c": ["é"], "d": ["é"]},
        ),
        ("a: 'no # comment'", {"a": ["no # comment"]}),
        ("a: -1 b: - 2.5 c: 0x1F d: 1e-5 e: .5 f: 1. g: 1.5f h: -inf i: nan j: 017", None),
    ],
)
def test_what_is_written_is_what_is_read(source: str, meant: dict[str, list[object]] | None) -> None:
    found = plain(read(source))
    if meant is None:
        written = ["-1", "-2.5", "0x1F", "1e-5", ".5", "1.", "1.5f", "-inf", "nan", "017"]
        assert [values[0] for values in found.values()] == written
    else:
        assert found == meant


def test_a_byte_order_mark_does_no_harm() -> None:
    assert plain(parse(b"\xef\xbb\xbfa: 1", "net.prototxt")) == {"a": ["1"]}


def test_kinds_and_lines() -> None:
    message = read('\nname: "net"\nlayer {\n  # a comment\n  pool: MAX pad:\n 1\n}\n')
    (name,), (layer,) = message.fields["name"], message.fields["layer"]
    assert name == Scalar(Kind.STRING, "net", 2)
    assert isinstance(layer, Message)
    assert layer.line == 3
    assert layer.fields["pool"] == [Scalar(Kind.WORD, "MAX", 5)]
    assert layer.fields["pad"] == [Scalar(Kind.NUMBER, "1", 6)]


@pytest.mark.parametrize(
    ("source", "line", "expected", "found"),
    [
        ("a: 1\nlayer {\n  name: 'x'\n", 4, "a field's name or '}' of the one opened in line 2", "the end of the file"),
        ("layer {\n name: 'x' >", 2, "a field's name or '}'", "'>'"),
        ("a: 1 }", 1, "a field's name or the end of the file", "'}'"),
        ("a\n b: 1", 2, "':' or '{' after a", "'b'"),
        ("a:\n\n}", 3, "a value", "'}'"),
        ("a: [1 2]", 1, "',' or ']' in the list of a", "'2'"),
        ("a: [1,]", 1, "a value", "']'"),
        ("a: - x", 1, "a number after '-'", "'x'"),
        ("a: 'x\nb: 1", 1, "a string that ends in its line", '"\'x"'),
        (r"a: '\q'", 1, "an escape", r"'\\q'"),
        (r"a: '\ud800'", 1, "an escape", "ud800"),
        ("a: 12abc", 1, "a number", "'12abc'"),
        ("a: 1.2.3", 1, "a number", "'1.2.3'"),
        ("a: 1\n\n@b: 2", 3, "a name, value or mark", "'@'"),
        ("1: a", 1, "a field's name", "'1'"),
        ("[caffe.extension]: 1", 1, "a field's name", "'['"),
    ],
)
def test_an_error_says_where_what_and_what_else(source: str, line: int, expected: str, found: str) -> None:
    message = refusal(source)
    assert message.startswith(f"net.prototxt, line {line}: expected {expected}")
    assert f", found {found}" in message or found in message.partition(", found ")[2]


def test_bytes_that_are_no_text() -> None:
    message = refusal(b"name: 'x'\n\x0a\xff\x00")
    assert message.startswith("net.prototxt, line 3: expected text in UTF-8, found the byte 0xff")
    assert ".caffemodel" in message


def test_nesting_has_a_limit() -> None:
    deep = text.DEEPEST
    assert read("a {" * deep + "}" * deep)
    assert f"nested deeper than {deep}" in refusal("a {\n" * (deep + 1))
    assert f"line {deep + 1}:" in refusal("a {\n" * (deep + 1))
    assert "nested deeper" in refusal("a {" * 1_000_000)


@pytest.mark.parametrize(
    ("name", "value", "source", "words"),
    [
        ("LIMIT_BYTES", 2**20, b"#" * (2**20 + 1), "larger than 1 MiB"),
        ("MOST_VALUES", 100, b"a: 1 " * 101, "more than 100 values"),
        ("LONGEST", 100, b"a: '" + b"x" * 100 + b"'", "longer than 100 characters"),
    ],
)
def test_size_has_limits(monkeypatch: pytest.MonkeyPatch, name: str, value: int, source: bytes, words: str) -> None:
    monkeypatch.setattr(text, name, value)
    assert words in refusal(source)


words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
strings = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12)
trees = st.recursive(
    st.dictionaries(words, st.lists(strings, min_size=1, max_size=3), max_size=3),
    lambda inner: st.dictionaries(words, st.lists(inner, min_size=1, max_size=3), max_size=3),
    max_leaves=12,
)


def written(tree: dict[str, list[object]], draw: st.DataObject) -> str:
    """The tree as text, in one of the many ways there are."""
    parts: list[str] = []
    for name, values in tree.items():
        for value in values:
            space, end = (
                draw.draw(st.sampled_from(choices)) for choices in ((" ", "\n", " # x } {\n"), ("", ",", ";"))
            )
            if isinstance(value, dict):
                colon, (left, right) = draw.draw(st.sampled_from(["", ":"])), draw.draw(st.sampled_from(["{}", "<>"]))
                parts.append(f"{name}{colon}{space}{left}{written(value, draw)}{right}{end}")
            else:
                quote = draw.draw(st.sampled_from("\"'"))
                inside = str(value).replace("\\", "\\\\").replace(quote, f"\\{quote}")
                parts.append(f"{name}:{space}{quote}{inside}{quote}{end}")
    return " ".join(parts)


@examples(50)
@given(trees, st.data())
def test_any_tree_comes_back(tree: dict[str, list[object]], draw: st.DataObject) -> None:
    assert plain(read(written(tree, draw))) == tree
