"""The docs say all that is public, and the site shows all of the docs. What a browser makes of
them: tests/browser."""

import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import pac4sac
from pac4sac.agents import ALGORITHMS, api
from pac4sac.agents.settings import AgentConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from findings import PAGES as FINDINGS
from findings import TABLES, with_tables

ROOT = Path(__file__).parents[1]
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (pac4sac, api)
    for name in module.__all__
}
PAGES = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def navigation() -> set[str]:
    return set(
        re.findall(
            r"[\w/.-]+\.md$", (ROOT / "mkdocs.yml").read_text().split("nav:")[-1], re.MULTILINE
        )
    )


def test_every_page_except_those_of_the_report_is_in_the_navigation():
    shown = {
        page for page in PAGES if not page.startswith("results/") or page == "results/README.md"
    }
    made = {  # from the README, a notebook and files outside docs/
        "index.md",
        "first-steps.md",
        "repository/CHANGELOG.md",
        "repository/CONTRIBUTING.md",
    }
    assert navigation() == shown | made


def test_every_number_in_the_readmes_table_of_findings_is_one_of_the_report():
    rows = (
        (ROOT / "README.md")
        .read_text()
        .split("## Is PAC4SAC better than SAC?")[1]
        .split("\n\n")[3]
        .splitlines()
    )
    report = "".join(
        (ROOT / "docs" / "results" / page).read_text() for page in ("table-1.md", "controls.md")
    )
    numbers = [number for row in rows for number in re.findall(r"[\d.,]+ ± [\d.]+", row)]
    assert len(numbers) == 4 * 9
    assert [number for number in numbers if number not in report] == []


def test_the_tables_in_the_findings_are_those_of_the_report():
    pages = [page.read_text() for page in FINDINGS]
    assert [name for name in TABLES if f"<!-- {name}: " not in "".join(pages)] == []
    assert [with_tables(page, ROOT / "docs" / "results") for page in pages] == pages


def test_every_interval_in_the_findings_is_one_of_the_report_or_of_the_appendix_that_its_paragraph_links_to():
    report = "".join(page.read_text() for page in (ROOT / "docs" / "results").glob("*.md"))
    appendix = (ROOT / "docs" / "findings-appendix.md").read_text()
    paragraphs = (ROOT / "docs" / "findings.md").read_text().split("\n\n")
    intervals = {
        text: re.findall(r"−?\d[\d.]* (?:± [\d.]*\d|\[[−\d][^]]+\])", text) for text in paragraphs
    }
    assert sum(map(len, intervals.values())) > 50
    for text, numbers in intervals.items():
        source = report + appendix if "findings-appendix.md#" in text else report
        assert [number for number in numbers if number not in source] == []


def test_every_file_that_the_readme_links_to_is_there():
    links = re.findall(r'(?:\]\(|src=")([^)"#:]+)[)"#]', (ROOT / "README.md").read_text())
    assert len(links) > 25
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference_with_a_docstring(name):
    reference = (ROOT / "docs" / "api.md").read_text().splitlines()
    # what is public under two names stands there under the short one
    short = f"pac4sac.{name.rsplit('.', 1)[-1]}"
    assert f"::: {name}" in reference or f"::: {short}" in reference
    if inspect.isclass(PUBLIC[name]) or inspect.isroutine(PUBLIC[name]):
        words = (
            vars(PUBLIC[name]).get("__doc__")
            if inspect.isclass(PUBLIC[name])
            else PUBLIC[name].__doc__
        )
        assert words
        # as a dataclass would write it
        assert not words.startswith(f"{short.removeprefix('pac4sac.')}(")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_has_a_page_with_what_it_logs_and_all_its_settings_there_or_one_link_away(
    algo,
):
    (page,) = [
        page for page in (ROOT / "docs" / "algorithms").glob("*.md") if algo in names_on(page)
    ]
    text = page.read_text()
    agent = ALGORITHMS[algo].agent
    logged = agent([agent.Config()], 3, 1).metric_names
    assert [name for name in logged if f"`{name}`" not in text] == []
    near = text + "".join(
        (page.parent / name).read_text() for name in set(re.findall(r"\]\((\w+\.md)", text))
    )
    inherited = {field.name for field in fields(AgentConfig)}
    assert [
        f.name
        for f in fields(agent.Config)
        if f.name not in inherited and f"`{f.name}`" not in near
    ] == []


def names_on(page: Path) -> list[str]:
    """Return the names in the sentence that says how to select the algorithms of a page."""
    sentence = re.search(r"Select\s+\w+\s+with\s+(`--algo.*?)\.\s", page.read_text(), re.DOTALL)
    return re.findall(r"`(?:--algo\s+)?([\w-]+)`", sentence[1]) if sentence else []
