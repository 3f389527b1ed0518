"""The report in a real browser: answers first, tables that fit, curves that respond, and nothing
fetched. Run by make test-browser."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from report_folders import write_everything

from pac4sac.paper.report import write_report
from pac4sac.runs.metrics import score

pytestmark = pytest.mark.browser
webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is missing: pip install --group browser"
)

# Width, height, and screens that answers may take.
SCREENS = {"desktop": (1400, 900, 1), "laptop": (1280, 800, 2), "telephone": (390, 844, 2)}
SCORES = """return [...document.querySelectorAll("#scores tbody tr")].map(row => [...row.cells].map(c => c.dataset.value))"""
PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "report.html"
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("browser")
    write_everything(folder / "runs-of-all-kinds")
    film = next((folder / "runs-of-all-kinds").rglob("pac4sac-seed0")) / "episode.gif"
    film.write_bytes(b"GIF89a")
    return write_report([folder / "runs-of-all-kinds"], folder / "report")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options)
    yield started
    started.quit()


@pytest.fixture
def browser(driver: Any, report: Any) -> Any:
    """A page as it is when it is opened."""
    show_on(driver, "desktop")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    driver.get(report.page.as_uri())
    driver.execute_script("sessionStorage.clear(); location.hash = ''")
    driver.refresh()
    return driver


def show_on(browser: Any, screen: str) -> None:
    width, height, _ = SCREENS[screen]
    metrics = {
        "width": width,
        "height": height,
        "deviceScaleFactor": 1,
        "mobile": screen == "telephone",
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def wait_two_frames(browser: Any) -> None:
    """Two frames: one to notice a new width, one to have folded what it has no room for."""
    browser.execute_async_script(
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 50)))"
    )


def column(browser: Any, table: str, place: int) -> list[str]:
    script = """
        const rows = document.querySelectorAll(`#${arguments[0]} tbody tr`);
        return [...rows].filter(row => !row.hidden).map(row => row.cells[arguments[1]].dataset.value);
    """
    return list(browser.execute_script(script, table, place))


def sort_by(browser: Any, table: str, place: int) -> str:
    script = """
        const heads = document.querySelectorAll(`#${arguments[0]} thead th`);
        heads[arguments[1]].querySelector("button").click();
        return heads[arguments[1]].getAttribute("aria-sort");
    """
    return str(browser.execute_script(script, table, place))


def choose(browser: Any, name: str, value: str) -> None:
    script = """
        const control = document.querySelector(`#curves [name=${arguments[0]}]`);
        control.value = arguments[1];
        control.dispatchEvent(new Event(control.tagName === "SELECT" ? "change" : "input"));
    """
    browser.execute_script(script, name, value)


def mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else float("nan")


class TestThePage:
    def test_loads_without_errors_or_requests(self, browser: Any) -> None:
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
        assert (
            browser.execute_script(
                "return performance.getEntriesByType('resource').map(r => r.name)"
            )
            == []
        )

    @pytest.mark.parametrize("screen", SCREENS)
    def test_answers_every_question_on_the_first_screen(self, browser: Any, screen: str) -> None:
        show_on(browser, screen)
        wait_two_frames(browser)
        script = """return [...document.querySelectorAll(".answers li, #summary table, #summary figure")]
            .map(one => one.getBoundingClientRect().bottom + scrollY)"""
        ends = browser.execute_script(script)
        _, height, screens = SCREENS[screen]
        assert len(ends) > 5
        assert max(ends) <= height * screens

    @pytest.mark.parametrize("screen", SCREENS)
    def test_has_no_overflowing_table(self, browser: Any, screen: str) -> None:
        show_on(browser, screen)
        browser.execute_script(OPEN_ALL)
        wait_two_frames(browser)
        wide = """return [...document.querySelectorAll("table")]
            .filter(table => table.offsetWidth > table.parentElement.clientWidth).map(table => table.id)"""
        assert browser.execute_script("return document.querySelectorAll('table').length") > 15
        assert browser.execute_script(wide) == []
        assert (
            browser.execute_script("return document.documentElement.scrollWidth")
            <= SCREENS[screen][0]
        )

    @pytest.mark.skipif(not PUBLISHED.is_file(), reason="make report writes the page")
    def test_shows_the_verdicts_on_all_four_tasks_on_a_laptop(self, browser: Any) -> None:
        show_on(browser, "laptop")
        browser.get(PUBLISHED.as_uri())
        wait_two_frames(browser)
        script = """return [...document.querySelectorAll("#summary thead th")]
            .filter(head => head.offsetWidth).map(head => head.innerText)"""
        heads = browser.execute_script(script)
        assert [head.split()[0] for head in heads] == [
            "Claim",
            "Cartpole",
            "Half",
            "Ant",
            "Humanoid",
        ]

    def test_shows_verdicts_on_a_phone_and_other_columns_in_row_details(self, browser: Any) -> None:
        show_on(browser, "telephone")
        browser.execute_script(OPEN_ALL)
        wait_two_frames(browser)
        script = """
            const row = document.querySelector("#table-task-cartpole-swingup tbody tr");
            row.querySelector("button.more").click();
            return [row.cells[1].hidden, row.cells[1].innerText, row.nextElementSibling.innerText];
        """
        hidden, verdict, detail = browser.execute_script(script)
        assert (hidden, verdict) == (False, "better")
        assert "Repeat with" in detail
        assert "pac4sac train cartpole-swingup --algo pac4sac --seeds 0:5" in detail

    def test_follows_the_theme_of_the_system_and_the_button(self, browser: Any) -> None:
        def background() -> str:
            return str(
                browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            )

        for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            assert background() == colour
        browser.find_element("id", "theme").click()
        assert background() == "rgb(255, 255, 255)"

    def test_opens_a_section_linked_from_an_answer(self, browser: Any) -> None:
        browser.execute_script("document.querySelector('.answers a[href=\"#table-1\"]').click()")
        wait_two_frames(browser)
        assert browser.execute_script("return document.querySelector('#table-1 > details').open")

    def test_opens_collapsed_sections_for_print(self, browser: Any) -> None:
        count = "return document.querySelectorAll('details[open]').length"
        assert browser.execute_script(count) == 0
        browser.execute_script("dispatchEvent(new Event('beforeprint'))")
        everything = browser.execute_script("return document.querySelectorAll('details').length")
        assert browser.execute_script(count) == everything


class TestTables:
    TABLE = "table-task-cartpole-swingup"

    def test_sort_by_number_in_both_directions(self, browser: Any) -> None:
        def numbers() -> list[float]:
            return [float(value) for value in column(browser, self.TABLE, 2) if value]

        before = numbers()
        assert before != sorted(before)
        assert sort_by(browser, self.TABLE, 2) == "ascending"
        assert numbers() == sorted(before)
        assert sort_by(browser, self.TABLE, 2) == "descending"
        assert numbers() == sorted(before)[::-1]

    def test_sort_names_alphabetically_and_keep_rows_together(self, browser: Any) -> None:
        pairs = set(
            zip(column(browser, self.TABLE, 0), column(browser, self.TABLE, 2), strict=True)
        )
        sort_by(browser, self.TABLE, 0)
        names = column(browser, self.TABLE, 0)
        assert names.index("pac4sac-shots=200") < names.index("pac4sac-shots=1000")
        assert set(zip(names, column(browser, self.TABLE, 2), strict=True)) == pairs

    def test_keep_missing_values_last_in_both_directions(self, browser: Any) -> None:
        p_values = 7
        for _ in range(2):
            sort_by(browser, self.TABLE, p_values)
            values = column(browser, self.TABLE, p_values)
            assert "" in values
            assert set(values[values.index("") :]) == {""}

    def test_show_the_rows_that_match_a_filter(self, browser: Any) -> None:
        script = """
            const filter = document.querySelector(`#${arguments[0]}`).parentElement.previousElementSibling;
            filter.value = "ONE PLAIN CRITIC";
            filter.dispatchEvent(new Event("input"));
        """
        assert len(column(browser, self.TABLE, 0)) > 8
        browser.execute_script(script, self.TABLE)
        assert column(browser, self.TABLE, 0) == ["one-plain-critic", "one-plain-critic+shooting"]


class TestCurves:
    @pytest.mark.parametrize("part", [1.0, 0.9, 1.06])
    def test_compute_solved_and_regret_like_python_for_any_threshold(
        self, browser: Any, report: Any, part: float
    ) -> None:
        for task in report.context.variants:
            choose(browser, "task", task)
            known = report.context.variants[task]
            about = known[0].task
            limit = about.r_limit * part
            if part != 1.0:
                choose(browser, "limit", str(limit))
            rows = {row[0]: row[1:] for row in browser.execute_script(SCORES)}
            assert len(rows) > 3
            for variant in (variant for variant in known if variant.style.name in rows):
                solved, until, regret = (
                    float(value or "nan") for value in rows[variant.style.name]
                )
                scores = [score(run.returns, limit, about.e_max) for run in variant.runs]
                complete = [one for one in scores if one.complete]
                broken = zip(variant.runs, scores, strict=True)
                if any(
                    not one.complete and run.status != "diverged" and run.episodes
                    for run, one in broken
                ):
                    complete = []  # there is no mean while runs are under way
                assert solved == sum(one.solved for one in scores)
                assert until == pytest.approx(mean(one.episodes for one in complete), nan_ok=True)
                assert regret == pytest.approx(
                    mean(one.regret for one in complete), rel=2e-4, nan_ok=True
                )
                if part == 1.0:
                    assert until == pytest.approx(mean(variant.values("episodes")), nan_ok=True)

    def test_show_the_run_under_the_pointer(self, browser: Any, report: Any) -> None:
        plot = browser.find_element("css selector", "#curves .u-over")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
        script = """
            const [plot, x, y] = arguments, box = plot.getBoundingClientRect();
            const at = {clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true};
            plot.dispatchEvent(new MouseEvent("mouseenter", at));
            plot.dispatchEvent(new MouseEvent("mousemove", at));
        """
        for height in (0.2, 0.4, 0.6, 0.8):
            browser.execute_script(script, plot, 0.5, height)
            wait_two_frames(browser)
            if told := browser.find_element("css selector", "#curves .hover").text:
                break
        name, seed, episode, value = (
            told.split(" seed ")[0],
            *(
                part.split()[0].rstrip(",:")
                for part in (
                    told.split(" seed ")[1],
                    told.split(" episode ")[1],
                    told.split(" return ")[1],
                )
            ),
        )
        (variant,) = [
            v for v in report.context.variants["cartpole-swingup"] if v.style.name == name
        ]
        runs = {run.seed: run for run in variant.runs}
        assert runs[int(seed)].returns[int(episode)] == pytest.approx(float(value), abs=0.1)
        assert f"{variant.label}-seed{seed}" in told

    def test_can_be_toggled_in_the_legend(self, browser: Any) -> None:
        before = [row[0] for row in browser.execute_script(SCORES)]
        picture = "return document.querySelector('#curves canvas').toDataURL().length"
        drawn = browser.execute_script(picture)
        browser.execute_script("document.querySelector('#curves .legend button').click()")
        assert [row[0] for row in browser.execute_script(SCORES)] == before[1:]
        wait_two_frames(browser)
        assert browser.execute_script(picture) != drawn

    @pytest.mark.parametrize(("name", "value"), [("smoothing", "raw"), ("middle", "iqm")])
    def test_change_with_smoothing_and_highlighting(
        self, browser: Any, name: str, value: str
    ) -> None:
        picture = "return document.querySelector('#curves canvas').toDataURL()"
        choose(browser, "task", "half-cheetah")  # which has episodes enough to be smoothed
        wait_two_frames(browser)
        drawn = browser.execute_script(picture)
        choose(browser, name, value)
        wait_two_frames(browser)
        assert browser.execute_script(picture) != drawn

    def test_link_to_the_video_of_a_run(self, browser: Any) -> None:
        script = """
            for (const more of document.querySelectorAll("#scores button.more")) more.click();
            return [...document.querySelectorAll("#scores a.film")].map(film => film.getAttribute("href"));
        """
        (film,) = browser.execute_script(script)
        assert film.startswith("./../runs-of-all-kinds/")
        assert film.endswith("/pac4sac-seed0/episode.gif")
