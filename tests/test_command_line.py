"""What a person meets at the command line before anything is trained: help, suggestions, lists,
tables that fit."""

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from report_folders import task, write_run
from rich.console import Console
from test_cli import sentence

from pac4sac.cli.list import LISTED, listed_content
from pac4sac.cli.main import NAMES, Command, main, parse
from pac4sac.report.formats import show_tables
from pac4sac.report.report import compose, main_tables, read_context
from pac4sac.report.tables import Table
from pac4sac.runs.metrics import last_evaluations
from pac4sac.runs.reading import read_runs


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    return capsys.readouterr().out


# --- help


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == shown(capsys, "--help")
    assert shown(capsys, "study") == shown(capsys, "study", "--help")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(NAMES[()]) == len(get_args(Command))
    for before, names in NAMES.items():
        said = shown(capsys, *before, "--help")
        assert all(re.search(rf"• {name} ", said) for name in names)


@pytest.mark.parametrize("command", ["", "certify", "study run"])
def test_help_fits_80_columns_and_breaks_no_word(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {}
    for width in (1000, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        said[width] = shown(capsys, *command.split(), "--help")
    assert max(map(len, said[80].splitlines())) <= 80
    wide, narrow = ({*re.sub("[│╭╰╮╯─•,]|---+", " ", text).split()} for text in said.values())
    assert wide == narrow


@pytest.mark.parametrize("command", ["train", "compare", "certify", "evaluate", "study run"])
def test_each_option_has_its_own_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    said = shown(capsys, *command.split(), "--help")
    texts = re.findall(r"(?m)^[│ ]*--\S.*? {2,}(\S.*?) \(", said)
    assert len(texts) > 3
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "Unknown command 'trian'; did you mean train"),
        (["studdy", "run"], "did you mean study"),
        (["study", "colect"], "Unknown command 'study colect'; did you mean collect"),
        (["xyzzy"], "use one of demo, train, resume,"),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert expected in sentence(capsys)


# --- lists


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--steps", "1e6"], 1_000_000),
        (["--steps", "2_000"], 2000),
        (["--steps", "9007199254740993"], 9007199254740993),  # which no float has
        (["--threads", "auto"], "auto"),
        (["--threads", "2"], 2),
    ],
)
def test_whole_numbers_may_have_exponents_and_separators(
    flags: list[str], expected: object
) -> None:
    assert (
        getattr(parse(["train", "cartpole-swingup", *flags]), flags[0].removeprefix("--"))
        == expected
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--steps", "2.5"], "'2.5' is not a whole number"),
        (["--steps", "inf"], "'inf' is not a whole number"),
        (["--threads", "many"], "'many' is neither auto nor a whole number"),
    ],
)
def test_what_is_not_a_whole_number_is_reported_in_one_line(
    flags: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "cartpole-swingup", *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"pac4sac: {flags[0]}: {expected}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["train", "Pendulum-v1", "--sedes", "3"], ["--sedes", "--seeds"]),
        (["train", "Pendulum-v1", "--baackend", "eager"], ["--baackend", "--backend"]),
        (["train", "Pendulum-v1", "--backend", "eagre"], ["--backend", "'eagre'", "eager"]),
        (["train", "Pendulum-v1", "--seeds"], ["--seeds"]),
        (["compare"], ["needs a task", "list tasks"]),
        (["list", "setings"], ["'setings'", "settings"]),
        (["study", "status", "smoke", "--uot", "x"], ["--uot", "--out"]),
        (["study", "plan", "tabel-1"], ["'tabel-1'", "table-1", "list studies"]),
        (["train", "Pendulum-v1", "--preset", "bset"], ["'bset'", "best"]),
        (["train", "half-cheeta"], ["'half-cheeta'", "half-cheetah"]),
        (["evaluate", "a", "b"], ["'b'"]),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_a_suggestion_before_any_work(
    argv: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pac4sac: ")
    assert printed.err.count("\n") == 1
    assert [name for name in names if name not in printed.err] == []


def test_no_similar_name_is_suggested_for_an_unknown_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "Nonsense-v9"]) == 2
    error = capsys.readouterr().err
    assert "FrozenLake" not in error
    assert "pac4sac list tasks" in error


def test_lists_do_not_import_torch() -> None:
    code = (
        "import sys; from pac4sac.cli.main import main\n"
        "for what in ('algos', 'presets', 'settings', 'studies', 'tasks'): assert "
        "main(['list', what]) == 0\n"
        "assert main(['list', 'settings', '--algo', 'sac']) == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(
        word in done.stdout for word in ("pac4ddpg", "learn_alpha", "table-1", "half-cheetah")
    )


def test_listed_json_matches_the_classes() -> None:
    assert LISTED.read_text(encoding="utf-8") == listed_content(), "run python -m pac4sac.cli.list"


@pytest.mark.parametrize("what", ["tasks", "algos", "presets", "settings", "studies"])
def test_a_list_fits_80_columns_and_breaks_no_word(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    wide = shown(capsys, "list", what)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = shown(capsys, "list", what)
    assert max(map(len, narrow.splitlines())) <= 80
    assert sorted(narrow.replace("─", "").split()) == sorted(wide.replace("─", "").split())


# --- tables


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> list[Table]:
    root = tmp_path_factory.mktemp("comparison")
    for algo, good in (("pac4sac", 700.0), ("sac", 400.0), ("ddpg", 100.0)):
        for seed in range(3):
            write_run(
                root, task("cartpole-swingup"), algo, seed, [good + seed + 5 * k for k in range(40)]
            )
    return main_tables(compose(read_context([root])))


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_comparison_shows_intervals_and_the_final_evaluation_at_every_width(
    width: int, comparison: list[Table]
) -> None:
    out = io.StringIO()
    show_tables(Console(file=out, width=width), comparison)
    said = out.getvalue()
    assert max(map(len, said.splitlines())) <= width
    for word in (
        "IQM",
        "[95",
        "evaluation",
        "deterministic",
        "P(better",
        "(Welch)",
        "baseline",
        "(Mann–Whitney)",
    ):
        assert word in said, word
    assert "…" not in said
    assert "shooting" not in said  # of which nothing is known
    parts = said.count("Variant")
    # each names its rows
    assert said.count("  sac ") == said.count("  ddpg ") == parts == {60: 4, 80: 3, 140: 2}[width]


# --- one word for the policy without noise


def test_older_logs_with_the_policy_name_greedy_are_read(tmp_path: Path) -> None:
    write_run(tmp_path, task("cartpole-swingup"), "sac", 0, [800.0] * 40)
    (log,) = tmp_path.rglob("evaluations.jsonl")
    (run,) = read_runs(tmp_path)
    log.write_text(log.read_text().replace('"deterministic"', '"greedy"'))
    (older,) = read_runs(tmp_path)
    assert [row["policy"] for row in older.evaluations] == ["greedy"]
    assert last_evaluations(older) == last_evaluations(run) == {"deterministic": 800.0}
