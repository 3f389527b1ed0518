"""The section on a search of settings: best settings, bias of the search's estimate, importance of
settings, and all trials."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from pac4sac.base.text import file_name, p_text, setting_text
from pac4sac.report import figures
from pac4sac.report.comparison import Context, is_significant
from pac4sac.report.style import COLOURS
from pac4sac.report.tables import (
    TEXTS,
    Block,
    Cell,
    Column,
    Picture,
    Section,
    Table,
    data,
    in_digits,
    words,
)
from pac4sac.report.variants import METRICS
from pac4sac.runs.tuning import FoundSearch, mean_score, score_difference

Search = Mapping[str, Any]  # the content of tune.json
AT_MOST = 12  # settings with a slice plot


def tuning_section(context: Context) -> Section | None:
    """Return the section on all searches; None if there is none."""
    blocks: list[Block] = []
    for search in context.collection.searches:
        blocks += _blocks(search)
    return Section("tuning", "Search of settings", blocks) if blocks else None


def _blocks(search: FoundSearch) -> list[Block]:
    about, name = search.content, file_name(search.place)
    blocks: list[Block] = [about_search(about), TEXTS["tuning"]["intro"], _trials(name, about)]
    if about["importance"]:
        blocks.append(
            Picture(
                f"importance-{name}",
                TEXTS["tuning"]["importance"],
                partial(importance_figure, about),
            )
        )
    if _with_value(about):
        draw = partial(slices_figure, about)
        blocks.append(Picture(f"slices-{name}", TEXTS["tuning"]["slices"], draw))
    return blocks


# --- in sentences


def about_search(about: Search) -> list[str]:
    """Return sentences on the trials, the best settings, and their result with fresh seeds."""
    states = Counter(trial["state"] for trial in about["trials"])
    counts = ", ".join(f"{n} {state}" for state, n in states.items())
    trials, seeds = len(about["trials"]), len(about["seeds"])
    sentences = [f"The search ran {trials} trials of {seeds} seeds each: {counts}."]
    winner = about.get("winner")
    if winner is None:
        return [*sentences, "No trial has a result yet."]
    settings = ", ".join(f"{name} = {_short(x)}" for name, x in winner["settings"].items())
    estimate = mean_score(winner["scores"])
    sentences.append(
        f"Trial {winner['number']} is the best, with {settings}. "
        f"In the search, its {unit(about)} is {in_digits(estimate)}."
    )
    if "broken_off" in about:
        return [*sentences, f"There is no result with fresh seeds: {about['broken_off']}."]
    return sentences + (_fresh(about) if "fresh" in about else [])


def unit(about: Search) -> str:
    """Return the name of the trials' metric with its unit."""
    title = METRICS[about["metric"]].title
    return f"normalised {title}" if len(about["tasks"]) > 1 else title


def _fresh(about: Search) -> list[str]:
    """Return sentences on the final training, the bias of the search, and the defaults."""
    fresh, defaults, n = about["fresh"], about["defaults"], len(about["fresh_seeds"])
    sign = -1 if about["lower_is_better"] else 1
    sentences = [f"With {n} fresh seeds, the {unit(about)} is {in_digits(mean_score(fresh))}."]
    better, worse = (about["winner"]["scores"], fresh)[::sign]
    bias = score_difference(better, worse)
    if bias.value > 0:
        sentences.append(
            f"The estimate of the search is too optimistic by {in_digits(bias)}, "
            "because the best of many trials is partly lucky."
        )
    difference = score_difference(fresh, defaults)
    beats = is_significant(difference.p) and sign * difference.value > 0
    about_p = f", {p_text(difference.p)}" if difference.p is not None else ""
    numbers = f"Δ = {in_digits(difference)}{about_p}, n = {n} vs {n}"
    if fresh == defaults:
        sentences.append("The best settings are the defaults, so the search found nothing better.")
    elif beats:
        sentences.append(
            f"The best settings are better than the defaults on fresh seeds ({numbers})."
        )
    else:
        sentences.append(
            "We found no settings that are significantly better than the defaults on fresh seeds "
            f"({numbers})."
        )
    sentences.append(f"To train with the best settings, run: {about['command']}")
    return sentences


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else setting_text(value)


