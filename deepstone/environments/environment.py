"""One place that holds one version of one framework, and the interpreter that runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """`lock` names the versions that decide what is measured; two environments with equal locks are interchangeable."""

    framework: str
    version: str
    python: Path
    lock: Mapping[str, str]

    @property
    def sha(self) -> str:
        text = json.dumps(dict(self.lock), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
