"""The pages about the code name files that exist, and docs/files.md is up to date."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import file_table

ROOT = Path(__file__).parents[1]
PATH = re.compile(r"`((?:\w+/)+(?:[\w-]+\.(?:py|toml|md|txt|css|js|json|ipynb))?)`")


def test_the_page_is_up_to_date():
    assert file_table.PAGE.read_text() == file_table.page(), "run make docs-files"


def test_a_row_has_the_first_sentence_and_the_public_names(tmp_path: Path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").touch()
    (tmp_path / "agents" / "new.py").write_text(
        '"""Train run|runs by New\nlearning (A et al. 2026). Slowly."""\n'
        "class New: ...\ndef _hidden(): ...\ndef learn(): ...\n"
    )
    (tmp_path / "agents" / "new.toml").write_text("# Numbers of New\n# learning.\n\n[numbers]\n")
    assert file_table.page(tmp_path).split("## agents/")[1].split("\n")[4:-1] == [
        r"| `new.py` | Train run\|runs by New learning (A et al. 2026) | `New`, `learn` |",
        "| `new.toml` | Numbers of New learning |  |",
    ]


def test_a_module_without_a_docstring_is_refused(tmp_path: Path):
    (tmp_path / "silent.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"silent\.py has no docstring"):
        file_table.page(tmp_path)


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_and_folder_that_a_page_names_exists(page: str):
    named = PATH.findall((ROOT / page).read_text())
    assert len(named) > 10
    roots = (ROOT / "src" / "pac4sac", ROOT)
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []
