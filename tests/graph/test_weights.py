"""Initial weights: the numbers, and the file that keeps them in the face of faults."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import resource
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from depth import examples
from graph_examples import branching, random_graphs
from hypothesis import given

from deepstone.errors import StoreError
from deepstone.graph import weights
from deepstone.graph.batch import synthetic_batch as make_batch
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Dense, Flatten, Input, SoftmaxCrossEntropy
from deepstone.graph.weights import (
    cached_weights,
    initial_buffers,
    initial_parameters,
    parameter_slices,
    split_parameters,
    synthetic_batch,
)


def wide() -> Graph:
    """Dense weights enough for statistics and for more than one chunk."""
    b = Builder("wide")
    x = b.flatten("flat", b.input("data", (8, 16, 16)))
    b.softmax_cross_entropy("loss", b.dense("fc", x, features=600))
    return b.build()


def flat(graph: Graph, seed: int) -> np.ndarray:
    parameters = initial_parameters(graph, seed)
    return np.concatenate([parameters[s.layer][s.name].ravel() for s in parameter_slices(graph)])


def sha(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def test_known_numbers():
    """Frozen: records measured with other weights would not be comparable."""
    assert sha(flat(branching(), 0)) == "1160727063ad52170db11fe9332d01d39d29885c911784a2715427b9c1cd6bfe"
    samples, labels = synthetic_batch(branching(), 2, 0)
    assert sha(samples) == "dc25c6bcb518995f0b3a2dee8a9d54694b9629d1562ae291e825ac54b78f4e6a"
    assert labels.tolist() == [4, 3]


def test_weight_by_its_definition():
    weight = initial_parameters(branching(), 7)["conv1"]["weight"]
    seed = int(hashlib.sha256(b"7:conv1").hexdigest()[:8], 16)
    fan_in = 2 * 3 * 2  # two of four input channels in each group
    drawn = np.random.RandomState(seed).standard_normal((6, 2, 3, 2)) * math.sqrt(2 / fan_in)
    assert weight.dtype == np.float32
    np.testing.assert_array_equal(weight, drawn.astype(np.float32))


def test_biases_and_batch_norm():
    parameters = initial_parameters(branching(), 0)
    np.testing.assert_array_equal(parameters["conv1"]["bias"], np.zeros(6))
    np.testing.assert_array_equal(parameters["side_fc"]["bias"], np.zeros(5))
    np.testing.assert_array_equal(parameters["left_bn"]["weight"], np.ones(6))
    np.testing.assert_array_equal(parameters["left_bn"]["bias"], np.zeros(6))
    assert "bias" not in parameters["left"]
    buffers = initial_buffers(branching())
    assert list(buffers) == ["left_bn"]
    np.testing.assert_array_equal(buffers["left_bn"]["running_mean"], np.zeros(6))
    np.testing.assert_array_equal(buffers["left_bn"]["running_var"], np.ones(6))


def test_drawing_in_chunks_changes_nothing(monkeypatch):
    whole = initial_parameters(wide(), 3)["fc"]["weight"]
    assert whole.size > 1 << 20
    monkeypatch.setattr(weights, "_CHUNK_VALUES", 1001)
    np.testing.assert_array_equal(initial_parameters(wide(), 3)["fc"]["weight"], whole)


def test_he_variance():
    weight = initial_parameters(wide(), 1)["fc"]["weight"].astype(np.float64)
    assert abs(weight.mean()) < 5 * weight.std() / math.sqrt(weight.size)
    assert weight.var() == pytest.approx(2 / 2048, rel=0.01)


def two_branches(names: list[str], shape: tuple[int, int, int] = (2, 3, 3)) -> Graph:
    layers = [Layer(name="data", op=Input(shape=shape)), Layer(name="flat", op=Flatten(), inputs=("data",))]
    layers += [Layer(name=name, op=Dense(features=4), inputs=("flat",)) for name in names]
    layers += [Layer(name=f"{name}_loss", op=SoftmaxCrossEntropy(), inputs=(name,)) for name in names]
    return Graph("two", layers)


def test_order_of_layers_does_not_matter():
    one, other = initial_parameters(two_branches(["a", "b"]), 0), initial_parameters(two_branches(["b", "a"]), 0)
    for name in ("a", "b"):
        np.testing.assert_array_equal(one[name]["weight"], other[name]["weight"])
    assert not np.array_equal(one["a"]["weight"], one["b"]["weight"])


def test_seeds_differ():
    assert sha(flat(branching(), 0)) == sha(flat(branching(), 0))
    assert sha(flat(branching(), 0)) != sha(flat(branching(), 1))
    assert sha(synthetic_batch(branching(), 2, 0)[0]) != sha(synthetic_batch(branching(), 2, 1)[0])


def test_synthetic_batch():
    samples, labels = synthetic_batch(branching(), 400, 5)
    assert (samples.shape, samples.dtype) == ((400, 4, 13, 11), np.float32)
    assert (labels.shape, labels.dtype) == ((400,), np.int64)
    assert set(labels.tolist()) == {0, 1, 2, 3, 4}
    assert samples.mean() == pytest.approx(0, abs=0.02)
    assert samples.std() == pytest.approx(1, abs=0.02)
    np.testing.assert_array_equal(samples[:3], synthetic_batch(branching(), 3, 5)[0])


@examples(30)
@given(graph=random_graphs())
def test_slices_lie_one_after_the_other(graph):
    offset = 0
    expected = [(layer.name, name) for layer in graph.layers for name in graph.parameters(layer)]
    slices = parameter_slices(graph)
    assert [(entry.layer, entry.name) for entry in slices] == expected
    for entry in slices:
        assert entry.offset == offset
        assert entry.shape == graph.parameters(graph.layer(entry.layer))[entry.name]
        offset += math.prod(entry.shape)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_file_holds_the_weights(tmp_path):
    graph = branching()
    path = cached_weights(graph, 4, tmp_path / "new" / "folder")
    stored = np.load(path, mmap_mode="r")
    assert stored.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(stored, flat(graph, 4))
    for layer, arrays in initial_parameters(graph, 4).items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(split_parameters(graph, stored)[layer][name], array)
    assert names_in(path.parent) == [path.name]


def test_file_is_written_once(tmp_path):
    path = cached_weights(branching(), 0, tmp_path)
    before = path.stat()
    assert cached_weights(branching(), 0, tmp_path) == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_file_name(tmp_path):
    """By the parameters and the seed; not by what else the graph does."""
    graph = two_branches(["a", "b"])
    path = cached_weights(graph, 0, tmp_path)
    content = (
        '[0,[["a","weight",[4,18],"he_normal"],["a","bias",[4],"zero"],'
        '["b","weight",[4,18],"he_normal"],["b","bias",[4],"zero"]]]'
    )
    assert path.name == hashlib.sha256(content.encode()).hexdigest()[:32] + ".npy"
    assert cached_weights(two_branches(["a", "b"], shape=(18, 1, 1)), 0, tmp_path) == path
    assert cached_weights(graph, 1, tmp_path) != path
    assert cached_weights(two_branches(["b", "a"]), 0, tmp_path) != path


def test_graph_without_parameters(tmp_path):
    b = Builder("bare")
    b.softmax_cross_entropy("loss", b.flatten("flat", b.input("data", (3, 1, 1))))
    graph = b.build()
    assert initial_parameters(graph, 0) == {}
    assert np.load(cached_weights(graph, 0, tmp_path), mmap_mode="r").size == 0


@pytest.mark.parametrize("fault", ["empty", "truncated", "too long", "other header", "garbage", "one bit", "no sum"])
def test_a_bad_file_is_told_and_replaced(tmp_path, fault, caplog):
    graph = branching()
    path = cached_weights(graph, 0, tmp_path)
    good = path.read_bytes()
    bad = {
        "empty": b"",
        "truncated": good[:-8],
        "too long": good + b"\0",
        "other header": good.replace(b"<f4", b"<i4", 1),
        "garbage": os.urandom(len(good)),
        "one bit": good[:200] + bytes([good[200] ^ 1]) + good[201:],
        "no sum": good[:-4],  # as earlier versions wrote it: nothing to tell
    }[fault]
    assert bad != good
    path.write_bytes(bad)
    assert cached_weights(graph, 0, tmp_path) == path
    assert path.read_bytes() == good
    assert names_in(tmp_path) == [path.name]
    assert [record.args[0] for record in caplog.records if record.args] == ([] if fault == "no sum" else [path])


def test_concurrent_writers(tmp_path):
    """Whoever looks sees a whole file, and nothing else is left."""
    graph, writers = wide(), 6
    barrier = threading.Barrier(writers)
    found: list[bool] = []
    expected = flat(graph, 0)

    def write() -> None:
        barrier.wait()
        found.append(np.array_equal(np.load(cached_weights(graph, 0, tmp_path)), expected))

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * writers
    assert len(names_in(tmp_path)) == 1


def test_writers_in_other_processes(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        paths = pool.starmap(cached_weights, [(branching(), 0, tmp_path)] * 4)
    assert len(set(paths)) == 1
    np.testing.assert_array_equal(np.load(paths[0]), flat(branching(), 0))
    assert names_in(tmp_path) == [paths[0].name]


def one_line_about(error: StoreError, folder: Path) -> bool:
    text = str(error)
    return str(folder) in text and "set DEEPSTONE_CACHE" in text and "\n" not in text


def test_folder_that_is_a_file(tmp_path):
    folder = tmp_path / "file"
    folder.write_text("in the way")
    with pytest.raises(StoreError) as caught:
        cached_weights(branching(), 0, folder)
    assert one_line_about(caught.value, folder)


def test_unwritable_folder(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may write everywhere
    try:
        with pytest.raises(StoreError, match="Permission denied") as caught:
            cached_weights(branching(), 0, folder)
    finally:
        os.seteuid(user)
    assert one_line_about(caught.value, folder)
    assert names_in(folder) == []


def test_no_room_for_the_file(tmp_path):
    """A limit on file size stops the write half-way, as a full disk does. Nothing half-written is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StoreError, match="File too large") as caught:
            cached_weights(wide(), 0, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert one_line_about(caught.value, tmp_path)
    assert names_in(tmp_path) == []


def test_interrupted_writer_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cached_weights(branching(), 0, tmp_path)
    assert names_in(tmp_path) == []


def test_memory_stays_near_the_file(tmp_path):
    """Peak of NumPy's own arrays while 4 MiB chunks go to the file."""
    b = Builder("large")
    x = b.flatten("flat", b.input("data", (64, 16, 16)))
    b.softmax_cross_entropy("loss", b.dense("fc", x, features=500))
    tracemalloc.start()
    path = cached_weights(b.build(), 0, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 32, 20), (3, 1, 1)])
def test_samples_like_photographs_have_a_tint_each_and_contrast_at_every_scale(shape: tuple[int, int, int]):
    samples, labels = make_batch(shape, 10, 6, 0, like_photographs=True)
    again, _ = make_batch(shape, 10, 3, 0, like_photographs=True)
    np.testing.assert_array_equal(samples[:3], again)
    assert samples.shape == (6, *shape)
    assert samples.dtype == np.float32
    assert labels.shape == (6,)
    tints = samples.mean(axis=(2, 3))
    assert tints.std() > 0.5
    if shape[1] > 100:
        fine = samples - samples.reshape(6, 3, 28, 8, 28, 8).mean(axis=(3, 5)).repeat(8, axis=2).repeat(8, axis=3)
        assert 0.2 < fine.std() < 0.5 < samples.std() < 2


def test_vectors_cannot_be_like_photographs():
    np.testing.assert_array_equal(make_batch((7,), 10, 2, 0, like_photographs=True)[0], make_batch((7,), 10, 2, 0)[0])
