"""The command line as a user meets it: sentences, exit codes, folders."""

import dataclasses
import errno
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.cli import doctor
from pac4sac.cli.main import main
from pac4sac.runs.reading import read_runs
from pac4sac.runs.seeds import parse_seeds
from pac4sac.training.options import Options

SMALL = [
    "--threads",
    "1",
    "--workers",
    "0",
    "--backend",
    "eager",
    "--device",
    "cpu",
    "--evaluation-episodes",
    "0",
]
TINY = ["--set", "width=8", "depth=1", "shots=2", "batch=4", "warmup=10"]


def train(out: Path, *arguments: str) -> int:
    return main(["train", "Pendulum-v1", "--out", str(out), *SMALL, *TINY, *arguments])


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on stderr, which must be one line."""
    error = capsys.readouterr().err
    assert error.startswith("pac4sac: ")
    assert error.count("\n") == 1
    return error


def test_help_does_not_import_torch():
    code = (
        "import sys; from pac4sac.cli.main import main; code = main(['train', '--help']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "--seeds" in done.stdout


def test_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pac4sac {pac4sac.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", pac4sac.__version__)


COMMANDS = (
    "train",
    "resume",
    "compare",
    "report",
    "evaluate",
    "certify",
    "watch",
    "export onnx",
    "export csv",
    "export hub",
    "export minari",
    "tune",
    "list",
    "check",
)


@pytest.mark.parametrize(
    "command", [*COMMANDS, "study run", "study plan", "study status", "study collect"]
)
def test_help_explains_every_argument(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "(required" in shown
    # The parser puts the name of a field where there is no sentence, and nothing where there is no
    # value.
    assert not re.search(r"[^.\s│] \((required|default|optional)", shown)
    assert "(default: )" not in shown


def test_every_option_of_training_is_a_flag_of_train_with_its_sentence(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["train", "--help"]) == 0
    shown = " ".join(re.sub("[│╭╰╮╯─]", " ", capsys.readouterr().out).split())
    for option in dataclasses.fields(Options):
        flag = "--from" if option.name == "start_from" else f"--{option.name.replace('_', '-')}"
        assert re.search(rf"{flag}[ ,].*?{re.escape(option.metadata['help'])} \(", shown), (
            option.name
        )


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("0:3", [0, 1, 2]), ("0,2,7", [0, 2, 7]), ("0:2,9", [0, 1, 9])]
)
def test_seeds_are_a_number_a_range_or_a_list(text: str, seeds: list[int]):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "-1", "1.5", "3:", ":3", "5:5", "0:99999999999", "1;2", "9" * 5000, "1" * 21]
)
def test_other_seeds_are_refused(text: str):
    with pytest.raises(UserError, match="seeds"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train"], "needs a task"),
        (["train", "Pendulun-v1"], "did you mean Pendulum-v1"),
        (["train", "cartpole-swingupp"], "did you mean cartpole-swingup"),
        (["train", "CartPole-v1"], "continuous"),
        (["train", "Pendulum-v1", "--algo", "pacsac"], "did you mean pac4sac"),
        (["train", "Pendulum-v1", "--preset", "reprod"], "did you mean reproduction"),
        (["train", "Pendulum-v1", "--set", "xj=0.1"], "'xj'; did you mean xi"),
        (["train", "Pendulum-v1", "--set", "xi=1.5"], "xi must be a number in [0, 1), not 1.5"),
        (["train", "Pendulum-v1", "--set", "xi"], "NAME=VALUE"),
        (["train", "Pendulum-v1", "--set", "xi=0,,1"], "NAME=VALUE"),
        (["train", "--set", "xi=0", "Pendulum-v1"], "a task goes before --set"),
        (["train", "--wrapper", "action-repeat", "Pendulum-v1"], "a task goes before it"),
        (["compare", "--wrapper", "action-repeat", "Pendulum-v1"], "a task goes before it"),
        (["train", "Pendulum-v1", "--set", "xi=0.1,0.1"], "same value twice"),
        (["train", "Pendulum-v1", "--seeds", "5:0"], "seeds"),
        (["train", "Pendulum-v1", "--seeds", "1,1"], "different"),
        (
            ["train", "Pendulum-v1", "--steps", "0"],
            "steps must be a whole number at least 1, not 0",
        ),
        (
            ["train", "Pendulum-v1", "--max-minutes", "0"],
            "max_minutes must be a finite number above 0, not 0",
        ),
        (["train", "Pendulum-v1", "--device", "tpu"], "use cpu, cuda or auto"),
        (["train", "Pendulum-v1", "--device", "cpu", "--backend", "graph"], "needs a CUDA device"),
        (["train", "Pendulum-v1", "--device", "cpu", "--precision", "tf32"], "tf32 needs a GPU"),
        (
            ["train", "Pendulum-v1", "--steps", "10" + "0" * 11, "--set", "capacity=10" + "0" * 11],
            "GB are free",
        ),
        (["train", "Pendulum-v1", "--from", "nowhere"], "nowhere does not exist"),
        (["train", "--config", "nowhere.toml"], "cannot be read"),
        (["resume", "nowhere"], "has no experiment.json"),
        (["evaluate", "nowhere"], "does not exist"),
        (["evaluate", "nowhere", "--episodes", "0"], "must be a whole number in [1, 1e+06], not 0"),
        (["watch", "nowhere", "--seed", "-1"], "--seed must be at least 0"),
        (["list", "settings", "--algo", "sacc"], "did you mean sac"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence_and_leaves_no_files(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert expected in sentence(capsys)
    assert not list(tmp_path.glob("experiments/*"))


def test_a_missing_gpu_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["train", "Pendulum-v1", "--out", str(tmp_path / "x"), "--device", "cuda"]) == 2
    assert "use --device cpu" in sentence(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["train", "Pendulum-v1", "--sed", "3"],
        ["train", "Pendulum-v1", "--steps", "many"],
        ["study", "plan", "smoke", "--no-no-trial"],
        ["list", "x"],
    ],
)
def test_parser_errors_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("tasks", "half-cheetah"),
        ("tasks", "Hopper-v5                       mujoco"),
        ("algos", "sac-fpi"),
        ("presets", "reproduction"),
    ],
)
def test_tasks_algorithms_presets_and_studies_can_be_listed(
    what: str, expected: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["list", what]) == 0
    assert expected in capsys.readouterr().out


def test_settings_are_listed_with_range_and_meaning(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "settings", "--algo", "sac"]) == 0
    assert re.search(r"gamma\* +0\.99 +in \[0, 1\) +discount factor", capsys.readouterr().out)


def test_a_folder_that_is_not_empty_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert train(tmp_path, "--steps", "5") == 2
    assert "not empty" in sentence(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_refused_as_an_experiment_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "afile").touch()
    assert train(tmp_path / "afile") == 2
    assert "afile is a file" in sentence(capsys)


def test_a_folder_that_cannot_be_created_is_reported_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
):
    assert train(Path("/proc/pac4sac"), "--steps", "5") == 2
    assert "Writing /proc/pac4sac failed" in capsys.readouterr().err.splitlines()[-1]


def test_a_full_disk_is_reported_in_one_sentence_and_logs_stay_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pac4sac.training.checkpoint.save", full)
    assert train(tmp_path / "x", "--steps", "220", "--checkpoint-every", "210") == 2
    assert "No space left on device). Earlier results are still readable" in sentence(capsys)
    (run,) = read_runs(tmp_path / "x")
    assert len(run.returns) == 1


def test_a_swept_setting_and_the_seeds_share_one_cohort(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert (
        train(
            tmp_path / "x",
            "--steps",
            "15",
            "--seeds",
            "0:2",
            "--set",
            "xi=0,0.1",
            "--set",
            "alpha=0.3",
        )
        == 0
    )
    assert [path.name for path in (tmp_path / "x/cohorts").iterdir()] == ["000"]
    runs = read_runs(tmp_path / "x")
    assert [run.run for run in runs] == [
        f"pac4sac-xi={xi}-seed{seed}" for xi in ("0", "0.1") for seed in (0, 1)
    ]
    assert {run.config["alpha"] for run in runs} == {0.3}
    assert "4 runs in lockstep" in capsys.readouterr().out


def test_flags_override_the_config_file(tmp_path: Path):
    config = tmp_path / "c.toml"
    config.write_text(
        'task = "Pendulum-v1"\nalgo = "sac"\nsteps = 15\nseeds = [4, 5]\nbackend = "eager"\nthreads = 1\nworkers = 0\n'
        "evaluation-episodes = 0\nstop_when_solved = true\n[set]\nwidth = 8\ndepth = 1\nnorm "
        "= false\nalpha = 0.5\n"
    )
    flags = [
        "--config",
        str(config),
        "--out",
        str(tmp_path / "x"),
        "--seeds",
        "4",
        "--set",
        "alpha=0.1",
    ]
    assert main(["train", *flags]) == 0
    (run,) = read_runs(tmp_path / "x")
    assert (run.algo, run.seed) == ("sac", 4)
    assert {name: run.config[name] for name in ("width", "norm", "alpha")} == {
        "width": 8,
        "norm": False,
        "alpha": 0.1,
    }
    options = json.loads((tmp_path / "x/experiment.json").read_bytes())["options"]
    assert (options["steps"], options["threads"], options["stop_when_solved"]) == (15, 1, True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("stepz = 3", "did you mean steps"),
        ("steps = [", "is not a valid TOML file"),
        ("set = 3", "set must be a table"),
        ("steps = true", "steps cannot be true"),
        ('stop-when-solved = "yes"', "stop-when-solved cannot be yes"),
        ("[set]\nxi = {a = 1}", "must be a value or a list"),
        ("[set]\nxi = 2.0", "xi must be a number in [0, 1)"),
        ("config = 'other.toml'", "unknown key 'config'"),
    ],
)
def test_an_invalid_config_file_is_reported_in_one_sentence(
    content: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tmp_path / "c.toml"
    config.write_text(content)
    assert (
        main(["train", "Pendulum-v1", "--config", str(config), "--out", str(tmp_path / "x")]) == 2
    )
    assert expected in sentence(capsys)


def test_training_stopped_by_the_time_limit_exits_with_0_and_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "x"
    assert train(out, "--steps", "420", "--max-minutes", "0.0001") == 0
    said = capsys.readouterr().out
    assert "Training was stopped because the time is up" in said
    assert f"pac4sac resume {out}" in said
    assert main(["resume", str(out / "runs/pac4sac-seed0")]) == 0
    assert "Training is complete" in capsys.readouterr().out
    (run,) = read_runs(out)
    assert run.steps.tolist() == [200, 400]
    assert (out / "learning-curves.png").stat().st_size > 1000


def test_training_that_stops_when_solved_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "gifts.py").write_text(
        "import gymnasium, numpy\n"
        "class Gifts(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,))\n"
        "    def reset(self, seed=None, options=None): return numpy.zeros(1, 'f'), {}\n"
        "    def step(self, action): return numpy.zeros(1, 'f'), 1.0, False, False, {}\n"
        "gymnasium.register('Gifts-v0', Gifts, max_episode_steps=10, reward_threshold=9.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--out", str(tmp_path / "x"), *SMALL, *TINY, "--steps", "200", "--stop-when-solved"]
    assert main(["train", "gifts:Gifts-v0", *flags]) == 0
    said = capsys.readouterr().out
    assert "pac4sac-seed0 solved the task after 0 episodes" in said
    assert "Training is complete: solved." in said
    assert [len(run.episodes) for run in read_runs(tmp_path / "x")] == [5]


def test_interrupted_training_shows_how_to_resume_and_exits_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from pac4sac.cli.training_display import PlainDisplay

    told = PlainDisplay.on_step

    def interrupted(self: PlainDisplay, step: int) -> None:
        told(self, step)
        if step == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PlainDisplay, "on_step", interrupted)
    assert train(tmp_path / "x", "--steps", "400") == 130
    assert f"pac4sac resume {tmp_path / 'x'}" in capsys.readouterr().out


def test_trained_agents_are_evaluated_with_and_without_shooting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert train(tmp_path / "x", "--steps", "15", "--seeds", "0:2") == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "x"), "--episodes", "2"]) == 0
    said = capsys.readouterr().out
    rows = [
        f"pac4sac-seed{seed} +{policy}"
        for seed in (0, 1)
        for policy in ("deterministic", "shooting")
    ]
    assert all(re.search(row, said) for row in rows)
    assert main(["evaluate", str(tmp_path / "x"), "--best"]) == 2
    assert "seed0 and 1 more have no best.safetensors; train with --evaluate-every." in sentence(
        capsys
    )


def test_an_agent_file_can_be_evaluated_and_a_run_without_one_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert train(tmp_path / "x", "--steps", "15", "--seeds", "0:2") == 0
    agents = [
        tmp_path / "x" / "runs" / f"pac4sac-seed{seed}" / "agent.safetensors" for seed in (0, 1)
    ]
    capsys.readouterr()
    assert main(["evaluate", str(agents[0]), "--episodes", "1"]) == 0
    # of two policies
    assert re.findall(r"pac4sac-seed\d", capsys.readouterr().out) == ["pac4sac-seed0"] * 2
    agents[0].unlink()
    assert main(["evaluate", str(tmp_path), "--episodes", "1"]) == 0
    said = capsys.readouterr()
    assert re.findall(r"pac4sac-seed\d", said.out) == ["pac4sac-seed1"] * 2
    assert (
        f"{agents[0].parent} has no agent.safetensors; train up to the first checkpoint."
        in said.err
    )
    assert main(["evaluate", str(agents[1]), "--best"]) == 2
    assert "--best needs a folder" in sentence(capsys)


def test_training_shorter_than_its_warm_up_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert train(tmp_path / "x", "--steps", "10") == 0
    assert (
        "Nothing is learned in 10 steps, because the warm-up takes 10." in capsys.readouterr().err
    )
    assert train(tmp_path / "y", "--steps", "11") == 0
    assert "othing is learned" not in capsys.readouterr().err


def test_watch_writes_the_video_into_the_given_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked = []

    def film(path: Path, out: Path, **options: Any) -> Path:
        asked.append((path, out, options["seed"]))
        options["progress"](1, 2)
        return out

    monkeypatch.setattr("pac4sac.export.video.record_video", film)
    assert main(["watch", str(tmp_path), "--seed", "3"]) == 0
    assert main(["watch", str(tmp_path), "--video", "film.mp4"]) == 0
    assert asked == [(tmp_path, tmp_path / "episode.gif", 3), (tmp_path, Path("film.mp4"), 0)]
    assert "Video: film.mp4" in capsys.readouterr().out


def test_export_reports_the_result_of_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        "pac4sac.export.onnx.export_onnx", lambda path, out: f"{path.name} acts like {out}."
    )
    assert main(["export", str(tmp_path / "run"), "--onnx", "policy.onnx"]) == 0
    assert capsys.readouterr().out == "run acts like policy.onnx.\n"
    assert main(["export", str(tmp_path / "run")]) == 2


def test_doctor_exits_with_1_if_a_requirement_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    missing = doctor.Finding("torch", "missing", state="missing")
    monkeypatch.setattr(doctor, "software", lambda: iter([missing]))
    assert main(["doctor"]) == 1
    assert "Training does not work here: install or fix torch" in capsys.readouterr().out


def test_training_starts_from_the_weights_of_another_run(tmp_path: Path):
    assert train(tmp_path / "first", "--steps", "15") == 0
    first = str(tmp_path / "first/runs/pac4sac-seed0")
    assert train(tmp_path / "second", "--steps", "15", "--from", first) == 0
    options = json.loads((tmp_path / "second/experiment.json").read_bytes())["options"]
    assert options["start_from"] == first
    assert train(tmp_path / "third", "--steps", "15", "--from", first, "--set", "width=16") == 2


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "pac4sac", "train", "--seeds", "x"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "'x'" in done.stderr
    assert "0:5" in done.stderr
