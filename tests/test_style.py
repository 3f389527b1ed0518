"""One name, colour and line for each algorithm, in all figures and on all pages."""

import re
from collections import defaultdict
from itertools import combinations

import numpy as np
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
        assert not re.search(r"_|\S\+|\+\S", plain_name(label))


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
def test_variants_of_a_study_have_different_styles(study: str) -> None:
    chosen = assign_styles(labels_of(study)).values()
    assert (
        len({(look.place, look.line) for look in chosen})
        == len({look.name for look in chosen})
        == len(chosen)
    )


def test_every_algorithm_has_the_same_style_in_every_figure() -> None:
    assert set(ALGORITHMS) <= set(KNOWN)
    assert (
        assign_styles(["sac"])["sac"]
        == assign_styles(["mine", "pac4sac", "sac", "sac+shooting"])["sac"]
        == KNOWN["sac"]
    )


def test_a_custom_algorithm_keeps_its_name_and_gets_a_free_style() -> None:
    own = ["my_agents:Mine", "my_agents:Other", "third"]
    chosen = assign_styles(["sac", *own, "pac4sac"])
    assert [chosen[label].name for label in own] == own
    assert len({look.place for look in chosen.values()}) == 5
    assert chosen == assign_styles(["pac4sac", *reversed(own), "sac"])  # whatever their order


def test_plain_names_show_the_settings_of_a_sweep() -> None:
    assert (
        plain_name("sac-alpha=0.05-updates_per_step=2")
        == "SAC with α = 0.05 and updates per step = 2"
    )
    assert plain_name("pac4sac, lr=1e-05") == "PAC4SAC with lr = 1e-05"
    assert plain_name("sac-auto (by older code)") == "SAC with learned α (by older code)"
    assert plain_name("pac4sac-shots=12") == "PAC4SAC with S = 12"
    assert plain_name("sac-of-mine") == "sac-of-mine"


def test_two_labels_never_share_a_name() -> None:
    chosen = assign_styles(["sac", "SAC", "sac-xi=1", "sac, xi=1"])
    assert len({look.name for look in chosen.values()}) == 4


def test_more_labels_than_styles_still_get_different_styles() -> None:
    many = [f"variant {k}" for k in range(100)]
    shared = defaultdict(list)
    for label, look in assign_styles(many).items():
        shared[look.place, look.line].append(label)
    assert len(shared) == len(COLOURS) * len(DASHES)


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_colour_is_visible_on_a_white_and_a_dark_page() -> None:
    assert len(COLOURS) == len(DARK) == len(MARKERS) == len(set(COLOURS)) == len(set(DARK))
    assert all(1.05 / (luminance(colour) + 0.05) > 2 for colour in COLOURS)
    assert all((luminance(colour) + 0.05) / (luminance("#14181d") + 0.05) > 4 for colour in DARK)


def lab(colour: str) -> tuple[float, float, float]:
    """Return a colour in CIELAB, with the white of daylight."""
    parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ linear / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return float(116 * f[1] - 16), float(500 * (f[0] - f[1])), float(200 * (f[1] - f[2]))


def difference(first: str, second: str) -> float:
    """Return the CIEDE2000 difference of two colours; 2 is just noticeable side by side."""
    (l1, a1, b1), (l2, a2, b2) = lab(first), lab(second)
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1 + 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25**7)))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    hue = (h1 + h2) / 2 + (180 if abs(h1 - h2) > 180 else 0)
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    waves = ((0.17, 1, -30), (-0.24, 2, 0), (-0.32, 3, 6), (0.2, 4, -63))
    t = 1 - sum(size * np.cos(np.radians(n * hue + shift)) for size, n, shift in waves)
    s_l = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rotated = np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    r = -2 * np.sqrt(chroma**7 / (chroma**7 + 25**7)) * rotated
    x, y = (l2 - l1) / s_l, (c2 - c1) / s_c
    z = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / s_h
    return float(np.sqrt(x**2 + y**2 + z**2 + r * y * z))


def test_the_measure_of_colour_difference_gives_a_published_value() -> None:
    assert difference("#000000", "#ffffff") == pytest.approx(100, abs=0.1)
    assert difference("#0000ff", "#ff0000") == pytest.approx(52.88, abs=0.1)


@pytest.mark.parametrize("palette", [COLOURS, DARK])
def test_any_two_colours_differ_clearly(palette: tuple[str, ...]) -> None:
    assert len(palette) == 12
    assert min(difference(a, b) for a, b in combinations(palette, 2)) > 20


@pytest.mark.parametrize(
    "labels",
    [
        list(KNOWN)[:12],
        list(KNOWN)[-12:],
        ["sac", "sac+shooting", "sac-auto", "sac-auto+shooting", "bootstrapped-sac", "droq", "oac"],
        [f"my_agents:Agent{k}" for k in range(12)],
        ["pac4sac", "sac", "tqc", "pbac", *(f"my_agents:Agent{k}" for k in range(8))],
    ],
)
def test_up_to_twelve_algorithms_have_a_colour_and_a_marker_each(labels: list[str]) -> None:
    chosen = assign_styles(labels).values()
    assert len({look.colour for look in chosen}) == len(labels)
    assert len({look.marker for look in chosen}) == len(labels)  # also without colours
