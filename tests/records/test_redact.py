"""What is given away names no host, no user and no path, and is still the same run."""

from __future__ import annotations

import os
import pwd
import socket
from typing import Any

import pytest
from factory import make_record
from hypothesis import given, settings
from hypothesis import strategies as st

from deepstone.records.identity import canonical_json
from deepstone.records.redact import PrivateNames, redact
from deepstone.records.schema import Record
from deepstone.records.validate import check_record

NAMES = PrivateNames(
    hosts=frozenset({"laptop.corp.example"}), users=frozenset({"bob"}), folders=frozenset({"/home/bob"})
)


def cleaned_tail(text: str, **settings: Any) -> str:
    record = make_record(outcome="crashed", **settings)
    failure: Any = {"reason": "r", "stage": "s", "stderr_tail": text}
    cleaned: Any = redact({**record, "failure": failure}, NAMES)
    return cleaned["failure"]["stderr_tail"]


def test_the_measured_machine_and_its_user_are_gone():
    text = canonical_json(redact(make_record(outcome="crashed"), NAMES))
    for secret in ("node01", "alice", "/home", "net.py"):
        assert secret not in text


def test_the_run_keeps_its_name_and_its_numbers():
    record = make_record()
    cleaned = redact(record, NAMES)
    assert check_record(cleaned) is cleaned
    for key in ("id", "job", "identity", "samples", "summary", "cost", "started_at"):
        assert cleaned[key] == record[key]


def test_the_record_itself_is_not_changed():
    record = make_record(outcome="crashed")
    redact(record, NAMES)
    assert record == make_record(outcome="crashed")


def test_redacting_twice_changes_nothing_more():
    once = redact(make_record(outcome="crashed", source="/home/alice/net.py:make"), NAMES)
    assert redact(once, NAMES) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/home/alice/My Documents/net.py", line 3', 'File "<path>", line 3'),
        ("File '/srv/x y/z'", "File '<path>'"),
        ("cannot open /data/set/1.npy: no such file", "cannot open <path>: no such file"),
        ("PATH=/usr/bin:/home/bob/bin", "PATH=<path>:<path>"),
        ("cc -I/usr/include -O2", "cc -I<path> -O2"),
        ("floatX=float32,blas.ldflags=-L/opt/blas -lblas", "floatX=float32,blas.ldflags=-L<path> -lblas"),
        ("~/nets and ~carol/nets", "<path> and <path>"),
        ("carol called ~carol/x", "<user> called <path>"),
        ("dave ran /home/dave/x", "<user> ran <path>"),
        ("C:\\Users\\eve\\net.py failed", "<path> failed"),
        ("see https://intranet.example/page", "see https:<path>"),
        ("120 images/s at 3 / 4 and/or more", "120 images/s at 3 / 4 and/or more"),
        ("on node01.cluster.local:29500", "on <host>:29500"),
        ("LAPTOP.corp.example and laptop", "<host> and <host>"),
        ("bob's job, not bobby's", "<user>'s job, not bobby's"),
        ("mail bob@laptop", "mail <user>@<host>"),
        ("node012 is another", "node012 is another"),
    ],
)
def test_names_and_paths_in_text(text: str, expected: str):
    assert cleaned_tail(text) == expected


def test_a_users_model_file_is_gone_wherever_it_is_named():
    record: Any = make_record(
        model="net",
        source="work/alice nets/net.py",
        outcome="crashed",
        command=["/opt/bin/deepstone", "run", "work/alice nets/net.py:make", "batch=8", "--store=/srv/my store"],
        failure={"reason": "work/alice nets/net.py broke", "stage": "build", "stderr_tail": ""},
    )
    cleaned: Any = redact(record, NAMES)
    assert cleaned["workload"]["source"] == "<path>"
    assert cleaned["workload"]["file_sha256"] == record["workload"]["file_sha256"]
    assert cleaned["command"] == ["<path>", "run", "<path>", "batch=8", "--store=<path>"]
    assert cleaned["failure"]["reason"] == "<path> broke"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from(["/home/alice/x", "alice", "node01", "~alice/y"]))
def test_a_secret_is_found_in_any_text(before: str, after: str, secret: str):
    text = f"{before} {secret} {after}".replace("\0", "")
    once = cleaned_tail(text)
    assert "alice" not in once
    assert "node01" not in once
    assert cleaned_tail(once) == once


@pytest.mark.parametrize("user", ["ok", "train", "observed", "cpu_steal", "within", "user", "torch", "SIGSEGV"])
def test_a_user_named_like_a_word_of_ours_does_not_break_the_record(user: str):
    names = PrivateNames(users=frozenset({user}), hosts=frozenset({user}))
    for outcome in ("ok", "crashed"):
        record: Record = make_record(outcome=outcome, doubts=[{"code": "cpu_steal", "detail": "much"}])
        assert redact(record, names)["id"] == record["id"]


def test_this_machine_knows_its_own_names():
    names = PrivateNames.of_this_machine()
    assert socket.gethostname() in names.hosts
    assert pwd.getpwuid(os.getuid()).pw_name in names.users
    assert "/" not in names.folders
