"""`deepstone doctor`: what this machine has, what runs, what can be measured, and what cannot and why."""

from __future__ import annotations

from typing import Any

from deepstone.cli.options import Json, examples
from deepstone.cli.output import print_json, print_lines

EXAMPLES = examples("deepstone doctor", "deepstone doctor --json")

_INDENT = 11  # of what follows the name of a thing


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
        print_lines(_lines(examination.to_json()), hang=_INDENT)


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
        lines.append(f"framework  {' '.join(filter(None, (name, framework['version'])))}: {state}")
        for feature, probe in framework.get("features", {}).items():
            lines.append(f"             {feature}: {'works' if probe['works'] else probe['why']}")
    for name, meter in found["meters"].items():
        lines.append(f"meter      {name}: {meter['absent'] if is_absent(meter) else meter['covers']}")
    lines += [f"missing    {entry['what']}: {entry['why']} → {entry['remedy']}" for entry in found["missing"]]
    return lines
