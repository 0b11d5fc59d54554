"""The base of a network and what differs from it in one axis."""

from __future__ import annotations

from measured_runs import rounds, run
from of_json import cases

from deepstone.analysis.one_factor import setting, stars


def test_the_default_is_the_base_and_each_factor_a_neighbour():
    records = [run(layout="nhwc"), run(precision="bf16-mixed"), run(), run(precision="bf16-mixed", layout="nhwc")]
    (star,) = stars(cases(records))
    assert star.base.record.id == records[2]["id"]
    assert {(each.axis, setting(each.case, [each.axis])) for each in star.neighbours} == {
        ("layout", "layout=nhwc"),
        ("precision", "precision=bf16-mixed"),
    }
    assert [case.record.id for case in star.combined] == [records[3]["id"]]
    assert star.along("layout")[0].record.id == records[0]["id"]


def test_a_study_says_what_its_base_is():
    records = [run(batch=4), run(batch=32), run(batch=4, layout="nhwc")]
    (star,) = stars(cases(records), {"batch": 4, "layout": "auto"})
    assert star.base.record.id == records[0]["id"]


def test_a_default_that_was_measured_is_the_base_of_a_study_though_others_have_more_neighbours():
    """Half precision, NHWC and compiling gain most together; each is told against what users have now."""
    bf16 = {"precision": "bf16-mixed", "layout": "nhwc"}
    records = [run(**bf16), run(**bf16, compile="default"), run(**bf16, optimizer="adam"), run()]
    (star,) = stars(cases(records), {"model": "alexnet-owt"})
    assert star.base.record.id == records[3]["id"]
    assert len(star.combined) == 3


def test_each_network_of_a_study_may_have_a_base_of_its_own():
    """The study's base is that of its first network; another one is varied from other values."""
    small = [run(model="cifarnet", batch=32), run(model="cifarnet", batch=32, phase="forward")]
    small += [run(model="cifarnet", batch=4), run(model="cifarnet", batch=128)]
    found = stars(cases([run(batch=4), run(batch=4, layout="nhwc"), *small]), {"batch": 4})
    assert [(star.model, star.phase, star.base.record.workload.batch) for star in found] == [
        ("alexnet-owt", "train", 4),
        ("cifarnet", "train", 32),
        ("cifarnet", "forward", 32),
    ]


def test_every_network_machine_framework_and_phase_has_its_own():
    records = [
        run(framework="jax", effective={"layout": "nhwc"}),
        run(),
        run(phase="forward"),
        run(phase="forward", layout="nhwc"),
        run(machine="there"),
        run(model="vgg11"),
    ]
    found = stars(cases(records))
    assert len(found) == 5
    main = found[0]
    assert main.is_main
    assert main.framework == "torch", "what auto takes comes before the others"
    forward = next(star for star in found if star.phase == "forward")
    assert forward.main is main.base
    assert not forward.in_main_phase
    assert [each.axis for each in forward.neighbours] == ["layout"]


def test_another_framework_is_held_against_its_counterpart():
    records = [run(layout="nhwc"), run(framework="jax", effective={"layout": "nhwc"}), run(framework="jax", batch=8)]
    found = {star.framework: star for star in stars(cases(records))}
    assert found["jax"].base.record.id == records[1]["id"], "only the framework differs: its layout came out the same"


def test_a_base_that_failed_is_no_base():
    (star,) = stars(cases([run(outcome="oom"), run(layout="nhwc")]))
    assert star.base.good


def test_a_failed_neighbour_is_still_one():
    (star,) = stars(cases([*rounds(1, 1), run(outcome="oom", batch=512)]))
    assert [(each.axis, each.case.why_not[:3]) for each in star.neighbours] == [("batch", "oom")]


def test_what_was_asked_for_in_other_words_is_no_neighbour():
    (star,) = stars(cases([run(), run(layout="nchw", threads=2)]))
    assert not star.neighbours
    assert not star.combined
