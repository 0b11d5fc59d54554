"""What a Caffe layer says about how it is trained. Rates and decays do not change a step's work; these things do."""

from __future__ import annotations

from collections.abc import Sequence

from deepstone.models.caffe.layer import CaffeLayer


def refuse_partial_training(layer: CaffeLayer, *, has_weights: bool) -> None:
    """Caffe skips the gradients of frozen weights; here every weight is trained, so the work would not be the same."""
    fields = layer.fields
    fields.ignore("weight_decay", "blob_share_mode", "param")
    rates = fields.numbers("blobs_lr")
    if not layer.v1:
        for spec in fields.messages("param"):
            spec.ignore("name", "decay_mult", "share_mode")
            rates += spec.numbers("lr_mult")
    if has_weights and 0.0 in rates:
        fields.complain("frozen weights (a learning rate of 0) are not supported: Deepstone trains all")
    if fields.messages("blobs", apart=True):
        fields.complain("holds weights (blobs); take the .prototxt without them", fields.line_of("blobs"))
    if False in fields.truths("propagate_down")[:1]:
        fields.complain(
            "propagate_down: false is not supported: Deepstone trains all", fields.line_of("propagate_down")
        )


def refuse_shared_weights(layers: Sequence[CaffeLayer]) -> None:
    """Weights that two layers give the same name are one array in Caffe."""
    owners: dict[str, CaffeLayer] = {}
    for layer in layers:
        fields = layer.fields
        names = fields.texts("param") if layer.v1 else [spec.text("name") for spec in fields.messages("param")]
        for name in filter(None, names):
            owner = owners.setdefault(name, layer)
            if owner is not layer:
                fields.complain(f"shares its weights {name!r} with layer {owner.name!r}, which is not supported")
