"""A model from a `.prototxt` on the disk."""

from __future__ import annotations

from pathlib import Path

from deepstone.models.caffe.network import network
from deepstone.models.caffe.phase import Phase
from deepstone.models.caffe.text import LIMIT_BYTES
from deepstone.models.load import LoadedModel
from deepstone.models.reading import absolute, read_file, sha256_of


def load_prototxt(reference: str, phase: Phase = "TRAIN") -> tuple[LoadedModel, int]:
    """The model, and the batch that the file itself asks for; UsageError in one line when there is none."""
    path = absolute(reference)
    content = read_file(path, LIMIT_BYTES)
    found = network(content, file=str(path), name=Path(path).stem, phase=phase)
    model = LoadedModel(graph=found.graph, name=found.graph.name, source=str(path), file_sha256=sha256_of(content))
    return model, found.batch
