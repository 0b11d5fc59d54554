"""One kind of device against the other, with records of both: the same network, batch and precision."""

from __future__ import annotations

from collections.abc import Iterator

from deepstone.absent import Absent
from deepstone.analysis.contrast import contrast_cases
from deepstone.analysis.differences import ENVIRONMENT, MACHINE, version_of
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words
from deepstone.papers.evidence import Evidence
from deepstone.papers.place import Place
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.rules.speed_ratio import Pair
from deepstone.papers.verdict import of_rank, of_ratio

_COMPARED = ("device", MACHINE, ENVIRONMENT)


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    parameters = asked.parameters
    wanted = parameters.get("gpus", [])
    found = [entry for entry in _pairs(asked, evidence) if not wanted or _is_one_of(_gpu(entry), wanted)]
    if not found:
        named = f" ({' or '.join(wanted)})" if wanted else ""
        there = "; ".join(place.name for place in evidence.places) or "nothing"
        return not_testable(
            f"needs runs of {' or '.join(parameters['models'])} on a CPU and on a GPU{named}, alike but for the "
            f"device; there are runs of: {there}"
        )
    place_a, place_b, pair = max(found, key=lambda entry: entry[2].ratio.low)
    ratio = pair.ratio
    versions = dict.fromkeys(version_of(case.record) for case in (pair.a, pair.b))
    setup = f"{pair.setup}: {place_a.name} over {place_b.name}, torch {' and '.join(versions)}"
    cores = next((place.cores for place in (place_a, place_b) if place.kind == "cpu"), None)
    least = parameters["least_cores"]
    if cores is not None and cores < least:
        return not_testable(
            f"{place_a.name} is {in_words(ratio)} times as fast as {place_b.name}, but {cores} cores are not the "
            f"many-core CPU that the claim is about: at least {least} are asked for",
            setup=setup,
            measured=ratio,
        )
    judged = of_rank(ratio) if asked.published is None else of_ratio(ratio, asked.published)
    return Answer(
        word=judged.word,
        why=f"{place_a.name} is {in_words(ratio)} times as fast as {place_b.name}, {pair.contrast.how}; {judged.why}",
        measured=ratio,
        setup=setup,
        runs=pair.contrast.runs,
    )


def _pairs(asked: Asked, evidence: Evidence) -> Iterator[tuple[Place, Place, Pair]]:
    over = asked.parameters["over"]
    for model in asked.parameters["models"]:
        cases = [(place, case) for place, case in evidence.cases if case.model == model]
        for place_a, a in cases:
            for place_b, b in cases:
                if place_a.kind != over or place_b.kind == over:
                    continue
                contrast = contrast_cases(a, b, differ_in=_COMPARED)
                if not isinstance(contrast, Absent):
                    yield place_a, place_b, Pair(a=a, b=b, contrast=contrast)


def _gpu(entry: tuple[Place, Place, Pair]) -> str:
    return next(place.name for place in entry[:2] if place.kind == "gpu")


def _is_one_of(name: str, wanted: list[str]) -> bool:
    return any(part.lower() in name.lower() for part in wanted)


RULE = Rule(
    words=(
        "Images/s on one kind of device over the other, from runs alike but for device, machine and versions, measured "
        "apart. A CPU of fewer cores than `least_cores` does not test a claim about many-core CPUs."
    ),
    parameters=("models", "over", "least_cores", "gpus"),
    scope="all",
    apply=_apply,
)
