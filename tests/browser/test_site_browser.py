"""The docs site in a real browser, read from the disk and from a server: links, search, equations,
and nothing fetched from elsewhere. Run by make test-browser."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.browser
webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is missing: pip install --group browser"
)
pytest.importorskip("mkdocs", reason="mkdocs is missing: pip install --group docs")
ROOT = Path(__file__).parents[2]
MADE_BY_REPORTS = "results/report.html"  # a page for itself, tested in test_report_browser.py


class Page(HTMLParser):
    """Where a page leads, and the places in it that links may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.text = path.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.anchors.add(about.get("id") or "")
        self.links += [target for name in ("href", "src") if (target := about.get(name))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path != site / MADE_BY_REPORTS}


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    driver.implicitly_wait(20)
    yield driver
    driver.quit()


@pytest.fixture(params=["from the disk", "from a server"])
def home(request: pytest.FixtureRequest, site: Path) -> str:
    return (
        site.as_uri()
        if request.param == "from the disk"
        else str(request.getfixturevalue("served"))
    )


def test_every_link_has_a_target(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            target, _, anchor = unquote(link).partition("#")
            reached = (path.parent / target).resolve() if target else path
            if not reached.is_relative_to(site) or not reached.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif reached in pages and anchor not in pages[reached].anchors:
                broken.append(f"{path.relative_to(site)}: {link}, a place that is not there")
    assert broken == []


def test_no_external_requests_and_no_errors(browser: Any, home: str) -> None:
    for name in ("index.html", "algorithms/pac4sac.html", "first-steps.html"):
        browser.get(f"{home}/{name}")
        fetched = browser.execute_script(
            "return performance.getEntriesByType('resource').map(r => r.name)"
        )
        assert [place for place in fetched if not place.startswith((home, "data:"))] == []
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [entry for entry in severe if "favicon" not in entry["message"]] == []


def test_search_finds_the_command_and_the_function_of_a_name(browser: Any, home: str) -> None:
    browser.get(f"{home}/index.html")
    browser.execute_script("document.querySelector('label[for=__search]').click()")
    browser.find_element("css selector", "input.md-search__input").send_keys("resume")
    # waits until there are some
    found = browser.find_elements("css selector", "a.md-search-result__link")
    places = {
        re.sub(r"\?[^#]*", "", link.get_attribute("href")).removeprefix(f"{home}/")
        for link in found
    }
    assert {"api.html#pac4sac.resume", "command-line.html#resume"} <= places


def test_equations_are_rendered(browser: Any, site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert "arithmatex" not in page.text, path
        # a command that the converter does not know
        assert not re.search(r"<m[iot][^>]*>\\", page.text), path
    algorithms = sorted((site / "algorithms").glob("*.html"))
    assert len(algorithms) > 5
    for path in algorithms:
        browser.get(path.as_uri())
        # waits until there are some
        equations = browser.find_elements("css selector", "math[display=block]")
        assert equations, path
        assert all(16 < equation.size["height"] < 200 for equation in equations), path
    browser.get((site / "algorithms/pac4sac.html").as_uri())
    root = browser.find_element("css selector", "math[display=block] msqrt")
    assert root.size["height"] > 20  # it stretches over the fraction below it


def test_the_reference_shows_signatures_and_docstrings(browser: Any, site: Path) -> None:
    browser.get((site / "api.html").as_uri() + "#pac4sac.train")
    text = browser.find_element("css selector", "article").text
    assert "Train an algorithm on a task with all seeds in lockstep." in text
    assert "seeds: int | str | Iterable[int]" in text


def test_the_notebook_is_shown_with_its_output(browser: Any, site: Path) -> None:
    browser.get((site / "first-steps.html").as_uri())
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('article img')].map(i => i.naturalWidth)"
    )
    assert len(sizes) == 4
    assert min(sizes) > 300