# --- tables and figures


def _with_value(about: Search) -> list[dict[str, Any]]:
    return [trial for trial in about["trials"] if trial.get("value") is not None]


def _trials(name: str, about: Search) -> Table:
    """Return the table of all trials, best first."""
    settings = list(dict.fromkeys(key for t in about["trials"] for key in t["settings"]))
    sign = 1 if about["lower_is_better"] else -1

    def rank(trial: dict[str, Any]) -> tuple[bool, float, int]:
        value = trial.get("value")
        return value is None, sign * (value or 0.0), trial["number"]

    def setting(trial: dict[str, Any], key: str) -> Cell:
        value = trial["settings"].get(key)
        return Cell() if value is None else Cell(_short(value), value)

    columns = [
        Column("Trial", lambda trial: Cell(str(trial["number"]), trial["number"]), "trial"),
        words("Outcome", lambda trial: trial["outcome"] or trial["state"], "outcome"),
        Column(unit(about), lambda trial: trial.get("value"), "value"),
        *(words(key, partial(setting, key=key)) for key in settings),
        data(*settings, get=lambda trial: tuple(map(trial["settings"].get, settings))),
    ]
    rows = sorted(about["trials"], key=rank)
    return Table(f"trials-{name}", "All trials, best first", columns, rows)


def importance_figure(about: Search) -> Figure:
    """Draw the importance of each setting."""
    ranked = sorted(about["importance"].items(), key=lambda item: item[1])
    height = 0.9 + 0.24 * len(ranked)
    figure, (panel,) = figures.new_figure("Importance of settings", 1, height=height)
    names, values = [name for name, _ in ranked], [value for _, value in ranked]
    panel.barh(range(len(ranked)), values, color=COLOURS[0], height=0.6)
    figures.finish_panel(panel, "share of the importance", "")
    panel.set_yticks(range(len(ranked)), names)
    panel.grid(visible=False, axis="y")
    return figure


def slices_figure(about: Search) -> Figure:
    """Draw the value of each trial over each setting; the best trial is marked."""
    trials, names = _with_value(about), [text.partition("=")[0] for text in about["space"]]
    shown = names[:AT_MOST]
    rows = -(-len(shown) // 3)
    figure, panels = figures.new_figure(
        "Trials by setting", len(shown), height=0.6 + 2.1 * rows, columns=min(3, len(shown))
    )
    values = [trial["value"] for trial in trials]
    best = (min if about["lower_is_better"] else max)(values)
    for panel, name, space in zip(panels, shown, about["space"], strict=False):
        xs = [trial["settings"][name] for trial in trials]
        is_choice = ":" not in space
        labels = sorted({*map(str, xs)}) if is_choice else []
        places = [labels.index(str(x)) if is_choice else x for x in xs]
        panel.plot(places, values, "o", color=COLOURS[0], markersize=3.5, alpha=0.7)
        winner = values.index(best)
        panel.plot([places[winner]], [best], "D", color=COLOURS[1], markersize=5.5)
        if space.endswith(":log"):
            panel.set_xscale("log")
        _finish_slice(panel, name, unit(about), labels)
    return figure


def _finish_slice(panel: Any, name: str, title: str, labels: Sequence[str]) -> None:
    """Label a panel; a logarithmic axis keeps its default ticks."""
    locator = panel.xaxis.get_major_locator()
    figures.finish_panel(panel, name, title)
    if labels:
        panel.set_xticks(range(len(labels)), labels)
    elif panel.get_xscale() == "log":
        panel.xaxis.set_major_locator(locator)
