"""Parameter counts the networks are known by; batch norm's weight and bias count, its running statistics do not."""

from __future__ import annotations

PARAMETERS = {
    "cifarnet": 89_578,
    "alexnet": 60_965_224,
    "alexnet-owt": 61_100_840,
    "alexnet-kim": 62_378_344,
    "overfeat": 145_920_872,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "googlenet": 6_998_552,
    "inception-v3": 23_834_568,
    "inception-v4": 42_679_816,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet110": 1_727_962 + 2_752,  # the paper's network and its two projections
    "resnet1001": 10_327_706,
    "resnet5000": 51_502_490,
}
