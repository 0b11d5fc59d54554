"""`deepstone doctor`: what this machine has, what runs, what can be measured, and what cannot and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepstone.cli.options import Json
from deepstone.cli.output import console, print_json

if TYPE_CHECKING:
    from deepstone.runner.examine import Examination

EXAMPLES = "Example: deepstone doctor --json"


def doctor(json: Json = False) -> None:
    """What this machine has, which frameworks run, what can be measured and what cannot and why.

    Features that can crash a framework are tried in processes of their own.
    """
    from deepstone.cli.progress import progress_bar
    from deepstone.runner.examine import examine

    with progress_bar(1) as bar:
        bar.begin("examining")
        examination = examine(bar.tell)
    if json:
        print_json(examination.to_json())
    else:
        _show(examination)


def _show(examination: Examination) -> None:
    out = console()
    for line in _lines(examination.to_json()):
        out.print(line, markup=False, soft_wrap=True)


def _lines(found: dict[str, Any]) -> list[str]:
    from deepstone.records.schema import is_absent
    from deepstone.units import bytes_

    machine = found["machine"]
    cpu = machine["cpu"]
    lines = [
        f"machine    {cpu['model']}, {cpu['physical_cores']} cores ({cpu['usable_cores']} usable), "
        f"{bytes_(machine['memory_bytes'])}, {machine['os']['distribution']}"
    ]
    lines += [f"device     {device['name']}: {device['what']}" for device in found["devices"]]
    for name, framework in found["frameworks"].items():
        state = "runs" if framework["runs"] else f"does not run: {framework['why']}"
        lines.append(f"framework  {name} {framework['version'] or ''}: {state}".replace("  :", ":"))
        for feature, probe in framework.get("features", {}).items():
            lines.append(f"             {feature}: {'works' if probe['works'] else probe['why']}")
    for name, meter in found["meters"].items():
        lines.append(f"meter      {name}: {meter['absent'] if is_absent(meter) else meter['covers']}")
    lines += [f"missing    {entry['what']}: {entry['why']} → {entry['remedy']}" for entry in found["missing"]]
    return lines
