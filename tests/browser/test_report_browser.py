"""The report in a real browser: tables, figures, sorting, the theme, and nothing fetched. Run by make test-browser."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from report_folders import write_everything

from pac4sac.paper.report import write_report

pytestmark = pytest.mark.browser
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing: install pac4sac[browser]")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    write_everything(folder / "runs-of-all-kinds")
    return write_report([folder / "runs-of-all-kinds"], folder / "report").page


@pytest.fixture
def browser(page_file: Path) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    try:
        driver.get(page_file.as_uri())
        yield driver
    finally:
        driver.quit()


def column(browser: Any, table: str, place: int) -> list[str]:
    script = """
        const rows = document.querySelectorAll(`#${arguments[0]} tbody tr`);
        return [...rows].map(row => row.cells[arguments[1]].dataset.value);
    """
    return list(browser.execute_script(script, table, place))


def sort_by(browser: Any, table: str, place: int) -> str:
    script = """
        const heads = document.querySelectorAll(`#${arguments[0]} thead tr:last-child th`);
        heads[arguments[1]].querySelector("button").click();
        return heads[arguments[1]].getAttribute("aria-sort");
    """
    return str(browser.execute_script(script, table, place))


def test_the_page_loads_without_errors_and_fetches_nothing(browser: Any) -> None:
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)") == []


def test_every_table_and_figure_is_seen(browser: Any) -> None:
    shown = browser.execute_script(
        "document.querySelectorAll('details').forEach(d => d.open = true);"
        "return [...document.querySelectorAll('table, figure svg')].map(e => {"
        "  const box = e.getBoundingClientRect(); return [e.tagName, box.width, box.height]; })"
    )
    assert sum(tag == "TABLE" for tag, _, _ in shown) > 15
    assert sum(tag == "svg" for tag, _, _ in shown) > 8
    assert all(width > 300 and height > 60 for tag, width, height in shown if tag == "svg")
    assert all(width > 100 and height > 30 for tag, width, height in shown if tag == "TABLE")


def test_a_figure_draws_its_curves_in_colours_of_the_theme(browser: Any) -> None:
    script = """
        const lines = document.querySelectorAll("#figure-learning-cartpole-swingup svg path");
        const colours = new Set([...lines].map(line => getComputedStyle(line).stroke));
        return [lines.length, [...colours]];
    """
    count, light = browser.execute_script(script)
    assert count > 20
    browser.find_element("id", "theme").click()
    assert set(browser.execute_script(script)[1]) != set(light)


def test_clicking_a_head_sorts_by_number_and_again_turns_it_round(browser: Any) -> None:
    table = "table-task-cartpole-swingup"

    def numbers() -> list[float]:
        return [float(value) for value in column(browser, table, 2) if value]

    before = numbers()
    assert before != sorted(before)
    assert sort_by(browser, table, 2) == "ascending"
    assert numbers() == sorted(before)
    assert sort_by(browser, table, 2) == "descending"
    assert numbers() == sorted(before)[::-1]


def test_names_sort_as_words_and_rows_stay_whole(browser: Any) -> None:
    table = "table-task-cartpole-swingup"
    pairs = set(zip(column(browser, table, 0), column(browser, table, 2), strict=True))
    sort_by(browser, table, 0)
    names = column(browser, table, 0)
    assert names.index("pac4sac-shots=200") < names.index("pac4sac-shots=1000")
    assert set(zip(names, column(browser, table, 2), strict=True)) == pairs


def test_what_is_missing_stays_last_in_either_direction(browser: Any) -> None:
    p_values = 9
    for _ in range(2):
        sort_by(browser, "table-task-cartpole-swingup", p_values)
        values = column(browser, "table-task-cartpole-swingup", p_values)
        assert "" in values
        assert "" not in values[: values.index("")]
        assert set(values[values.index("") :]) == {""}


def test_the_theme_follows_the_system_and_the_button(browser: Any) -> None:
    def background() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        assert background() == colour
    browser.find_element("id", "theme").click()
    assert background() == "rgb(255, 255, 255)"


def test_the_page_is_not_wider_than_a_telephone(browser: Any) -> None:
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390


def test_print_opens_what_is_folded(browser: Any) -> None:
    count = "return document.querySelectorAll('details[open]').length"
    assert browser.execute_script(count) == 0
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(count) == browser.execute_script("return document.querySelectorAll('details').length")
