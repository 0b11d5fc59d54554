"""How much arithmetic an algorithm does, by formula."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """Real additions and multiplications: those that replace the convolution's own, and those of transforms."""

    products: int  # 2 per real multiply-add, 8 per complex one
    transforms: int

    @property
    def flops(self) -> int:
        return self.products + self.transforms
