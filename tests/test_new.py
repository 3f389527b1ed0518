"""`pac4sac new`: a shipped algorithm copied into a file of the user's."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pac4sac.agents import ALGORITHMS
from pac4sac.cli.main import main
from pac4sac.cli.new import rename


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    known = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - known:
        if module == "my_agent" or module.startswith("copied_"):
            del sys.modules[module]


# One name for each class: sac-auto is the class of sac.
NAMES = {algorithm.agent: name for name, algorithm in reversed(ALGORITHMS.items())}


@pytest.mark.parametrize("algo", sorted(NAMES.values()))
def test_a_copied_agent_passes_the_check(
    algo: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"copied_{algo.replace('-', '_')}"
    class_name = "".join(part.capitalize() for part in module.split("_"))
    assert main(["new", module, "--from", algo]) == 0
    written = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
    classes = [node.name for node in written.body if isinstance(node, ast.ClassDef)]
    assert class_name in classes
    assert ALGORITHMS[algo].agent.__name__ not in classes
    assert f"{module}:{class_name}" in capsys.readouterr().out
    if main(["check", f"{module}:{class_name}"]):
        assert main(["check", algo]) == 1  # the original does not pass it either


def test_a_copied_agent_trains_like_the_original(folder: Path) -> None:
    options = ["Pendulum-v1", "--steps", "220", "--threads", "1", "--device", "cpu", "--set"]
    options += ["warmup=205", "batch=8", "width=8"]
    assert main(["new", "my_agent"]) == 0
    assert main(["train", *options, "--algo", "my_agent:MyAgent", "--out", "copy"]) == 0
    assert main(["train", *options, "--algo", "sac", "--out", "original"]) == 0
    logs = [
        next((folder / name).glob("runs/*/episodes.jsonl")).read_bytes()
        for name in ("copy", "original")
    ]
    assert logs[0] == logs[1]


def test_settings_of_a_name_are_in_the_command_that_trains_the_copy(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "my_agent", "--from", "sac-auto"]) == 0
    assert "--algo my_agent:MyAgent --set learn_alpha=true" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["my-agent"], "my-agent"),
        (["../agent"], "../agent"),
        (["class"], "class"),
        (["__"], "__"),
        (["torch"], "torch"),
        (["sys"], "sys"),
        (["__main__"], "__main__"),
        (["agent"], "Agent"),  # a name that the file uses
        (["my_agent", "--from", "sca"], "sac"),
        (["my_agent", "--from", "my_agent:MyAgent"], "my_agent:MyAgent"),
    ],
)
def test_invalid_input_is_refused_in_a_sentence(
    words: list[str], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not list(folder.iterdir())


def test_no_file_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my_agent.py").write_text("precious")
    (folder / "linked.py").symlink_to(folder / "nowhere")
    assert main(["new", "my_agent"]) == 2
    assert main(["new", "linked"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert (folder / "my_agent.py").read_text() == "precious"
    assert not (folder / "nowhere").exists()


def test_only_identifiers_are_renamed() -> None:
    source = 'class Sac:  # Sac\n    """Sac."""\n    kind: Sac = Sacrifice(Sac)\n'
    renamed = 'class Mine:  # Sac\n    """Sac."""\n    kind: Mine = Sacrifice(Mine)\n'
    assert rename(source, {"Sac": "Mine"}) == renamed
