"""Layers' names survive being part of operations' names, whatever they are made of."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from deepstone.backends.owners import UPDATE, Owner, Scopes, owner_of, scope_name

names = st.one_of(st.text(min_size=1, max_size=12), st.from_regex(r"[a-z_/. ]{1,6}[0-9_]{0,3}", fullmatch=True))


@given(name=names)
def test_a_scope_is_a_plain_word(name: str):
    assert re.fullmatch(r"[A-Za-z0-9_]+", scope_name(name))


@given(layers=st.lists(names, min_size=1, max_size=8, unique=True), number=st.integers(1, 99))
def test_every_layer_is_found_again_even_where_tensorflow_has_numbered_it(layers: list[str], number: int):
    scopes = Scopes(layers)
    for layer in layers:
        scope = scope_name(layer)
        assert scopes.layer(f"jit(train)/transpose(jvp({scope}))/add") == layer
        assert scopes.layer(f"gradient_tape/{scope}/Conv2D/Conv2DBackpropFilter") == layer
        assert scopes.layer(f"{scope}_{number}/Relu") == layer
        assert scopes.layer(f"recomputed/{scope}_{number}/{scope}/Relu") == layer


def test_names_that_differ_in_one_awkward_letter_stay_apart():
    alike = ["conv 1", "conv/1", "conv_1", "conv-1", "conv.1", "conv1", "conv_20_1"]
    assert len({scope_name(name) for name in alike}) == len(alike)


def test_what_carries_no_layer_is_nobody_s():
    scopes = Scopes(["conv1"])
    assert scopes.layer("jit(train)/random_split") is None
    assert scopes.layer(f"jit(train)/{scope_name('conv2')}/add") is None
    assert owner_of("", scopes) is None


def test_the_direction_is_in_the_name():
    scopes = Scopes(["conv1"])
    forward, backward = Owner(part="forward", name="conv1"), Owner(part="backward", name="conv1")
    assert owner_of("jit(train)/jvp(layer_conv1)/conv_general_dilated", scopes) == forward
    assert owner_of("jit(train)/transpose(jvp(layer_conv1))/conv_general_dilated", scopes) == backward
    assert owner_of("jit(train)/transpose(jvp(checkpoint))/rematted_computation/layer_conv1/conv", scopes) == backward
    assert owner_of("layer_conv1/Conv2D", scopes) == forward
    assert owner_of("gradient_tape/layer_conv1/Conv2D/Conv2DBackpropInput", scopes) == backward
    assert owner_of("layer_conv1_1/Conv2D", scopes) == backward  # forward again, where it was not kept
    assert owner_of(f"{UPDATE}/ResourceApplyMomentum_1", scopes) == Owner(part="update")
