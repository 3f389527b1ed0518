"""Phrases that were removed from texts do not return, and docstrings start with a verb.

The style of the project is plain technical English. This list has the phrases that were removed
most often, with what to write instead.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pac4sac.cli.main import NAMES, help_of

ROOT = Path(__file__).parents[1]
PHRASES = {
    r"\b(?:lest|shall|whoever|hence|thus)\b": "so that, must, who, so",
    r"\b(?:is|are) told\b": "is reported, is shown",
    r"\bgo(?:es)? on with\b": "continue, resume",
    r"\bbr(?:oke|oken) off\b": "ended early, failed or diverged",
    r"\bunder way\b": "in progress",
    r"\bso manyth\b|\bevery so many\b": "every N-th",
    r"\bin the mean[,.;]": "on average",
    r"\bwhat came of\b": "the result of",
    r"\bhangs? on\b": "depends on",
    r"\bof (?:yours|one's own|your own)\b": "custom, your",
    r"(?<!there )\b(?:is|are) no (?!longer|more|less|other|such|better|need|one|reason)[a-z]+\b": "is not a",
    r"\bas the (?:paper|original|other) has it\b": "as in the paper",
    r"\bmade-up data\b": "synthetic data",
    r"; nothing if\b": "empty if, '' if",
    r"\banew\b": "again",
    r"\bother code than today's\b|\bby today's code\b": "another version of the code",
    r"\b(?:lies|stands|lie|stand) beside\b": "is next to",
    r"\btruth values?\b": "boolean",
    r"\bmust be a text\b": "must be a string",
    r"\bneed not be\b": "does not need to be",
    r"\bfrom \d on\b(?! the)": "at least, above",
    r"\bwith (?:its|their) like\b|\band its like\b": "and similar",
    r"\bof the best run is taken\b": "the best run is used",
    r"\bWhich (?:task|folders)\? Name\b": "COMMAND needs a task",
    r"\bslow cop(?:y|ies)\b": "target network",
    r"\bthat shoots\b": "with shooting",
}
# Docstrings are sentences in the imperative: these words begin fragments.
FRAGMENTS = frozenset(
    {
        "a",
        "an",
        "the",
        "of",
        "what",
        "how",
        "whether",
        "which",
        "where",
        "when",
        "why",
        "all",
        "each",
        "every",
        "this",
        "these",
        "it",
        "its",
        "in",
        "on",
        "for",
        "with",
        "without",
        "as",
        "at",
        "by",
        "from",
        "to",
        "one",
        "two",
        "several",
        "any",
        "no",
        "not",
        "some",
        "there",
        "settings",
    }
)
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DATA = [path for kind in ("toml", "html") for path in sorted((ROOT / "src").rglob(f"*.{kind}"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def odd_phrases(text: str) -> list[str]:
    """Return the phrases of the list that a text has, each with what to write instead."""
    plain = re.sub(r"\s+", " ", text)
    return [
        f"{found[0]!r}: write {better}"
        for phrase, better in PHRASES.items()
        for found in re.finditer(phrase, plain, re.IGNORECASE)
    ]


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings and the comments of a module, without quotes and breaks of lines."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield " ".join(re.findall(r"(?m)(?:^|  )\s*# (.*)$", source))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The run broke\n    off at once.", True),
        ("There is no task; it is no longer needed.", False),
        ("X is no folder.", True),
        ("Evaluate every N steps.", False),
    ],
)
def test_a_removed_phrase_is_found_across_lines(text: str, found: bool) -> None:
    assert bool(odd_phrases(text)) is found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_module_has_no_removed_phrases(path: Path) -> None:
    assert [odd for text in texts_of(path) for odd in odd_phrases(text)] == []


@pytest.mark.parametrize("path", [*DATA, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_or_data_file_has_no_removed_phrases(path: Path) -> None:
    assert odd_phrases(path.read_text()) == []


@pytest.mark.parametrize(
    "command", [" ".join((*before, name)) for before, names in NAMES.items() for name in names]
)
def test_the_help_of_a_command_has_no_removed_phrases(command: str) -> None:
    assert odd_phrases(help_of(f"pac4sac {command}")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_docstrings_start_with_a_verb_and_end_a_sentence(path: Path) -> None:
    odd = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        if doc := ast.get_docstring(node):
            word, summary = doc.split()[0], doc.split("\n\n")[0]
            third_person = re.fullmatch(r"[A-Z][a-z]+[^s]s", word) and word != "Pass"
            is_fragment = word.lower() in FRAGMENTS or word.endswith(":") or summary[-1] not in ".:"
            if is_fragment or not word[0].isupper() or third_person:
                odd.append(f"{node.name}: {summary}")
    assert odd == []
