"""Names of settings and options that users of other libraries know."""

import re
from pathlib import Path
from typing import Any

import pytest

import pac4sac
from pac4sac.agents import ALGORITHMS, make_config, setting_names
from pac4sac.base.errors import UserError
from pac4sac.base.known_names import OPTIONS, SETTINGS, our_settings
from pac4sac.cli.arguments import FLAG_NAMES
from pac4sac.cli.known_flags import COMMANDS, with_our_flags
from pac4sac.cli.main import main
from pac4sac.studies.compare import comparison_study
from pac4sac.training.run import make_runs

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def test_every_known_name_maps_to_an_existing_name_or_to_advice() -> None:
    settings = {name for algo in ALGORITHMS for name in setting_names(algo)}
    options = set(COMMANDS["train"].__dataclass_fields__) | set(FLAG_NAMES.values())
    for names, known in ((SETTINGS, settings), (OPTIONS, options)):
        for there in names.values():
            assert bool(there.ours) != bool(there.answer)
            assert there.ours in {*known, ""}
        assert not names.keys() & settings


def test_the_docs_show_the_same_names() -> None:
    table, *_ = re.findall(r"\| `pac4sac` \|.*?\n\n", PAGE.read_text(), re.DOTALL)
    shown: dict[str, set[str]] = {}  # ours by the name there, which may be in several rows
    for row in table.strip().splitlines()[2:]:
        here, *there = re.findall(r"[^|]+", row.strip("| "))
        ours = {each.replace("-", "_") for each in re.findall(r"`-*([\w-]+)", here)}
        names = [name for cell in there for name in re.findall(r"`(\w+)", cell)]
        for name in set(names) & {*SETTINGS, *OPTIONS}:
            shown.setdefault(name, set()).update(ours)
    exact = {name: there.ours for name, there in {**SETTINGS, **OPTIONS}.items() if there.ours}
    assert [name for name in shown.keys() & exact if exact[name] not in shown[name]] == []
    assert exact.keys() - shown <= {"n_timesteps", "eval_episodes", "env", "env_id", "save_freq"}


def test_settings_are_accepted_under_names_of_other_libraries() -> None:
    config = make_config("sac", overrides={"learning_rate": 1e-4, "batch_size": "64"})
    assert (config.lr, config.batch) == (1e-4, 64)
    (run,) = make_runs(
        pac4sac.Task("p", "Pendulum-v1"), "td3", "default", [0], {"policy_frequency": [3]}
    )
    assert run.given == {"policy_delay": 3}


def test_a_linear_learning_rate_of_rl_zoo_gets_advice() -> None:
    with pytest.raises(UserError, match=r"lin_7\.3e-4.*lr=7\.3e-4, lr_schedule=linear") as refusal:
        make_config("sac", overrides={"learning_rate": "lin_7.3e-4"})
    assert "lr_steps" in str(refusal.value)


def test_a_custom_setting_takes_precedence_over_a_known_name() -> None:
    assert our_settings({"learning_rate": 1}, ["lr", "learning_rate"]) == {"learning_rate": 1}


def test_a_comparison_accepts_settings_under_names_of_other_libraries() -> None:
    settings = {"learning_starts": 10, "td3:policy_noise": 0.3, "autotune": False}
    study = comparison_study("Pendulum-v1", "sac,td3", 0, settings, 500, None)
    sac, td3 = (dict(variant.settings) for variant in study.variants)
    assert sac == {"warmup": 10, "learn_alpha": False}
    assert td3 == {"warmup": 10, "smoothing": 0.3}


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"settings": {"ent_coef": 0.1}}, "alpha=0.1 with learn_alpha=false"),
        ({"settings": {"lr": 1, "learning_rate": 1}}, "lr and learning_rate are the same"),
        ({"settings": {"exploration_noise": 1}}, "its name here is noise"),
        ({"settings": {"learning_rat": 1}}, "did you mean learning_rate"),
        ({"lr": 3e-4}, "it is a setting of algorithms: settings={'lr': ...}"),
        ({"learning_rate": 3e-4}, "it is a setting of algorithms"),
        ({"n_envs": 4}, "seeds 0:5"),
        ({"total_timesteps": 0}, "steps must be a whole number at least 1"),
        ({"seed": 0, "seeds": 1}, "seed and seeds are the same"),
    ],
)
def test_python_gives_advice_on_known_names(
    given: dict[str, Any], answer: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=re.escape(answer)):
        pac4sac.train(**{"task": "Pendulum-v1", "algo": "sac", "out": tmp_path / "a", **given})
    assert not (tmp_path / "a").exists()


def test_flags_of_other_libraries_are_accepted() -> None:
    words = [
        "train",
        "--set",
        "a=1",
        "--env-id",
        "P",
        "--total_timesteps=5",
        "--seed",
        "3",
        "--n-eval-episodes",
        "2",
    ]
    expected = [
        "train",
        "P",
        "--set",
        "a=1",
        "--steps",
        "5",
        "--seeds",
        "3",
        "--evaluation-episodes",
        "2",
    ]
    assert with_our_flags(words) == expected
    kept = ["compare", "P", "--algos", "a,b", "--no-keep-stale", "--seeds=0:2", "--set", "lr=1"]
    assert with_our_flags(kept) == kept
    assert with_our_flags(["evaluate", "x", "--seed", "3"]) == ["evaluate", "x", "--seed", "3"]


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (["--learning-rate", "0.1"], "--set lr=0.1."),
        (["--learning-rate", "--seeds", "1"], "--set lr=VALUE."),
        (["--ent-coef=0.1"], "alpha=0.1 with learn_alpha=false"),
        (["--lr=0.1"], "--set lr=0.1"),
        (["--xi", "0.1"], "--set xi=0.1"),
        (["--num-envs", "4"], "train in parallel"),
        (["--tensorboard-log", "x"], "--track tensorboard"),
        (["--set", "policy_kwargs=1"], "set width and depth"),
    ],
)
def test_the_command_line_gives_advice_on_known_names(
    flags: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "Pendulum-v1", "--algo", "sac", *flags]) == 2
    assert answer in capsys.readouterr().err


def test_a_config_file_accepts_known_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('env = "Pendulum-v1"\ntotal_timesteps = 0\nalgo = "sac"\n')
    assert main(["train", "--config", str(file)]) == 2
    assert "steps must be a whole number at least 1" in capsys.readouterr().err
    file.write_text('env = "Pendulum-v1"\nn_envs = 4\n')
    assert main(["train", "--config", str(file)]) == 2
    assert "unknown key 'n_envs'" in capsys.readouterr().err


def test_known_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "names"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*SETTINGS, *OPTIONS))
