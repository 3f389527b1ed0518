"""Settings: a value that cannot be is refused in one sentence with its name, itself and what is
allowed."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from small_cohorts import make_agent

from pac4sac.agents import ALGORITHMS, Agent, get_algorithm, make_config, stored_config
from pac4sac.agents.nets import GaussianActor
from pac4sac.agents.settings import AgentConfig
from pac4sac.base.errors import UserError
from pac4sac.tasks import Task, get_task
from pac4sac.training.options import Options
from pac4sac.training.run import make_runs, plan_cohorts, settings_grid


@pytest.mark.parametrize(
    ("algo", "name", "value", "sentence"),
    [
        ("pac4sac", "xi", 1.0, "xi must be a number in [0, 1), not 1.0."),
        ("pac4sac", "xi", -0.01, "xi must be a number in [0, 1), not -0.01."),
        ("pac4sac", "shots", 0, "shots must be a whole number at least 1, not 0."),
        ("sac", "shots", -3, "shots must be a whole number at least 1, not -3."),
        ("pac4sac", "shots", 2.5, "shots must be a whole number at least 1, not 2.5."),
        ("sac", "gamma", 1.0, "gamma must be a number in [0, 1), not 1.0."),
        ("ddpg", "gamma", -0.1, "gamma must be a number in [0, 1), not -0.1."),
        ("sac", "tau", 0.0, "tau must be a number in (0, 1], not 0.0."),
        ("sac", "lr", 0.0, "lr must be a number above 0, not 0.0."),
        ("sac", "alpha", -0.2, "alpha must be a number at least 0, not -0.2."),
        ("sac", "warmup", -1, "warmup must be a whole number at least 0, not -1."),
        ("sac", "batch", 0, "batch must be a whole number at least 1, not 0."),
        ("sac", "width", True, "width must be a whole number at least 1, not True."),
        ("sac", "norm", 1, "norm must be true or false, not 1."),
        ("sac", "activation", "gelu", "activation must be one of silu, relu, not 'gelu'."),
        (
            "pac4sac-bounded",
            "bound",
            "plain",
            "bound must be one of classic, quadratic, lambda, kl, not 'plain'.",
        ),
        ("pac4sac-bounded", "delta", 0.0, "delta must be a number in (0, 1), not 0.0."),
        ("pac4sac-repo", "prior_mean", math.nan, "prior_mean must be a number, not nan."),
        ("pac4sac-mixture", "prior_variance", 0, "prior_variance must be a number above 0, not 0."),
        ("sac-fpi", "critics", 2, "critics must be a whole number in [1, 1], not 2."),
        ("sac-nr", "clean", 1.1, "clean must be a number in [0, 1], not 1.1."),
        ("ddpg", "noise", "loud", "noise must be a number at least 0, not 'loud'."),
        ("sac", "gamma", None, "gamma must be a number in [0, 1), not None."),
        ("sac", "gamma", [0.9], "gamma must be a number in [0, 1), not [0.9]."),
    ],
)
def test_an_invalid_value_is_reported_with_the_allowed_values(
    algo: str, name: str, value: Any, sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        make_config(algo, overrides={name: value})
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_settings_cannot_be_infinite_nan_or_boolean(algo: str) -> None:
    """1e39 is infinite in float32, in which the learner computes."""
    for f in dataclasses.fields(ALGORITHMS[algo].agent.Config):
        if type(f.default) in (int, float):
            for value in (math.nan, math.inf, -math.inf, True, "nan", "inf", 1e39, 10**400):
                with pytest.raises(UserError, match=f"^{f.name} must be a "):
                    make_config(algo, overrides={f.name: value})


def test_a_sweep_without_values_is_refused() -> None:
    with pytest.raises(UserError, match="The sweep over xi has no values"):
        settings_grid({"xi": []})


def test_names_of_runs_do_not_depend_on_how_values_are_written() -> None:
    def labels(**swept: list[Any]) -> list[str]:
        return [
            run.label
            for run in make_runs(get_task("cartpole-swingup"), "sac", "default", [0], swept)
        ]

    assert (
        labels(alpha=["1e-2", "0.20"])
        == labels(alpha=[0.01, 0.2])
        == ["sac-alpha=0.01", "sac-alpha=0.2"]
    )
    assert labels(learn_alpha=["true", "false"]) == labels(learn_alpha=[True, False])
    with pytest.raises(UserError, match="the same value twice"):
        labels(alpha=["0.1", "1e-1"])


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (
            {"steps": 10**20},
            "steps must be a whole number at least 1, of at most 9e+18, not 100000000000000000000.",
        ),
        (
            {"evaluation_episodes": 10**12},
            "evaluation_episodes must be a whole number in [0, 1e+06], not 1000000000000.",
        ),
        (
            {"start_from": ""},
            "start_from is empty; give a run folder or an agent.safetensors file, or omit the option.",
        ),
    ],
)
def test_an_option_that_would_fail_later_is_refused_at_once(
    option: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        Options(**{"steps": 1} | option)
    assert str(refusal.value) == sentence


def test_environment_arguments_are_numbers_strings_and_lists() -> None:
    assert Task("x", "Pendulum-v1", env_kwargs={"g": np.float32(9)}).env_kwargs == {"g": 9.0}
    with pytest.raises(UserError, match="env_kwargs that cannot be stored as JSON"):
        plan_cohorts(
            make_runs(
                Task("x", "Pendulum-v1", env_kwargs={"g": object()}), "sac", "default", [0], {}
            )
        )


def test_a_batch_larger_than_the_buffer_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^batch must be at most the replay capacity \(10\), not 11\.$"
    ):
        make_config("sac", overrides={"batch": 11, "capacity": 10})
    assert make_config("sac", overrides={"batch": 10, "capacity": 10}).batch == 10


@pytest.mark.parametrize(
    "edge", [{"xi": 0.0}, {"xi": 0.999}, {"gamma": 0.0}, {"tau": 1.0}, {"shots": 1}, {"warmup": 0}]
)
def test_the_limits_of_allowed_ranges_are_accepted(edge: dict[str, Any]) -> None:
    config = make_config("pac4sac", overrides=edge)
    assert {name: getattr(config, name) for name in edge} == edge


def test_text_is_read_by_the_type_of_the_setting() -> None:
    config = make_config(
        "pac4sac",
        overrides={
            "xi": "0.5",
            "shots": "7",
            "norm": "False",
            "activation": "relu",
            "learn_alpha": "true",
        },
    )
    read = [getattr(config, name) for name in ("xi", "shots", "norm", "activation", "learn_alpha")]
    assert read == [0.5, 7, False, "relu", True]
    with pytest.raises(UserError, match=r"shots must be a whole number at least 1, not '7\.5'"):
        make_config("pac4sac", overrides={"shots": "7.5"})


@pytest.mark.parametrize(
    ("algo", "overrides", "sentence"),
    [
        ("pac4sca", {}, "Unknown algorithm 'pac4sca'; did you mean pac4sac"),
        ("zzz", {}, "Unknown algorithm 'zzz'; use one of pac4sac, sac,"),
        ("sac", {"gama": 0.9}, "sac has no setting 'gama'; did you mean gamma"),
        ("sac", {"xi": 0.1}, "sac has no setting 'xi'; "),
        ("sac", {"Ω": 1}, "sac has no setting 'Ω'; it has gamma, tau,"),
    ],
)
def test_an_unknown_name_gets_the_nearest_suggestion(
    algo: str, overrides: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        make_config(algo, overrides=overrides)
    assert str(refusal.value).startswith(sentence)


def test_an_unknown_preset_is_reported_with_the_existing_presets() -> None:
    with pytest.raises(
        UserError,
        match=r"^pac4sac has no preset 'papre'; it has default, reproduction, best, mujoco\.$",
    ):
        make_config("pac4sac", "papre")


@pytest.mark.parametrize(
    ("preset", "on_cartpole", "elsewhere"),
    [("default", 1, 1), ("reproduction", 4, 1), ("best", 16, 4), ("mujoco", 1, 1)],
)
def test_updates_per_step_follow_the_task_if_the_preset_says_so(
    preset: str, on_cartpole: int, elsewhere: int
) -> None:
    def updates(task: str, **settings: list[int]) -> int:
        return make_runs(get_task(task), "pac4sac", preset, [0], settings)[
            0
        ].config.updates_per_step

    assert updates("cartpole-swingup") == on_cartpole
    assert updates("ant") == updates("Pendulum-v1") == elsewhere
    assert updates("cartpole-swingup", updates_per_step=[7]) == 7


def settings(algo: str, *names: str, preset: str = "default") -> list[Any]:
    return [getattr(make_config(algo, preset), name) for name in names]


NETWORKS = ("width", "depth", "norm", "activation")
LEARNING = ("lr", "batch", "capacity", "warmup", "tau", "gamma")
PAPER = [256, 3, True, "silu", 1e-3, 32, 25_000, 1_000, 0.005, 0.99]
USUAL = [256, 2, False, "relu", 3e-4, 256, 1_000_000, 10_000, 0.005, 0.99]


def test_the_defaults_of_pac4sac_follow_the_paper() -> None:
    assert settings("pac4sac", *NETWORKS, *LEARNING) == PAPER
    names = ("critics", "log_variance", "alpha", "learn_alpha", "xi", "conservative", "shots")
    assert settings("pac4sac", *names) == [1, -4.6, 0.2, False, 0.01, 1.0, 500]
    assert make_config("pac4sac", "reproduction") == make_config("pac4sac")
    for algo in ("pac4ddpg", "oac-gauss", "pac4sac-mixture", "pac4sac-index", "pac4sac-bounded"):
        assert settings(algo, *NETWORKS, *LEARNING) == PAPER
    for algo in ("oac-gauss", "pac4sac-mixture", "pac4sac-index"):
        assert settings(algo, "alpha", "learn_alpha") == [0.2, False]


def test_the_defaults_of_the_baselines_are_those_of_their_publications() -> None:
    for algo in ("sac", "sac-auto", "oac", "pbac", "ddpg"):
        assert settings(algo, *NETWORKS, *LEARNING) == USUAL
    for algo in ("sac", "oac", "pbac", "crossq", "redq", "droq", "tqc"):
        names = ("alpha", "learn_alpha", "target_entropy", "shots", "updates_per_step")
        updates = 20 if algo in ("redq", "droq") else 1
        assert settings(algo, *names) == [1.0, True, -1.0, 1, updates]
    assert settings("td3", "warmup", "policy_delay", "noise", "smoothing") == [25_000, 2, 0.1, 0.2]
    assert settings("crossq", "lr", "warmup", "critic_width", "beta_1") == [1e-3, 5_000, 2048, 0.5]
    assert settings("redq", "warmup", "critics", "subset") == [5_000, 10, 2]
    assert settings("droq", "warmup", "critics", "dropout") == [5_000, 2, 0.01]
    assert settings("tqc", "warmup", "critic_width", "critic_depth") == [256, 512, 3]
    assert settings("oac", "beta", "shift", "critics") == [4.66, 23.53, 2]
    assert settings("ddpg", "noise", "noise_kind") == [0.1, "white"]


@pytest.mark.parametrize("algo", [name for name in ALGORITHMS if name != "pac4sac-repo"])
def test_the_preset_reproduction_has_the_same_networks_and_replay_for_all(algo: str) -> None:
    normalised = ("crossq", "xqc", "flashsac")  # by batch normalisation
    expected = PAPER if algo not in normalised else [256, 3, False, *PAPER[3:]]
    assert settings(algo, *NETWORKS, *LEARNING, preset="reproduction") == expected
    assert settings(algo, "critic_width", "critic_depth", preset="reproduction") == [0, 0]


def test_in_the_preset_reproduction_sac_auto_differs_from_sac_only_in_learned_alpha() -> None:
    sac, auto = (make_config(algo, "reproduction") for algo in ("sac", "sac-auto"))
    assert (sac.alpha, sac.learn_alpha) == (0.2, False)
    assert dataclasses.replace(sac, learn_alpha=True) == auto
    assert make_config("sac", "calibrated") == dataclasses.replace(sac, alpha=0.1)


def test_pac4sac_repo_is_the_released_code() -> None:
    names = ("critics", "prior_mean", "log_variance", "delta", "learn_alpha", "alpha", "alpha_loss")
    assert settings("pac4sac-repo", *names) == [2, 1.0, -10.0, 0.05, True, 0.2, "plain"]
    assert settings("pac4sac-repo", *NETWORKS, *LEARNING) == USUAL


def test_the_baselines_of_the_reproduction_have_the_papers_settings() -> None:
    assert settings("oac-gauss", "critics", "shift") == [1, 23.53]
    assert settings("oac-lab", "shift", "alpha", "learn_alpha", "smoothing") == [
        0.1,
        0.0,
        False,
        0.447,
    ]
    assert settings("sac-nr", "clean", "matching") == [0.1, 0.002]
    assert settings("sac-fpi", "critics") == [1]


# --- settings of stored runs


def test_a_stored_run_is_read_without_retired_settings_that_had_no_effect() -> None:
    config = dataclasses.asdict(make_config("pac4sac"))
    retired = {"prior_mean": 0.0, "head": "gaussian", "least_alpha": 0.0, "forgetting": 0.995}
    assert stored_config("pac4sac", config | retired) == make_config("pac4sac")


@pytest.mark.parametrize("algo", ["pac4sac", "flashsac"])
def test_older_runs_with_lr_end_for_every_agent_are_read(algo: str) -> None:
    config = dataclasses.asdict(make_config(algo)) | {"lr_end": 0.25}
    read = dataclasses.asdict(stored_config(algo, config))
    assert read.get("lr_end") == {"flashsac": 0.25}.get(algo)
    assert read["lr_steps"] == config["lr_steps"]


def test_a_stored_run_whose_retired_setting_had_an_effect_is_refused() -> None:
    config = dataclasses.asdict(make_config("pac4sac"))
    with pytest.raises(UserError, match="pac4sac no longer has the settings prior=moving"):
        stored_config("pac4sac", config | {"prior": "moving"})


def test_a_stored_run_has_the_value_that_was_in_effect_before_a_setting_existed() -> None:
    config = dataclasses.asdict(make_config("crossq"))
    del config["log_std_max"], config["alpha_beta_1"]
    expected = make_config("crossq", overrides={"log_std_max": 1.0, "alpha_beta_1": 0.5})
    assert stored_config("crossq", config) == expected
    (run,) = make_runs(get_task("Pendulum-v1"), "sac", "default", [0], {})
    about = run.describe()
    assert run.matches(about)
    del about["config"]["log_std_max"]
    assert not run.matches(about)
    (paper,) = make_runs(get_task("Pendulum-v1"), "sac", "reproduction", [0], {})
    about = paper.describe()
    del about["config"]["log_std_max"]
    assert paper.matches(about)


def test_only_the_papers_presets_cap_the_policys_std_lower_than_the_field() -> None:
    caps = {algo: settings(algo, "log_std_max")[0] for algo in ("sac", "oac", "tqc", "crossq")}
    assert set(caps.values()) == {2.0}
    assert settings("pac4sac", "log_std_max", preset="mujoco") == [2.0]
    for algo in ("pac4sac", "sac", "oac-lab", "redq", "droq", "tqc", "crossq", "pbac"):
        assert settings(algo, "log_std_max", preset="reproduction") == [1.0]
    with pytest.raises(UserError, match="log_std_max must be a number in"):
        make_config("sac", overrides={"log_std_max": -5.0})
    agent = make_agent("sac", log_std_max=0.5)
    actor = agent.nets["actor"]
    assert isinstance(actor, GaussianActor)
    std = actor.std(torch.tensor([-20.0, 0.0, 3.0]))
    torch.testing.assert_close(std, torch.tensor([-5.0, 0.0, 0.5]).exp())


def test_a_custom_algorithm_is_found_by_module_and_class() -> None:
    assert get_algorithm("pac4sac.agents.sac:Sac").agent is ALGORITHMS["sac"].agent
    for name, sentence in [
        ("no_such_module:Class", "could not be imported"),
        ("pac4sac.agents.sac:NoSuchClass", "could not be imported"),
        ("math:sqrt", "must be a subclass of pac4sac.Agent"),
        (
            "pac4sac.agents.base:Agent",
            "lacks actor_loss, behaviour, bellman_target, deterministic_action, networks",
        ),
    ]:
        with pytest.raises(UserError, match=sentence):
            get_algorithm(name)


def test_every_setting_is_explained_and_either_per_run_or_structural() -> None:
    for algorithm in ALGORITHMS.values():
        assert issubclass(algorithm.agent, Agent)
        config = algorithm.agent.Config()
        per_run = set(config.per_run_names())
        assert per_run.isdisjoint(config.structure())
        assert per_run | set(config.structure()) == {f.name for f in dataclasses.fields(config)}
        assert all(f.metadata["help"] for f in dataclasses.fields(config))
        assert issubclass(type(config), AgentConfig)
