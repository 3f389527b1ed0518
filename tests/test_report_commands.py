"""Commands that a report gives: run as they stand, they train what they stand beside; and names
that mean harm."""

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from report_folders import own_task, task, write_run, write_study
from test_report import rows_of, variants_of
from tiny_experiments import DRIFT, OPTIONS, SETTINGS, train

from pac4sac import Task
from pac4sac.base.trust import TRUSTED
from pac4sac.cli.main import main
from pac4sac.paper.report import write_report
from pac4sac.report.commands import train_command
from pac4sac.report.formats import to_csv, to_latex, to_markdown
from pac4sac.report.tables import Table, command, words
from pac4sac.runs.reading import read_runs

QUICK = ["--backend", "eager", "--workers", "0", "--threads", "1"]
PENDULUM = Task("Pendulum-v1", "Pendulum-v1", 20, -1234.5)


@pytest.mark.parametrize(
    "trained",
    [
        {"task": PENDULUM, "settings": {"lr": 0.00012345678912}},
        {
            "task": Task("a moon's pendulum", "Pendulum-v1", 25, -9000, env_kwargs={"g": 1.6}),
            "seeds": (3, 7),
        },
        {
            "task": DRIFT,
            "algo": "training_agents:Fragile",
            "settings": {"breaks_at": 999, "learn_alpha": True},
        },
        {
            "task": DRIFT,
            "algo": "pac4sac",
            "settings": {"xi": 1 / 3},
            "bias_every": 40,
            "evaluation_episodes": 1,
        },
        {"task": Task("Pendulum-v1", "Pendulum-v1", 5, -1e6), "stop_when_solved": True},
        {
            "task": Task("Pendulum-v1", "Pendulum-v1", 20, -1234.5, updates_per_step=2),
            "algo": "sac",
            "preset": "reproduction",
            "settings": {"width": 16, "warmup": 60},
        },
    ],
    ids=["settings", "task", "own algorithm", "measurements", "solved", "updates of the task"],
)
def test_a_command_of_a_report_trains_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: dict[str, Any]
):
    train(tmp_path / "in", steps=90, **trained)
    write_report([tmp_path / "in"], tmp_path / "out")
    (row,) = rows_of(tmp_path / "out/tables/settings.csv")
    block = re.search(r"```sh\n# .*\n(.*)\n```", (tmp_path / "out/report.md").read_text())
    assert block is not None
    assert block[1] == row["command"]
    program, *arguments = shlex.split(row["command"])
    assert program == "pac4sac"
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--out", "again", *QUICK]) == 0
    ours, again = read_runs(tmp_path / "in"), read_runs(tmp_path / "again")
    assert [run.identity for run in again] == [run.identity for run in ours]
    for one, other in zip(ours, again, strict=True):
        assert (one.episodes, one.evaluations[-1:], one.bias) == (
            other.episodes,
            other.evaluations[-1:],
            other.bias,
        )


@pytest.mark.parametrize(
    ("measured", "every"),
    [
        ([100, 200, 300], 100),
        ([100, 200, 250], 100),
        ([300, 400, 500, 600], 100),  # the first measurements were not possible
        ([60, 100], 60),  # extended once
        ([60, 200], None),
        ([60, 90, 200], None),  # extended twice
    ],
)
def test_a_command_has_the_interval_of_evaluations_if_there_is_one(
    tmp_path: Path, measured: list[int], every: int | None
) -> None:
    run = write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
    rows = [{"step": s, "policy": "deterministic", "mean": 1.0, "returns": [1.0]} for s in measured]
    (run / "evaluations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    spoken = shlex.split(train_command(read_runs(tmp_path / "in"), "0"))
    assert ("--evaluate-every" in spoken) == (every is not None)
    if every is not None:
        assert spoken[spoken.index("--evaluate-every") + 1] == str(every)


def test_a_command_has_the_interval_of_bias_measurements_that_ended_early(tmp_path: Path):
    run = write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
    (run / "bias.jsonl").write_text("".join(f'{{"step": {s}}}\n' for s in (5000, 10_000, 30_000)))
    assert "--bias-every 5000" in train_command(read_runs(tmp_path / "in"), "0")


@pytest.mark.parametrize(
    "name", ["a pendulum; touch harm", "-x", "$(touch harm)", "new\nline", "it's `one`"]
)
def test_a_name_is_quoted_for_the_shell(tmp_path: Path, name: str):
    write_run(tmp_path / "in", own_task(name, env_id="Pendulum-v1"), "sac", 0, label="x")
    spoken = shlex.split(variants_of(tmp_path / "in")["x"].command)
    assert spoken[:3] == ["pac4sac", "train", "Pendulum-v1"]
    assert (
        len(spoken)
        == len(["pac4sac", "train", "ID", "--algo", "sac", "--seeds", "0", "--steps", "4000"]) + 4
    )


def test_missing_runs_are_listed_with_complete_commands(tmp_path: Path):
    begun = tmp_path / "in" / "two words"
    train(begun, steps=30, max_minutes=1e-9)
    for seed in (0, 1):
        (begun / "runs" / f"sac-seed{seed}" / "run.json").unlink()
    write_study(
        tmp_path / "in" / "s",
        "my study",
        "comparison",
        None,
        [{"task": "a b", "label": "x", "seed": 0}],
    )
    write_report([tmp_path / "in"], tmp_path / "out")
    assert {row["Train with"] for row in rows_of(tmp_path / "out/tables/missing-runs.csv")} == {
        "pac4sac resume 'in/two words'",
        "pac4sac study run 'my study' --tasks 'a b' --seeds 0",
    }


def test_a_custom_study_is_continued_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my tiny.toml").write_text(
        'tasks = ["Pendulum-v1"]\nseeds = "0"\n[task.Pendulum-v1]\nsteps = 40\n'
        f"[options]\n{''.join(f'{k} = {v!r}{chr(10)}' for k, v in OPTIONS.items())}[set]\n"
        + "".join(f"{name} = {value}\n" for name, value in SETTINGS.items())
        + '[[variant]]\nalgo = "sac"\n'
    )
    assert main(["study", "run", "my tiny.toml", "--out", "in", "--max-minutes", "0.00001"]) == 0
    write_report([tmp_path / "in"], tmp_path / "out")
    (row,) = rows_of(tmp_path / "out/tables/missing-runs.csv")
    assert row["Train with"] == "pac4sac study run 'my tiny.toml' --tasks Pendulum-v1 --seeds 0"
    assert main([*shlex.split(row["Train with"])[1:], "--out", "in"]) == 0
    assert [run.status for run in read_runs("in")] == ["finished"]


