"""One name, colour and line for each algorithm, in all figures and on all pages."""

from collections import defaultdict

import pytest

from pac4sac.agents import ALGORITHMS
from pac4sac.report.style import COLOURS, DARK, DASHES, KNOWN, MARKERS, assign_styles, plain_name
from pac4sac.studies.definition import load_study
from pac4sac.studies.shipped import SHIPPED_STUDIES


def labels_of(study: str) -> list[str]:
    return list(dict.fromkeys(run.label for run in load_study(study).runs()))


@pytest.mark.parametrize(
    "study",
    sorted(p.stem for p in SHIPPED_STUDIES.glob("*.toml") if not p.stem.startswith("search")),
)
def test_every_variant_of_the_shipped_studies_has_a_plain_name(study: str) -> None:
    for label in labels_of(study):
        assert plain_name(label) != label
        assert not set(plain_name(label)) & set("+_")


@pytest.mark.parametrize(
    "study",
    [
        "table-1",
        "table-2",
        "shooting",
        "controls",
        "beyond",
        "best",
        "overestimation",
        "uncertainty",
        "cost",
    ],
)
def test_no_two_variants_of_a_study_look_alike(study: str) -> None:
    chosen = assign_styles(labels_of(study)).values()
    assert (
        len({(look.place, look.line) for look in chosen})
        == len({look.name for look in chosen})
        == len(chosen)
    )


def test_every_algorithm_is_known_and_looks_the_same_in_any_company() -> None:
    assert set(ALGORITHMS) <= set(KNOWN)
    assert (
        assign_styles(["sac"])["sac"]
        == assign_styles(["mine", "pac4sac", "sac", "sac+shooting"])["sac"]
        == KNOWN["sac"]
    )


def test_an_algorithm_of_the_users_own_has_its_name_and_a_look_that_nobody_else_has() -> None:
    own = ["my_agents:Mine", "my_agents:Other", "third"]
    chosen = assign_styles(["sac", *own, "pac4sac"])
    assert [chosen[label].name for label in own] == own
    assert len({look.place for look in chosen.values()}) == 5
    assert chosen == assign_styles(["pac4sac", *reversed(own), "sac"])  # whatever their order


def test_settings_of_a_sweep_are_told_in_words() -> None:
    assert plain_name("sac-alpha=0.05-updates_per_step=2") == "SAC, α = 0.05, updates per step = 2"
    assert plain_name("pac4sac, lr=1e-05") == "PAC4SAC, lr = 1e-05"
    assert plain_name("sac-auto (by older code)") == "SAC, learned α (by older code)"
    assert plain_name("pac4sac-shots=12") == "PAC4SAC, S = 12"
    assert plain_name("sac-of-mine") == "sac-of-mine"


def test_two_labels_never_share_a_name() -> None:
    chosen = assign_styles(["sac", "SAC", "sac-xi=1", "sac, xi=1"])
    assert len({look.name for look in chosen.values()}) == 4


def test_more_labels_than_looks_are_possible_still_have_one_each() -> None:
    many = [f"variant {k}" for k in range(100)]
    shared = defaultdict(list)
    for label, look in assign_styles(many).items():
        shared[look.place, look.line].append(label)
    assert len(shared) == len(COLOURS) * len(DASHES)


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_colour_is_seen_on_a_white_and_on_a_dark_page() -> None:
    assert len(COLOURS) == len(DARK) == len(MARKERS) == len(set(COLOURS)) == len(set(DARK))
    assert all(1.05 / (luminance(colour) + 0.05) > 2 for colour in COLOURS)
    assert all((luminance(colour) + 0.05) / (luminance("#14181d") + 0.05) > 4 for colour in DARK)
