"""`deepstone advise`: the setups that are likely the fastest, from rules and from your own records, in a second."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from deepstone.cli.declare import examples
from deepstone.cli.jobs import image_size, image_words
from deepstone.cli.options import Axes, Image, Json, Model, StorePath
from deepstone.cli.output import Data, print_json, print_lines
from deepstone.cli.stores import store_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deepstone.results.advice import Advice, Advised
    from deepstone.results.parts import Value

EXAMPLES = examples(
    "deepstone advise resnet50",
    "deepstone advise vgg16 device=gpu batch=256 --json",
    "deepstone advise alexnet-owt framework=torch precision=fp32",
)
_MOST_RECORDS = 4
_WIDE = 2  # the high over the low end of a gain


def advise(model: Model, axes: Axes = None, image: Image = None, store: StorePath = None, json: Json = False) -> None:
    """The setups that are likely the fastest for a model here, with what each gains and where that was seen.

    Nothing is measured. Settings that you give are kept: with precision=fp32, all advice is in fp32. Your own runs on
    this machine count first, then the rules that come with Deepstone; without a store, the rules alone. Exit codes: 0
    ok, also where nothing is known; 2 the model or a setting is wrong; 3 the store cannot be read.
    """
    from deepstone.exchange.load import load_without_framework
    from deepstone.setups.request import parse_words

    given = parse_words(axes or [])
    glance = load_without_framework(model, image=image_size(image))
    from deepstone.store.store import Store
    from deepstone.tuner.advisor import advised

    folder = store_folder(store)
    is_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    opened = None if is_empty else Store.open(folder, create=False)
    found = advised(glance, given, opened)
    if json:
        print_json(_as_json(found))
    else:
        words = [word for word in axes or [] if word]
        _show(found, model, words, image_words(image), may_convolve=glance.may_convolve)


def _as_json(found: Advised) -> Mapping[str, Data]:
    """Every key of an advice is there, also where it is empty."""
    return {
        "model": found.model,
        "facts": found.facts.to_json(),
        "asked": dict(found.asked),
        "advice": [
            {
                "setup": dict(each.setup),
                "gain": each.gain.to_json(),
                "over": dict(each.over),
                "machines": each.machines,
                "seen": each.models,
                "confidence": each.confidence,
                "gives_up": each.gives_up,
                "checked": each.checked,
                "records": each.records,
            }
            for each in found.advice
        ],
        "notes": found.notes,
    }


def _show(found: Advised, model: str, words: Sequence[str], options: Sequence[str], *, may_convolve: bool) -> None:
    from deepstone.tuner.advisor import NO_GPU

    facts = found.facts
    print_lines([f"{found.model} · batch {facts.batch} · {facts.phase} · {facts.device}", ""])
    for number, each in enumerate(found.advice, 1):
        print_lines([f"{number}  {each.words}", *_lines(each, found.asked), ""], hang=5)
    if not found.advice:
        what = "what you gave" if found.asked else "the default"
        varied = "layout=nchw,nhwc" if may_convolve else "compile=off,default"
        kept = [word for word in words if word.partition("=")[0] != varied.partition("=")[0]]
        measure = shlex.join(["deepstone", "run", model, *kept, varied, *options])
        print_lines([f"Nothing is known to be faster than {what} here. To measure: {measure}", ""])
    if found.notes:
        print_lines([f"note: {note}" for note in found.notes], hang=6)
    if found.advice and NO_GPU not in found.notes:
        command = ["deepstone", "compare", model, *words, *options, "--", *found.advice[0].words.split()]
        print_lines([f"try it: {shlex.join(command)}"], hang=4)


def _beside(each: Advice, asked: Mapping[str, Value]) -> str:
    """The gain is about another setup where no runs show how it compares with the default: they are too few, too noisy,
    or missing."""
    return "" if asked or not each.over else "; nothing is shown against the default itself"


def _at_least(each: Advice) -> str:
    """The middle of a wide interval says little. Over several groups it spans what differs between them."""
    gain = each.gain
    return f"; at least {gain.low:.2f}x is shown" if gain.n == 1 and gain.high > _WIDE * gain.low else ""


def _lines(each: Advice, asked: Mapping[str, Value]) -> list[str]:
    seen = f"{each.machines} machine" + ("s" if each.machines > 1 else "")
    lines = [
        f"   {_times(each)} {_words(each.over)}{_beside(each, asked)}{_at_least(each)}",
        f"   confidence: {each.confidence}; seen on {seen}: {'; '.join(each.models)}",
    ]
    lines += [f"   gives up: {what}" for what in each.gives_up]
    if not each.checked:
        lines.append("   the records do not show that both frameworks compute the same; `deepstone verify` does")
    more = len(each.records) - _MOST_RECORDS
    shown = " ".join(each.records[:_MOST_RECORDS])
    return [*lines, f"   records: {shown}" + (f" and {more} more" if more > 0 else "")]


def _times(each: Advice) -> str:
    gain = each.gain
    spread = f"{gain.low:.2f} – {gain.high:.2f}"
    return f"{gain.median:.2f}x ({spread}" + (f", {gain.n} groups)" if gain.n > 1 else ")")


def _words(setup: Mapping[str, Value]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in setup.items()) or "the default"