def test_the_command_to_resume_is_quoted_after_a_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(TRUSTED, "")
    folder = tmp_path / "my training"
    tiny = ["--set", *(f"{name}={value}" for name, value in SETTINGS.items())]
    stopped = ["--max-minutes", "0.00001", "--device", "cpu", *QUICK, *tiny]
    assert (
        main(
            [
                "train",
                "Pendulum-v1",
                "--algo",
                "sac",
                "--steps",
                "50",
                "--out",
                str(folder),
                *stopped,
            ]
        )
        == 0
    )
    line = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("Resume with:")
    )
    assert shlex.split(line.removeprefix("Resume with:")) == ["pac4sac", "resume", str(folder)]


HOSTILE = (
    "=HYPERLINK(1)",
    "@x",
    "new\nline",
    "\\input{x}%",
    "<script>x</script>",
    "[x](y)",
    "a|b",
    "`tick",
    "```\nend",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_the_same_in_every_format(name: str):
    columns = [words("Task", "task", "task"), words("Variant", "name"), command("line")]

    class Row:
        task, line = name, shlex.join(["pac4sac", "train", name])

    Row.name = name
    table = Table("t", f"All of {name}", columns, [Row])
    (cell,) = list(csv.reader(to_csv(table).splitlines(keepends=True)))[1]
    assert cell.removeprefix("'") == name
    assert not cell.startswith(("=", "@"))
    latex = to_latex(table).splitlines()
    assert latex[0].startswith("% All of ")
    assert latex[1] == "% needs \\usepackage{booktabs}"
    assert len(latex) == 9  # neither a cell nor the caption makes a line
    assert "\\input" not in latex[6]
    text = to_markdown(table)
    rows, fence, block = re.split(r"^(`{3,})sh$", text, maxsplit=1, flags=re.M)
    assert len(rows.strip().splitlines()) == 5  # caption, blank, head, rule, row
    assert not re.search(r"(?<!\\)<script|(?<!\\)\]\(", rows)
    body, _, rest = block.rpartition(f"\n{fence}\n")
    assert rest == ""
    assert fence not in body
    assert shlex.split(body, comments=True) == ["pac4sac", "train", name]


def test_a_report_on_malicious_names_is_written(tmp_path: Path):
    for k, name in enumerate((*HOSTILE, "$x^{$", "[/bold]", "_hidden", "\x1b[31m", "\x00")):
        about = task("cartpole-swingup") | {"name": name, "env_id": name}
        write_run(tmp_path / "in" / str(k), about, "sac", 0, label="x")
    report = write_report([tmp_path / "in"], tmp_path / "out")
    assert "<script>x" not in report.page.read_text().replace("<code>", "")


@pytest.mark.parametrize("there_is_one", [True, False])
def test_the_page_is_opened_if_a_browser_is_installed(
    there_is_one: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or there_is_one)
    write_run(tmp_path / "a b", own_task())
    assert main(["report", str(tmp_path / "a b"), "--open"]) == 0
    assert opened == [(tmp_path / "a b" / "report" / "report.html").as_uri()]
    assert ("No browser was found" in capsys.readouterr().out) is not there_is_one
