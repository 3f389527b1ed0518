"""The live picture, the plain lines and the table at the end, on consoles of several sizes."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from pac4sac.base.text import clock
from pac4sac.cli.sparkline import sparkline
from pac4sac.cli.training_display import LiveDisplay, PlainDisplay, TrainingDisplay, displayed
from pac4sac.cli.training_progress import summary
from pac4sac.cli.training_summary import show_result
from pac4sac.tasks import get_task
from pac4sac.training.experiment import Result
from pac4sac.training.run import Run, make_runs
from pac4sac.training.run_folder import RunFolder


def cartpole_runs(seeds: int, **settings: list[float]) -> list[Run]:
    return make_runs(
        get_task("cartpole-swingup"), "pac4sac", "reproduction", list(range(seeds)), settings
    )


def begin(display: TrainingDisplay, root: Path, runs: list[Run], step: int = 0) -> None:
    for run in runs:
        RunFolder(root, run).describe("running")
    display.on_start(root, runs, 40_000, step)


def write(root: Path, run: Run, returns: list[float], status: str = "finished") -> None:
    folder = RunFolder(root, run)
    folder.describe(status)
    for episode, value in enumerate(returns):
        folder.log(
            "episodes",
            {"episode": episode, "step": 1000 * (episode + 1), "return": value, "length": 1000},
        )


def console(width: int, height: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None
    )


def drawn(display: LiveDisplay) -> list[str]:
    paper = console(display.console.width, display.console.height)
    with paper.capture() as capture:
        paper.print(display.picture())
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [20, 40, 80, 160])
@pytest.mark.parametrize("height", [5, 24, 60])
@pytest.mark.parametrize("seeds", [1, 24])
def test_the_picture_fits_every_terminal(width: int, height: int, seeds: int, tmp_path: Path):
    display = LiveDisplay(console(width, height))
    runs = cartpole_runs(seeds, xi=[0.0, 0.1])
    begin(display, tmp_path, runs)
    for run in runs:
        for episode in range(300):
            display.on_log(run, "episodes", {"return": float(episode)})
        display.on_log(run, "evaluations", {"mean": -1234.5})
    display.on_step(20_000)
    lines = drawn(display)
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 10)


def test_runs_that_do_not_fit_are_summarised(tmp_path: Path):
    display = LiveDisplay(console(80, 16))
    runs = cartpole_runs(20)
    begin(display, tmp_path, runs)
    for run in runs[10:]:
        for _ in range(5):
            display.on_log(run, "episodes", {"return": 900.0})
    text = "\n".join(drawn(display))
    assert "seed 5" in text
    assert "seed 6 " not in text
    assert "and 14 more runs: mean of the last returns 900, 10 of 14 solved, 50 of 50 epi" in text


def test_the_display_distinguishes_solved_failed_and_running_runs(tmp_path: Path):
    display = LiveDisplay(console(120, 30))
    runs = cartpole_runs(3)
    begin(display, tmp_path, runs)
    for value in (100.0, 900.0, 901.0, 902.0, 903.0, 904.0):
        display.on_log(runs[0], "episodes", {"return": value})
    display.on_log(runs[1], "episodes", {"return": -5.25})
    display.on_status(runs[1], "diverged", "non-finite critic gradient at step 7")
    rows = {line[:6]: line.split() for line in drawn(display) if line.startswith("seed")}
    assert rows["seed 0"][2:] == ["▁█████", "904", "904", "5", "of", "6", "solved", "at", "1"]
    assert rows["seed 1"][-4:] == ["0", "of", "1", "diverged"]
    assert rows["seed 2"][-2:] == ["0", "running"]


def test_an_unsolved_run_shows_its_episodes_above_the_threshold_and_best_streak(tmp_path: Path):
    display = LiveDisplay(console(100, 30))
    (run,) = cartpole_runs(1)
    begin(display, tmp_path, [run])
    for value in (100.0, *[900.0] * 4, 800.0, 900.0):
        display.on_log(run, "episodes", {"return": value})
    (row,) = [line for line in drawn(display) if line.startswith("seed 0")]
    assert row.split()[-6:] == ["5", "of", "7", "best", "streak", "4"]
    assert "above 850" in "\n".join(drawn(display))
    assert (
        summary(list(display.rows.values()))
        == "last return 900, 5 of 7 episodes above 850, best streak 4 of 5"
    )


def test_the_bar_shows_the_percentage(tmp_path: Path):
    display = LiveDisplay(console(80, 24))
    begin(display, tmp_path, cartpole_runs(1))
    display.on_step(10_000)
    assert drawn(display)[1].endswith("━  25%")


def test_the_time_left_is_estimated_from_steps_with_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr("pac4sac.cli.training_display.time.monotonic", lambda: now[0])
    display = LiveDisplay(console(80, 24))
    begin(display, tmp_path, cartpole_runs(1))
    for step in range(100, 1001, 100):  # the warm-up: a thousand steps in ten seconds
        now[0] += 1
        display.on_step(step)
    assert not any("left" in part for part in display.pace())
    for step in range(1010, 1101, 10):  # then ten a second, for 38,900 more
        now[0] += 1
        display.on_step(step)
    assert display.pace()[-1] == f"{clock(3890)} left"


def test_before_the_start_and_between_cohorts_the_display_shows_preparing(tmp_path: Path):
    with displayed(console(80, 24)) as display:
        assert isinstance(display, LiveDisplay)
        assert "Preparing" in drawn(display)[0]
        begin(display, tmp_path, cartpole_runs(1))
        assert "cartpole-swingup" in drawn(display)[0]
        display.on_end(tmp_path)
        assert "Preparing" in drawn(display)[0]


def test_a_resumed_run_shows_the_episodes_before(tmp_path: Path):
    runs = cartpole_runs(1)
    write(tmp_path, runs[0], [1.0, 2.0, 3.0], "running")
    display = LiveDisplay(console(80, 24))
    display.on_start(tmp_path, runs, 40_000, 3000)
    assert display.rows[runs[0].id].returns == [1.0, 2.0, 3.0]


def test_without_a_terminal_few_plain_lines_are_printed(tmp_path: Path):
    output = io.StringIO()
    with displayed(Console(file=output, width=40)) as display:
        assert isinstance(display, PlainDisplay)
        begin(display, tmp_path, cartpole_runs(2))
        for step in range(1, 40_001):
            display.on_step(step)
    lines = output.getvalue().splitlines()
    assert len(lines) == 21  # one at the start, and then twenty
    assert lines[0].startswith("pac4sac on cartpole-swingup: 2 runs in lockstep")
    assert lines[1].startswith("  5%  2,000 of 40,000 steps")
    assert "\x1b" not in output.getvalue()


def test_the_time_limit_bounds_the_time_left(tmp_path: Path):
    display = LiveDisplay(console(80, 24), max_minutes=10)
    begin(display, tmp_path, cartpole_runs(1))
    assert display.pace()[-1] in ("10:00 left", "9:59 left")


def test_a_sparkline_has_a_bar_for_each_return_or_for_the_mean_of_several():
    assert sparkline([0.0, 0.5, 1.0], 10, 0.0, 1.0).plain == "▁▅█"
    assert sparkline([0.0, 1.0, 0.5, 0.5, 1.0, 1.0], 3, 0.0, 1.0).plain == "▅▅█"
    assert sparkline([3.0, 3.0], 10, 3.0, 3.0).plain == "▁▁"
    assert sparkline([], 10, 0.0, 1.0).plain == ""


def test_durations_are_shown_like_a_clock():
    assert [clock(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]


# --- the table at the end


def shown(root: Path, width: int = 100, complete: bool = True) -> str:
    wide = Console(file=io.StringIO(), width=width)
    show_result(Result(root, complete, None if complete else "the time is up"), wide)
    output = wide.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def cells(text: str, start: str) -> str:
    return next(
        " ".join(line.split()) for line in text.splitlines() if line.strip().startswith(start)
    )


SOLVED = [0.0, 300.0, 900.0, 900.0, 900.0, 900.0, 900.0]


def test_the_table_has_regret_and_episodes_until_solved_by_seed_and_on_average(tmp_path: Path):
    runs = cartpole_runs(2)
    write(tmp_path, runs[0], SOLVED)  # regret 850 + 550
    write(tmp_path, runs[1], [300.0, *SOLVED])  # regret 550 + 850 + 550
    text = shown(tmp_path)
    assert cells(text, "seed 0") == "seed 0 ▁▃█████ 2 1.4 5 of 7 solved"
    assert cells(text, "mean ± std") == "mean ± std 2.5 ± 0.71 1.7 ± 0.39"
    assert "paper" not in text
    assert "Training is complete: 2 of 2 runs solved." in text
    assert (tmp_path / "learning-curves.png").exists()


def test_an_unfinished_run_has_lower_bounds(tmp_path: Path):
    write(tmp_path, cartpole_runs(1)[0], [0.0, 0.0], "interrupted")
    text = shown(tmp_path, complete=False)
    assert "≥ 2" in cells(text, "seed 0")
    assert "≥ 1.7" in cells(text, "seed 0")
    assert "unfinished" in cells(text, "seed 0")
    assert "Training was stopped because the time is up: no episode above 850 yet." in text


def test_the_end_shows_episodes_above_the_threshold_and_the_best_streak(tmp_path: Path):
    write(tmp_path, cartpole_runs(1)[0], [0.0, *[900.0] * 4, 0.0, 900.0], "interrupted")
    text = shown(tmp_path, complete=False)
    assert cells(text, "seed 0").endswith("5 of 7 best streak 4")
    said = (
        "the time is up: 5 of 7 episodes above 850, at most 4 in a row; 5 in a row solve the task."
    )
    assert f"Training was stopped because {said}" in text


def test_the_next_commands_name_the_folder(tmp_path: Path):
    (run,) = cartpole_runs(1)
    folder = tmp_path / "two words"
    write(folder, run, SOLVED)
    assert "pac4sac watch" not in shown(folder, width=300)  # there is no agent to watch
    (folder / "runs" / run.id / "agent.safetensors").touch()
    text = shown(folder, width=300)
    assert all(
        f"pac4sac {command} '{folder}'" in text for command in ("watch", "evaluate", "report")
    )


def test_without_a_threshold_the_last_returns_replace_the_metrics(tmp_path: Path):
    (run,) = make_runs(get_task("Pendulum-v1"), "sac", "default", [0], {})
    write(tmp_path, run, [-1000.0, *[-200.0] * 10])
    text = shown(tmp_path)
    assert "last 10" in text
    assert "-200" in cells(text, "seed 0")
    assert "solved" not in text


def test_episodes_of_different_lengths_can_be_solved_but_have_no_episode_metrics(tmp_path: Path):
    # room for five whole episodes
    task = dataclasses.replace(get_task("Pendulum-v1"), r_limit=100.0, steps=1000)
    runs = make_runs(task, "sac", "default", [0, 1], {})
    for run, returns in zip(runs, ([10.0] * 5 + [150.0] * 5, [10.0] * 10), strict=True):
        folder = RunFolder(tmp_path, run)
        folder.describe("finished")
        for episode, value in enumerate(returns):
            folder.log(
                "episodes",
                {"episode": episode, "step": 100 * (episode + 1), "return": value, "length": 100},
            )
    assert Result(tmp_path, complete=True).scores() == {}
    text = shown(tmp_path)
    assert "regret" not in text
    assert cells(text, "seed 0").endswith(" 80 5 of 10 solved")
    assert cells(text, "seed 1").endswith(" 10 0 of 10 not solved")
    assert "1 of 2 runs solved" in text


def test_the_last_evaluation_is_shown(tmp_path: Path):
    (run,) = cartpole_runs(1)
    write(tmp_path, run, SOLVED)
    for step, mean in ((1000, 10.0), (2000, 871.25)):
        for policy, bonus in (("deterministic", 0.0), ("shooting", 1.0)):
            row = {"step": step, "policy": policy, "mean": mean + bonus, "returns": [mean]}
            RunFolder(tmp_path, run).log("evaluations", row)
    assert "871 872 5 of 7 solved" in cells(shown(tmp_path), "seed 0")


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_table_fits_the_console(width: int, tmp_path: Path):
    for run in cartpole_runs(2, xi=[0.0, 0.1]):
        write(tmp_path, run, SOLVED)
    table = shown(tmp_path, width).split("Training is")[0]
    assert max(map(len, table.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 140])
def test_run_names_stay_whole_and_other_columns_are_omitted(width: int, tmp_path: Path):
    runs = cartpole_runs(2, xi=[0.0, 0.1], width=[64, 128])
    for run in runs:
        write(tmp_path, run, SOLVED)
        for policy in ("deterministic", "shooting"):
            row = {"step": 7000, "policy": policy, "mean": 871.25, "returns": [871.25]}
            RunFolder(tmp_path, run).log("evaluations", row)
    table = shown(tmp_path, width).split("Training is")[0].splitlines()
    assert max(map(len, table)) <= width
    assert all(any(line.split()[:1] == [run.id] for line in table) for run in runs)
    assert ("▁" in "".join(table)) == (width == 140)


def test_a_failed_run_is_named_and_counted(tmp_path: Path):
    runs = cartpole_runs(2)
    write(tmp_path, runs[0], SOLVED)
    write(tmp_path, runs[1], [1.0], "diverged")
    text = shown(tmp_path)
    assert "diverged" in cells(text, "seed 1")
    assert "1 of 2 runs failed or diverged" in text
