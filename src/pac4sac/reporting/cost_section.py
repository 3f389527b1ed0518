"""The section on cost: every machine side by side with the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pac4sac.reporting import paper
from pac4sac.reporting.collection import FoundCost
from pac4sac.reporting.statistics import Estimate, Summary, summarise
from pac4sac.reporting.tables import Cell, Column, Listing, Section, Table

REFERENCE = "sac"
NORMAL_97_5 = 1.959964


@dataclass(frozen=True)
class Machine:
    cost: FoundCost

    @cached_property
    def times(self) -> dict[str, Summary]:
        """Seconds per 1000 steps, by algorithm."""
        rows = {str(row.get("label", row.get("algo"))): seconds(row) for row in self.cost.content["rows"]}
        return {label: summarise(found) for label, found in rows.items() if found}

    @property
    def device(self) -> str:
        return str(self.cost.content.get("device", "cpu"))

    @property
    def title(self) -> str:
        about = self.cost.content.get("machine", {})
        if self.device.startswith("cuda"):
            name = str(about.get("gpu") or self.device)
        else:
            name = " ".join(["CPU", *(str(about[key]) for key in ("processor",) if about.get(key))])
            name += f", {about['cores']} cores" if about.get("cores") else ""
        return name if self.cost.study == "cost" else f"{name} (study {self.cost.study})"

    @property
    def about(self) -> str:
        machine = {name: value for name, value in self.cost.content.get("machine", {}).items() if value is not None}
        versions = {name: self.cost.content.get("versions", {}).get(name) for name in ("pac4sac", "torch")}
        backends = sorted({str(row.get("backend")) for row in self.cost.content["rows"] if row.get("backend")})
        told = [f"{name} {value}" for name, value in {**machine, **versions}.items() if value is not None]
        told += [f"backend {', '.join(backends)}"] if backends else []
        told.append(f"{min(summary.n for summary in self.times.values())} repetitions")
        command = f"pac4sac study run {self.cost.study} --device {self.device}"
        return f"{self.title}: {', '.join(told)}. Repeat with `{command}`."

    def relative(self, label: str) -> Estimate | None:
        """To SAC, with the interval of a ratio of two means that have small errors."""
        own, reference = self.times.get(label), self.times.get(REFERENCE)
        if own is None or reference is None:
            return None
        ratio = own.mean / reference.mean
        if own.sd is None or reference.sd is None or label == REFERENCE:
            return Estimate(ratio)
        error = ratio * np.sqrt(sum((s.sd / s.mean) ** 2 / s.n for s in (own, reference) if s.sd is not None))
        return Estimate(ratio, float(ratio - NORMAL_97_5 * error), float(ratio + NORMAL_97_5 * error))


def machines(costs: Sequence[FoundCost]) -> list[Machine]:
    found = [Machine(cost) for cost in costs]
    return [machine for machine in found if machine.times]


def cost_section(costs: Sequence[FoundCost]) -> Section | None:
    found = machines(costs)
    if not found:
        return None
    labels = list(dict.fromkeys([*paper.COST, *(label for machine in found for label in machine.times)]))
    columns = [Column("Algorithm", numeric=False)]
    for group in ("Paper, Apple M2 Max", *(machine.title for machine in found)):
        columns += [Column("seconds", group), Column("× SAC", group)]
    body, records = [], []
    for label in labels:
        printed = paper.COST.get(label)
        theirs = printed.mean / paper.COST[REFERENCE].mean if printed else None
        cells = [Cell(label, label)]
        cells.append(Cell(f"{printed.mean:.2f} ± {printed.sd:.2f}", printed.mean) if printed else Cell())
        cells.append(Cell(f"{theirs:.2f}", theirs) if theirs else Cell())
        for machine in found:
            own, ratio = machine.times.get(label), machine.relative(label)
            spread = f" ± {own.sd:.2f}" if own and own.sd is not None else ""
            cells.append(Cell(f"{own.mean:.2f}{spread}", own.mean) if own else Cell())
            cells.append(Cell(f"{ratio.value:.2f}", ratio.value) if ratio else Cell())
            records.append({
                "machine": machine.title, "device": machine.device, "algorithm": label,
                "repetitions": own.n if own else 0, "seconds": own.mean if own else None,
                "sd": own.sd if own else None, "relative_to_sac": ratio.value if ratio else None,
                "relative_low": ratio.low if ratio else None, "relative_high": ratio.high if ratio else None,
                "paper_seconds": printed.mean if printed else None, "paper_relative_to_sac": theirs,
            })  # fmt: skip
        body.append(cells)
    intro = (
        "Seconds per 1000 steps of one run of Cartpole Swingup with one update per step, mean ± sd of the repetitions. "
        "Machines differ, so the numbers to compare are those relative to SAC. The paper does not say how many updates "
        "a step has."
    )
    caption = "Seconds per 1000 steps, and how many times those of SAC"
    listing = Listing([machine.about for machine in found])
    return Section("cost", "Cost", [intro, Table("cost", caption, columns, body, records), listing])


def seconds(row: Mapping[str, Any]) -> list[float]:
    return [float(s) for s in row.get("seconds_per_1000_steps", []) if isinstance(s, int | float)]
