"""Writes deepstone/tuner/rules.json from the records in results/: `python scripts/make_advice.py`.

Run it after records are added to results/. A test sees that the file is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deepstone.tuner.advice import FILE
from deepstone.tuner.published import as_text, published, rules_of

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    rules = rules_of(*published(ROOT / "results"))
    path = ROOT / "deepstone" / "tuner" / FILE
    path.write_text(as_text(rules), encoding="utf-8")
    sys.stderr.write(f"{len(rules.rules)} rules from {rules.records} records: {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
