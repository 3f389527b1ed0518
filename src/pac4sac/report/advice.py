"""Advice on a comparison: the settings in which its variants differ, and the seeds it needs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pac4sac.base.grouping import differing_values
from pac4sac.base.text import file_name, setting_text
from pac4sac.report.comparison import NO_DIFFERENCE, Compared
from pac4sac.report.figures import AT_ONCE
from pac4sac.report.sentences import listed
from pac4sac.report.tables import TEXTS, Cell, Table, words
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import MOST_SEEDS, seeds_needed, summarise


def differing_settings(variants: Sequence[Variant]) -> dict[str, dict[str, Any]]:
    """Return the settings that all variants have with different values, as values by label."""
    return differing_values({variant.label: variant.config for variant in variants})


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


def seeds_advice(by_metric: Sequence[Sequence[Compared]]) -> list[str]:
    """Return the number of seeds that the undecided comparisons on a task need.

    Args:
        by_metric: The comparisons with the baseline, by each metric.

    Returns:
        A sentence for each metric with an undecided comparison.
    """
    return list(dict.fromkeys(text for rows in by_metric if (text := _advice_by_metric(rows))))


def _advice_by_metric(rows: Sequence[Compared]) -> str:
    texts = TEXTS["advice"]
    tested = [row for row in rows if row.difference is not None]
    if not tested:
        return ""
    if all(len(row.values) == 1 for row in tested):
        return str(texts["one_seed"])
    needed = [
        f"{_counted(seeds)} for {row.variant.style.name}"
        for row in tested
        if row.verdict == NO_DIFFERENCE and (seeds := _seeds_of(row, len(tested))) is not None
    ]
    return _needed_sentence(tested[0], needed) if needed else ""


def _needed_sentence(row: Compared, needed: Sequence[str]) -> str:
    assert row.baseline is not None
    names = {"metric": row.metric.title, "baseline": row.baseline.style.name}
    return str(TEXTS["advice"]["seeds"].format(known=listed(needed), **names))


def _seeds_of(row: Compared, comparisons: int) -> int | None:
    """Return how many seeds of each side would detect a difference.

    The level of the test is divided by the number of comparisons.
    """
    assert row.baseline is not None
    both = summarise(row.values), summarise(row.quantity.values(row.baseline))
    return seeds_needed(*both, level=0.05 / comparisons)


def _counted(seeds: int) -> str:
    return f"more than {MOST_SEEDS} seeds" if seeds >= MOST_SEEDS else f"about {seeds} seeds"
