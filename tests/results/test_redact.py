"""What is given away names no host, no user and no path, and is still the same run."""

from __future__ import annotations

import os
import pwd
import socket
from typing import Any

import pytest
from depth import examples
from factory import JsonRecord, check_record, make_record, redact, sha
from hypothesis import given
from hypothesis import strategies as st

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.backends.registry import BACKENDS, backend_of
from deepstone.launchers.local import recorded_variables
from deepstone.results import codec
from deepstone.results.identity import canonical_json
from deepstone.results.redact import PrivateNames, redact_finding
from deepstone.results.variables import KNOWN_VARIABLES

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


def test_hosts_of_the_command_are_gone():
    """A job that failed names the hosts of its nodes nowhere else."""
    record = make_record(outcome="crashed")
    words = ["deepstone", "run", "cifarnet", "nodes=2", "--hosts", "gpu-a7,gpu-b9"]
    command = words if isinstance(record["command"], list) else " ".join(words)
    failure: Any = {"reason": "ssh: could not resolve gpu-a7", "stage": "muster", "stderr_tail": "gpu-b9: no route"}
    text = canonical_json(redact({**record, "command": command, "failure": failure}, NAMES))
    assert "gpu-a7" not in text
    assert "gpu-b9" not in text


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
        ("HF_TOKEN=sesame python x", "HF_TOKEN=<secret> python x"),
        ("HF_TOKEN='se same' python x", "HF_TOKEN=<secret> python x"),
        ("set --api-key=sesame,b and go", "set --api-key=<secret> and go"),
        ("{'api_key': 'sesame', 'n': 1}", "{'api_key': <secret> 'n': 1}"),
        ('{"password": "se\\"same", "n": 1}', '{"password": <secret> "n": 1}'),
        ("password: sesame", "password: <secret>"),
        ("Authorization: Bearer sesame0123", "Authorization: Bearer <secret>"),
        ("fetch https://bob:sesame@host/x", "fetch https:<path>"),
        ("KeyError: 'conv1'", "KeyError: 'conv1'"),
        ("XLA_FLAGS=--xla_disable_hlo_passes=fusion", "XLA_FLAGS=--xla_disable_hlo_passes=fusion"),
        ("2 passes, key == 3", "2 passes, key == 3"),
    ],
)
def test_names_paths_and_secrets_in_text(text: str, expected: str):
    assert cleaned_tail(text) == expected


def test_a_number_per_process_is_no_path():
    words = ["deepstone", "run", "cifarnet", "batch=8/process", "processes=2/node", "data=8/process/secret"]
    cleaned = redact(make_record(command=words), NAMES)
    assert cleaned["command"] == [*words[:-1], "data=<path>"]


def test_a_users_model_file_is_gone_wherever_it_is_named():
    record: Any = make_record(
        model="net",
        source="work/alice nets/net.py",
        outcome="crashed",
        command=["deepstone", "run", "work/alice nets/net.py:make", "batch=8", "--store=/srv/my store"],
        failure={"reason": "work/alice nets/net.py broke", "stage": "build", "stderr_tail": ""},
    )
    cleaned: Any = redact(record, NAMES)
    assert cleaned["workload"]["source"] == "<path>"
    assert cleaned["workload"]["file_sha256"] == record["workload"]["file_sha256"]
    assert cleaned["command"] == ["deepstone", "run", "<path>", "batch=8", "--store=<path>"]
    assert cleaned["failure"]["reason"] == "<path> broke"


@examples(150)
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
        record: JsonRecord = make_record(outcome=outcome, doubts=[{"code": "cpu_steal", "detail": "much"}])
        assert redact(record, names)["id"] == record["id"]


def test_this_machine_knows_its_own_names():
    names = PrivateNames.of_this_machine()
    assert socket.gethostname() in names.hosts
    assert pwd.getpwuid(os.getuid()).pw_name in names.users
    assert "/" not in names.folders


SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASS")
BEGINNINGS = ("", "NVIDIA_", "PYTORCH_", "PYTHON", "CUDA_", "FLAGS_", "OMP_NUM_THREADS", "TF_ENABLE_")
PLAIN_NAMES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz0123456789", max_size=12)
variable_names = st.builds(
    "".join,
    st.tuples(st.sampled_from(BEGINNINGS), PLAIN_NAMES, st.sampled_from(["", *SECRET_WORDS, "Api_Key"]), PLAIN_NAMES),
).filter(bool)


def with_variables(variables: dict[str, str]) -> Any:
    record: Any = make_record()
    return {**record, "environment": {**record["environment"], "variables": variables}}


@examples(100)
@given(st.lists(st.one_of(variable_names, st.sampled_from(sorted(KNOWN_VARIABLES))), max_size=8, unique=True))
def test_only_known_variables_are_given_away_and_none_that_names_a_secret(names: list[str]):
    record = with_variables({name: f"sesame{number}" for number, name in enumerate(names)})
    cleaned: Any = redact(record, NAMES)
    kept = cleaned["environment"]["variables"]
    assert set(kept) == set(names) & KNOWN_VARIABLES
    for number, name in enumerate(names):
        if name not in KNOWN_VARIABLES or any(word in name.upper() for word in SECRET_WORDS):
            assert f"sesame{number}" not in canonical_json(cleaned)
    # Our own records do not hold them either.
    assert not any(
        word in name.upper() for name in recorded_variables(dict.fromkeys(names, "x")) for word in SECRET_WORDS
    )


@pytest.mark.parametrize("name", ["NVIDIA_API_KEY", "PYTORCH_X", "XLA_TOKEN", "TF_ENABLE_PASSWORD", "nvidia_api_key"])
def test_a_prefix_does_not_make_a_variable_known(name: str):
    cleaned: Any = redact(with_variables({name: "sesame", "OMP_NUM_THREADS": "2"}), NAMES)
    assert cleaned["environment"]["variables"] == {"OMP_NUM_THREADS": "2"}


EMPTY = {"machine": {}, "framework": {}}


def test_every_part_of_a_finding_is_told_with_known_variables_only():
    part = {"environment": {**EMPTY, "variables": {"NVIDIA_API_KEY": "sesame", "MKL_NUM_THREADS": "1"}}}
    head = {"schema": 1, "kind": "conv", "model": "cifarnet", "outcome": "ok", "command": ["deepstone", "conv"]}
    names = {"task": sha("a"), "id": f"{sha('a')[:20]}-1", "started_at": "2026-11-15T03:40:12.123456Z"}
    finding = codec.as_finding({**head, **names, "environment": EMPTY, "batches": {"32": {**head, **part}}})
    cleaned: Any = redact_finding(finding, NAMES).to_json()
    assert "sesame" not in canonical_json(cleaned)
    assert cleaned["batches"]["32"]["environment"]["variables"] == {"MKL_NUM_THREADS": "1"}


def test_no_known_variable_names_a_secret_and_what_our_launchers_set_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(FAKE_SCRIPT)  # of the tests themselves
    assert not [name for name in KNOWN_VARIABLES if any(word in name.upper() for word in SECRET_WORDS)]
    for framework in BACKENDS:
        request: Any = {"framework": framework, "device": "cpu", "threads": 2, "engine": "onednn", "isa": "avx2"}
        request |= {
            "algorithm": "benchmark",
            "precision": "fp32",
            "inter_threads": 1,
            "compile": "none",
            "wait": "passive",
        }
        assert set(backend_of(framework, "").variables(request)) <= KNOWN_VARIABLES


@examples(200)
@given(variable_names, st.text(max_size=20), st.sampled_from(["{}=sesame0", "--{}=sesame0", "{}='sesame0 x'"]))
def test_what_is_assigned_to_a_secret_name_is_found_in_any_text(name: str, before: str, form: str):
    before = before.replace("\0", "").replace("'", "").replace('"', "")
    once = cleaned_tail(f"{before} {form.format(name)}")
    assert cleaned_tail(once) == once
    if any(word in name.upper() for word in SECRET_WORDS) and not name.lower().endswith("passes"):
        assert "sesame" not in once
