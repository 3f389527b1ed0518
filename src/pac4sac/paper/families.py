"""Families of variants: a test is corrected for the others of its family, and each variant is in one of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pac4sac.paper.paper_rows import PaperRows
from pac4sac.paper.shipped import shipped_study
from pac4sac.report.variants import Group, defaults
from pac4sac.runs.collection import FoundStudy

CONTROLS, BEYOND, BEST, OTHERS = "controls", "beyond", "best", "others"
STUDY_TITLES = {CONTROLS: "Controls", BEYOND: "Beyond the paper", BEST: "The preset `best`", OTHERS: "Other runs"}
TABLE_1, TABLE_2, SHOTS = "Algorithms of Table 1", "Loss terms of Table 2", "Numbers of shots"
ALL = "All variants"


@dataclass(frozen=True)
class Family:
    title: str
    members: Sequence[Group]


def families(results: Sequence[Group], rows: PaperRows, studies: Sequence[FoundStudy]) -> list[Family]:
    """Of the variants of one task, each in the first family that has it."""
    of_studies = {title: _of_study(kind, rows, studies) for kind, title in STUDY_TITLES.items()}
    # S = 1 is a control wherever there are controls, as on their own page; the shots are compared with it.
    wanted: dict[str, Callable[[Group], bool]] = {
        TABLE_1: lambda group: _is_among(group, rows.table_1.values()),
        TABLE_2: lambda group: _is_among(group, rows.table_2.values()),
        STUDY_TITLES[CONTROLS]: of_studies[STUDY_TITLES[CONTROLS]],
        SHOTS: lambda group: _is_among(group, rows.shooting.values()),
    } | of_studies
    found: list[Family] = []
    left = list(results)
    for title, belongs in wanted.items():
        members = [group for group in left if belongs(group)]
        left = [group for group in left if not _is_among(group, members)]
        if members:
            found.append(Family(title, members))
    return [Family(ALL, found[0].members)] if len(found) == 1 else found


def study_members(kind: str, results: Sequence[Group], rows: PaperRows, studies: Sequence[FoundStudy]) -> list[Group]:
    """The variants of one task that a study of this kind has, or that neither a study nor a table has."""
    belongs = _of_study(kind, rows, studies)
    return [group for group in results if belongs(group)]


def is_preset_best(group: Group) -> bool:
    """By its settings: runs of the preset with some of them changed have the same label."""
    return _has_settings(group, "pac4sac", "best", {})


def _of_study(kind: str, rows: PaperRows, studies: Sequence[FoundStudy]) -> Callable[[Group], bool]:
    asked = {study.name: study.kind for study in studies if study.kind in STUDY_TITLES}

    def belongs(group: Group) -> bool:
        kinds = {asked[name] for outcome in group.outcomes for name in outcome.run.studies if name in asked}
        if not kinds and not rows.taken(group):  # trained by hand: the studies of the package may know it
            kinds = {next((known for known in (CONTROLS, BEYOND, BEST) if _is_shipped(group, known)), OTHERS)}
        # The preset meets all that its study sets it against, whoever trained it.
        return kind in kinds or (kind == BEST and _is_shipped(group, BEST))

    return belongs


def _is_shipped(group: Group, study: str) -> bool:
    about = shipped_study(study)
    return any(
        group.task.name in block.get("tasks", about["tasks"])
        and _has_settings(group, block["algo"], block.get("preset", "paper"), block.get("set", {}))
        for block in about["variant"]
    )


def _has_settings(group: Group, algo: str, preset: str, changes: dict[str, Any]) -> bool:
    return group.algo == algo and group.config == defaults(algo, preset, group.task) | changes


def _is_among(group: Group, others: Iterable[Group]) -> bool:
    return any(group is other for other in others)
