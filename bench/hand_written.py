"""A training loop as one writes it by hand, with no code of Deepstone: the yardstick for its numbers.

    python bench/hand_written.py resnet50 --batch 256 --device cuda --precision bf16-mixed --layout nhwc

Prints one JSON line: images per second of each block of steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from functools import partial

import torch
from torch import nn


def alexnet(widths: tuple[int, int, int, int, int], *, pad: int = 0) -> nn.Module:
    """`widths`: channels of the convolutions; `pad`: of the first one."""
    a, b, c, d, e = widths
    return nn.Sequential(
        nn.Conv2d(3, a, 11, stride=4, padding=pad), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(a, b, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(b, c, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(c, d, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(d, e, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(36 * e, 4096), nn.ReLU(inplace=True),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True),
        nn.Linear(4096, 1000),
    )  # fmt: skip


class PixelNorm(nn.Module):
    """Local response normalization over 3x3 pixels of each channel, as cifar10_full has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (1 + 5e-5 * nn.functional.avg_pool2d(x * x, 3, 1, 1)) ** 0.75


def cifarnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.ReLU(inplace=True),
        PixelNorm(),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2, ceil_mode=True),
        PixelNorm(),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )  # fmt: skip


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(Bottleneck(channels, width, stride if number == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


MODELS = {
    "alexnet-kim": (partial(alexnet, (96, 256, 384, 384, 256)), 227, 1000),
    "alexnet-owt": (partial(alexnet, (64, 192, 384, 256, 256), pad=2), 224, 1000),
    "cifarnet": (cifarnet, 32, 10),
    "resnet50": (resnet50, 224, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16-mixed", "bf16"])
    parser.add_argument("--layout", default="nchw", choices=["nchw", "nhwc"])
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--compile", default="")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = options.benchmark
    mode = "tf32" if options.precision == "tf32" else "ieee"
    torch.backends.cudnn.conv.fp32_precision = mode
    torch.backends.cuda.matmul.fp32_precision = mode
    device = torch.device(options.device)
    make, size, classes = MODELS[options.model]
    model = make().to(device)
    images = torch.randn(options.batch, 3, size, size, device=device)
    labels = torch.randint(0, classes, (options.batch,), device=device)
    if options.precision == "bf16":
        model, images = model.bfloat16(), images.bfloat16()
    if options.layout == "nhwc":
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=options.fused or None)
    criterion = nn.CrossEntropyLoss()
    network = torch.compile(model, mode=options.compile) if options.compile else model
    mixed = options.precision == "bf16-mixed"

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16) if mixed else contextlib.nullcontext():
            logits = network(images)
            loss = criterion(logits.float() if options.precision == "bf16" else logits, labels)
        loss.backward()
        optimizer.step()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    begin = time.perf_counter()
    step()
    wait()
    first_s = time.perf_counter() - begin
    warm_until = time.perf_counter() + min(1.5, options.seconds / 2)
    steps = 0
    begin = time.perf_counter()
    while time.perf_counter() < warm_until or steps < 3:
        step()
        wait()
        steps += 1
    step_s = (time.perf_counter() - begin) / steps
    per_block = max(1, round(1.0 / step_s))  # long, so that filling and draining the device does not show
    rates = []
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(rates) < 3:
        wait()
        begin = time.perf_counter()
        for _ in range(per_block):
            step()
        wait()
        rates.append(options.batch * per_block / (time.perf_counter() - begin))
    print(json.dumps({"images_per_s": rates, "first_step_s": first_s, "steps_per_block": per_block}))


if __name__ == "__main__":
    main()
