"""Protobuf's text format, as far as Caffe's files use it: fields with their lines, no schema.

It does not recurse, and its memory and time are proportional to the file, so any file is safe.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from deepstone.errors import GraphError

LIMIT_BYTES = 8 * 2**20
DEEPEST = 64
MOST_VALUES = 300_000
LONGEST = 4096  # characters of a name, number or string
_SHOWN = 40


class Kind(Enum):
    WORD = "a word"
    NUMBER = "a number"
    STRING = "a string"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value. `text` is as written; for a string, the unescaped content."""

    kind: Kind
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Message:
    """Fields in order, each name with all its values. `line` is the line of its start."""

    line: int
    fields: dict[str, list[Value]] = field(default_factory=lambda: dict[str, "list[Value]"]())


Value: TypeAlias = Scalar | Message

_TOKEN = re.compile(
    r"""
    (?P<space> (?: \s | \#[^\n]* )++ )
  | (?P<word> [A-Za-z_][A-Za-z0-9_]*+ )
  | (?P<number> (?> 0[xX][0-9A-Fa-f]+ | (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? [fF]? ) (?![\w.]) )
  | (?P<string> " [^"\\\n]*+ (?: \\. [^"\\\n]*+ )*+ " | ' [^'\\\n]*+ (?: \\. [^'\\\n]*+ )*+ ' )
  | (?P<mark> [{}<>\[\]:,;-] )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_PLAIN_ESCAPES = dict(zip("abfnrtv\\'\"?", "\a\b\f\n\r\t\v\\'\"?", strict=True))
_CLOSERS = {"{": "}", "<": ">"}
_END = ""


class _Token(NamedTuple):
    kind: str  # a group of _TOKEN, or "end"
    text: str
    line: int


def parse(content: bytes, file: str) -> Message:
    """Parse a file's bytes. Raises GraphError with the file, the line, and what was expected and found."""
    return _Parser(file, decoded(content, file)).message()


def decoded(content: bytes, file: str) -> str:
    if len(content) > LIMIT_BYTES:
        raise GraphError(f"{file} is larger than {LIMIT_BYTES // 2**20} MiB; no network's text is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{content[error.start]:02x}"
        raise GraphError(
            f"{file}, line {line}: expected text in UTF-8, found {found}; is it a .caffemodel? give the .prototxt"
        ) from None


@dataclass(slots=True)
class _Open:
    """A message that is being read; `list_of` is the field whose [list] is being read, if any."""

    message: Message
    closer: str
    list_of: str = ""


class _Parser:
    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._tokens = self._scan(text)
        self._next = next(self._tokens)
        self._open = [_Open(message=Message(line=1), closer=_END)]
        self._values = 0

    def message(self) -> Message:
        top = self._open[0].message
        while self._open:
            if self._open[-1].list_of:
                self._item()
            else:
                self._field()
        return top

    def _field(self) -> None:
        """Read one field of the innermost message, or its end."""
        inner = self._open[-1]
        token = self._take()
        if token.text == inner.closer and token.kind in ("mark", "end"):
            self._open.pop()
            if self._open:
                self._after_value()
            return
        if token.kind != "word":
            opened = f" of the one opened in line {inner.message.line}" if inner.closer else ""
            raise self._wrong(token, f"a field's name or {_quoted(inner.closer)}{opened}")
        colon = self._skip(":")
        if self._skip("["):
            inner.list_of = token.text
            if self._skip("]"):
                inner.list_of = ""
                self._after_value()
        elif self._next.text in _CLOSERS and self._next.kind == "mark":
            self._enter(token.text)
        elif colon:
            self._put(token.text, self._scalar())
            self._after_value()
        else:
            raise self._wrong(self._next, f"':' or '{{' after {token.text}")

    def _item(self) -> None:
        """Read one item of the current list."""
        inner = self._open[-1]
        if self._next.text in _CLOSERS and self._next.kind == "mark":
            self._enter(inner.list_of)
            return
        self._put(inner.list_of, self._scalar())
        self._after_value()

    def _after_value(self) -> None:
        """Skip a separator: a comma or semicolon is optional between fields, and a comma required between items."""
        inner = self._open[-1]
        if not inner.list_of:
            if not self._skip(","):
                self._skip(";")
        elif self._skip("]"):
            inner.list_of = ""
            self._after_value()
        elif not self._skip(","):
            raise self._wrong(self._next, f"',' or ']' in the list of {inner.list_of}")

    def _enter(self, name: str) -> None:
        token = self._take()
        if len(self._open) > DEEPEST:
            raise GraphError(f"{self._file}, line {token.line}: nested deeper than {DEEPEST} messages; no network is")
        message = Message(line=token.line)
        self._put(name, message)
        self._open.append(_Open(message=message, closer=_CLOSERS[token.text]))

    def _put(self, name: str, value: Value) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise GraphError(
                f"{self._file}, line {value.line}: more than {MOST_VALUES:,} values; no network has so many"
            )
        self._open[-1].message.fields.setdefault(name, []).append(value)

    def _scalar(self) -> Scalar:
        token = self._take()
        if token.kind == "mark" and token.text == "-":
            number = self._take()
            if number.kind == "number" or (number.kind == "word" and number.text.lower() in ("inf", "infinity", "nan")):
                return Scalar(Kind.NUMBER, f"-{number.text}", number.line)
            raise self._wrong(number, "a number after '-'")
        if token.kind == "number":
            return Scalar(Kind.NUMBER, token.text, token.line)
        if token.kind == "word":
            return Scalar(Kind.WORD, token.text, token.line)
        if token.kind == "string":
            parts = [self._unquoted(token)]
            while self._next.kind == "string":  # adjacent strings are one
                parts.append(self._unquoted(self._take()))
            return Scalar(Kind.STRING, "".join(parts), token.line)
        raise self._wrong(token, "a value")

    def _unquoted(self, token: _Token) -> str:
        inside = token.text[1:-1]
        if "\\" not in inside:
            return inside

        def meant(match: re.Match[str]) -> str:
            octal, two, four, eight, plain = match.groups()
            if plain is None:
                number = int(octal, 8) if octal else int(two or four or eight, 16)
                if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
                    return chr(number)
            elif plain in _PLAIN_ESCAPES:
                return _PLAIN_ESCAPES[plain]
            raise self._wrong(_Token("string", match[0], token.line), "an escape such as \\n or \\x41 in a string")

        return _ESCAPE.sub(meant, inside)

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _skip(self, mark: str) -> bool:
        found = self._next.kind == "mark" and self._next.text == mark
        if found:
            self._take()
        return found

    def _scan(self, text: str) -> Generator[_Token]:
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._unreadable(text, position, line)
            if match.lastgroup == "space":
                line += text.count("\n", position, match.end())
            elif match.end() - position > LONGEST:
                found = _quoted(match[0][: _SHOWN + 1])
                raise GraphError(f"{self._file}, line {line}: {found} is longer than {LONGEST} characters")
            else:
                yield _Token(str(match.lastgroup), match[0], line)
            position = match.end()
        yield _Token("end", _END, line)

    def _unreadable(self, text: str, position: int, line: int) -> GraphError:
        if text[position] in "\"'":
            return self._wrong(
                _Token("", text[position : position + _SHOWN].split("\n")[0], line), "a string that ends in its line"
            )
        wrong = re.compile(r"[\w.]+|.", re.DOTALL).match(text, position)
        expected = "a number" if text[position] in ".0123456789" else "a name, value or mark"
        return self._wrong(_Token("", wrong[0] if wrong else "", line), expected)

    def _wrong(self, token: _Token, expected: str) -> GraphError:
        found = "the end of the file" if token.kind == "end" else _quoted(token.text)
        return GraphError(f"{self._file}, line {token.line}: expected {expected}, found {found}")


def _quoted(text: str) -> str:
    if not text:
        return "the end of the file"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
