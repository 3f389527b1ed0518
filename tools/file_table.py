"""Write docs/files.md, the table of all modules and data files: python tools/file_table.py

The text of a row is the first sentence of a module's docstring, or of the comment at the top of a
data file. Empty files and the studies in paper/studies have no row.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "pac4sac"
PAGE = ROOT / "docs" / "files.md"
INTRODUCTION = """# Files

This page lists all Python and TOML files of `src/pac4sac`, except the studies. For each file, it
shows the first sentence of the description and the public names that the file defines.
[Architecture](architecture.md) explains how the packages fit together. `make docs-files` generates
this page.
"""


def page(package: Path = PACKAGE) -> str:
    """Return the text of docs/files.md."""
    folders = sorted({path.parent for path in described_files(package)})
    return "\n".join([INTRODUCTION, *(section(folder, package) for folder in folders)])


def section(folder: Path, package: Path) -> str:
    """Return the heading and the table of one folder."""
    heading = "pac4sac" if folder == package else f"{folder.relative_to(package).as_posix()}/"
    rows = [
        f"| `{path.name}` | {in_cell(first_sentence(path))} | {names(path)} |"
        for path in described_files(package)
        if path.parent == folder
    ]
    return "\n".join([f"## {heading}\n", "| file | contents | names |", "|---|---|---|", *rows, ""])


def described_files(package: Path) -> Iterator[Path]:
    """Yield the files that have a row, in order."""
    for path in sorted(package.rglob("*")):
        is_study = path.parent.name == "studies" and path.parent.parent.name == "paper"
        if path.suffix in (".py", ".toml") and not is_study and path.read_text().strip():
            yield path


def first_sentence(path: Path) -> str:
    """Return the first sentence about a file, without its full stop.

    Raises:
        ValueError: The file does not describe itself.
    """
    text = docstring(path) if path.suffix == ".py" else opening_comment(path)
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<!et al)\.(?= |$)", paragraph)[0]
    if not sentence:
        raise ValueError(f"{path} has no docstring or opening comment.")
    return sentence


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def opening_comment(path: Path) -> str:
    lines = path.read_text().splitlines()
    end = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "\n".join(line.lstrip("# ") for line in lines[:end])


def names(path: Path) -> str:
    """Return the public classes and functions that a module defines."""
    if path.suffix != ".py":
        return ""
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    public = [
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, definitions) and not node.name.startswith("_")
    ]
    return ", ".join(f"`{name}`" for name in public)


def in_cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page())
