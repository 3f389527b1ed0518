"""Advice on a comparison: the settings in which its variants differ, and the seeds it needs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pac4sac.base.text import file_name, setting_text
from pac4sac.report.comparison import NO_DIFFERENCE, Compared
from pac4sac.report.figures import AT_ONCE
from pac4sac.report.tables import TEXTS, Cell, Table, words
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import MOST_SEEDS, seeds_needed, summarise


def differing_settings(variants: Sequence[Variant]) -> dict[str, dict[str, Any]]:
    """Return the settings that all variants have with different values, as values by label."""
    values: dict[str, dict[str, Any]] = {}
    for variant in variants:
        for name, value in variant.config.items():
            values.setdefault(name, {})[variant.label] = value
    return {name: by for name, by in values.items() if len({*map(str, by.values())}) > 1}


def differing_settings_table(title: str, variants: Sequence[Variant]) -> list[Table]:
    """Return the table of the settings in which a few variants of a task differ."""
    differing = differing_settings(variants)
    if not differing or len(variants) > AT_ONCE:
        return []
    columns = [words("Setting", lambda name: name, "setting")]
    columns += [
        words(variant.label, partial(_value, differing, variant.label), variant.label)
        for variant in variants
    ]
    caption = TEXTS["advice"]["settings"].format(title=title)
    return [Table(f"differing-settings-{file_name(title)}", caption, columns, list(differing))]


def _value(differing: Mapping[str, Mapping[str, Any]], label: str, setting: str) -> Cell:
    value = differing[setting].get(label)
    return Cell() if value is None else Cell(setting_text(value), setting_text(value))


def seeds_advice(rows: Sequence[Compared]) -> str:
    """Return the number of seeds that the undecided comparisons need; empty if all are decided.

    The significance level is divided by the number of comparisons.
    """
    texts = TEXTS["advice"]
    tested = [row for row in rows if row.difference is not None]
    undecided = [row for row in tested if row.verdict == NO_DIFFERENCE]
    needed = [(row.variant.style.name, _seeds_of(row, len(tested))) for row in undecided]
    known = [f"{name} {_counted(seeds)}" for name, seeds in needed if seeds is not None]
    if known and rows[0].baseline is not None:
        against = rows[0].baseline.style.name
        return str(texts["seeds"].format(known=", ".join(known), baseline=against))
    if tested and all(len(row.values) == 1 for row in tested):
        return str(texts["one_seed"])
    return ""


def _seeds_of(row: Compared, comparisons: int) -> int | None:
    assert row.baseline is not None
    both = summarise(row.values), summarise(row.quantity.values(row.baseline))
    return seeds_needed(*both, level=0.05 / comparisons)


def _counted(seeds: int) -> str:
    return f"more than {MOST_SEEDS}" if seeds >= MOST_SEEDS else f"about {seeds}"
