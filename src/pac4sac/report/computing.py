"""How runs were computed: on which device, by which backend, how precisely."""

from collections.abc import Iterable, Sequence
from typing import Any

from pac4sac.report.tables import Cell, Column, Table
from pac4sac.report.variants import Group
from pac4sac.runs.reading import RunRecord

UNKNOWN = "not recorded"  # of runs of an older kind
HOW = ("device", "backend", "precision")


def mixtures(groups: Iterable[Group]) -> list[str]:
    """A sentence for each task of which runs were computed in several ways: they may differ by that alone."""
    by_task: dict[str, dict[str, list[str]]] = {}
    for group in groups:
        for run in group.runs:
            by_task.setdefault(group.task.title, {}).setdefault(_in_short(run), []).append(f"`{group.label}`")
    told = []
    for task, ways in by_task.items():
        *rare, usual = sorted(ways, key=lambda way: len(ways[way]))
        if rare:
            parts = [f"{', '.join(dict.fromkeys(ways[way]))} {way}" for way in rare]
            told.append(f"On {task} runs were not all computed alike: {'; '.join(parts)}; the others {usual}.")
    return told


def _in_short(run: RunRecord) -> str:
    return f"in {run.computed['precision']} on {run.computed['device']}" if run.computed else UNKNOWN


def computing_table(groups: Sequence[Group]) -> Table:
    found: dict[tuple[str, ...], dict[str, int]] = {}
    for group in groups:
        for run in group.runs:
            key = (group.task.title, *(run.computed.get(name, UNKNOWN) for name in HOW))
            variants = found.setdefault(key, {})
            variants[group.label] = variants.get(group.label, 0) + 1
    body: list[list[Cell]] = []
    records: list[dict[str, Any]] = []
    for key, variants in found.items():
        runs = sum(variants.values())
        body.append([*(Cell(part, part) for part in key), Cell(", ".join(variants)), Cell(str(runs), runs)])
        records += [
            dict(zip(("task", *HOW), key, strict=True)) | {"variant": label, "runs": n} for label, n in variants.items()
        ]
    columns = [Column(title, numeric=False) for title in ("Task", "Device", "Backend", "Precision", "Variants")]
    return Table("computing", "How the runs were computed", [*columns, Column("Runs")], body, records)
