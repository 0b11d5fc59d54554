"""Colours by meaning: the palette of Okabe and Ito, safe for colour-blind readers, and paler variants."""

from __future__ import annotations

from math import log
from typing import Final

_HUES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = _HUES

FORWARD: Final = BLUE
BACKWARD: Final = VERMILLION
DATA_GRADIENT: Final = "#F2C14E"
WEIGHT_GRADIENT: Final = PURPLE
OTHER: Final = "#AEB4BD"
TOTAL: Final = "#6A717B"

UPDATE: Final = ORANGE
REDUCTION: Final = GREEN
PACKING: Final = PURPLE
BUFFERS: Final = SKY
DATA: Final = DATA_GRADIENT
WAITING: Final = OTHER
RESIDUAL: Final = TOTAL

PARAMETERS: Final = BLUE
GRADIENTS: Final = VERMILLION
OPTIMIZER: Final = ORANGE
ACTIVATIONS: Final = GREEN
WORKSPACE: Final = PURPLE
MEASURED: Final = TOTAL

# From the best of a row to ten times as slow: light to dark of one hue, so that it reads in grey as well.
HEAT: Final = ("#E8F4EF", "#A9D8C8", "#5FB3A1", "#2A8288", "#1D5470", "#152A52")
HEAT_ENDS_AT: Final = 10.0
HEAT_KEY: Final = ((1.0, "best"), (1.5, "1.5 ×"), (2.0, "2 ×"), (4.0, "4 ×"), (10.0, "10 × or more"))
NOTHING: Final = "#D9DBDF"
FRAME: Final = VERMILLION

_GOOD_CONTRAST: Final = 4.0  # of white text; where white has less, black has more


def hue(position: int) -> str:
    """Return the colour of an item in a list without its own meaning, such as frameworks."""
    return _HUES[position % len(_HUES)]


def paler(colour: str) -> str:
    """Return the colour halfway to white."""
    parts = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{(part + 255) // 2:02X}" for part in parts)


def heat(ratio: float) -> str:
    """Return the colour of a cell by the logarithm of its ratio; the darkest is for ten times and more."""
    place = _heat_place(ratio) * (len(HEAT) - 1)
    below = min(int(place), len(HEAT) - 2)
    return _between(HEAT[below], HEAT[below + 1], place - below)


def readable_on(colour: str) -> str:
    """Return white, or black if white has too little contrast."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#FFFFFF" if 1.05 / (luminance + 0.05) >= _GOOD_CONTRAST else "#000000"


def _linear(part: float) -> float:
    """Return the linear light of a colour channel, as sRGB defines it."""
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def _heat_place(ratio: float) -> float:
    return min(1.0, max(0.0, log(max(ratio, 1.0)) / log(HEAT_ENDS_AT)))


def _between(one: str, other: str, share: float) -> str:
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)
