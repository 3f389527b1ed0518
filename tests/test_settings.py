"""Settings: a value that cannot be is refused in one sentence with its name, itself and what is
allowed."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from pac4sac.agents import ALGORITHMS, Agent, get_algorithm, make_config
from pac4sac.agents.settings import AgentConfig
from pac4sac.base.errors import UserError
from pac4sac.runs.run import make_runs, plan_cohorts, settings_grid
from pac4sac.tasks import Task, get_task
from pac4sac.training.options import Options


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
            "pac4sac",
            "head",
            "plain",
            "head must be one of gaussian, full, linear, regression, not 'plain'.",
        ),
        ("pac4sac", "delta", 0.0, "delta must be a number in (0, 1), not 0.0."),
        ("pac4sac", "prior_mean", math.nan, "prior_mean must be a number, not nan."),
        ("pac4sac", "prior_variance", 0, "prior_variance must be a number above 0, not 0."),
        ("sac-fpi", "critics", 2, "critics must be a whole number in [1, 1], not 2."),
        ("sac-nr", "clean", 1.1, "clean must be a number in [0, 1], not 1.1."),
        ("ddpg", "noise", "loud", "noise must be a number at least 0, not 'loud'."),
        ("sac", "gamma", None, "gamma must be a number in [0, 1), not None."),
        ("sac", "gamma", [0.9], "gamma must be a number in [0, 1), not [0.9]."),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    algo: str, name: str, value: Any, sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        make_config(algo, overrides={name: value})
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_no_number_of_any_algorithm_may_be_infinite_or_nan_or_a_truth_value(algo: str) -> None:
    """1e39 is infinite in float32, in which the learner computes."""
    for f in dataclasses.fields(ALGORITHMS[algo].agent.Config):
        if type(f.default) in (int, float):
            for value in (math.nan, math.inf, -math.inf, True, "nan", "inf", 1e39, 10**400):
                with pytest.raises(UserError, match=f"^{f.name} must be a "):
                    make_config(algo, overrides={f.name: value})


def test_a_sweep_without_values_is_refused() -> None:
    with pytest.raises(UserError, match="The sweep over xi has no values"):
        settings_grid({"xi": []})


def test_runs_are_named_by_values_however_these_are_written() -> None:
    def labels(**swept: list[Any]) -> list[str]:
        return [
            run.label for run in make_runs(get_task("cartpole-swingup"), "sac", "paper", [0], swept)
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
            "start_from names no agent; give a run folder or an agent.safetensors, or leave "
            "it out.",
        ),
    ],
)
def test_an_option_that_would_fail_later_is_refused_at_once(
    option: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        Options(**{"steps": 1} | option)
    assert str(refusal.value) == sentence


def test_arguments_of_an_environment_are_numbers_texts_and_lists() -> None:
    assert Task("x", "Pendulum-v1", env_kwargs={"g": np.float32(9)}).env_kwargs == {"g": 9.0}
    with pytest.raises(UserError, match="env_kwargs that cannot be written down"):
        plan_cohorts(
            make_runs(Task("x", "Pendulum-v1", env_kwargs={"g": object()}), "sac", "paper", [0], {})
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
def test_the_edges_of_what_is_allowed_are_allowed(edge: dict[str, Any]) -> None:
    config = make_config("pac4sac", overrides=edge)
    assert {name: getattr(config, name) for name in edge} == edge


def test_text_is_read_by_the_type_of_the_setting() -> None:
    config = make_config(
        "pac4sac",
        overrides={
            "xi": "0.5",
            "shots": "7",
            "norm": "False",
            "head": "linear",
            "learn_alpha": "true",
        },
    )
    read = [getattr(config, name) for name in ("xi", "shots", "norm", "head", "learn_alpha")]
    assert read == [0.5, 7, False, "linear", True]
    with pytest.raises(UserError, match=r"shots must be a whole number at least 1, not '7\.5'"):
        make_config("pac4sac", overrides={"shots": "7.5"})


@pytest.mark.parametrize(
    ("algo", "overrides", "sentence"),
    [
        ("pac4sca", {}, "There is no algorithm 'pac4sca'; did you mean pac4sac"),
        ("zzz", {}, "There is no algorithm 'zzz'; there are pac4sac, sac,"),
        ("sac", {"gama": 0.9}, "sac has no setting 'gama'; did you mean gamma"),
        ("sac", {"xi": 0.1}, "sac has no setting 'xi'; "),
        ("sac", {"Ω": 1}, "sac has no setting 'Ω'; it has gamma, tau,"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    algo: str, overrides: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        make_config(algo, overrides=overrides)
    assert str(refusal.value).startswith(sentence)


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        UserError, match=r"^pac4sac has no preset 'papre'; it has paper, repo, best, mujoco\.$"
    ):
        make_config("pac4sac", "papre")


@pytest.mark.parametrize(
    ("preset", "on_cartpole", "elsewhere"), [("paper", 4, 1), ("best", 16, 4), ("repo", 1, 1)]
)
def test_updates_per_step_follow_the_task_where_the_preset_leaves_them_to_it(
    preset: str, on_cartpole: int, elsewhere: int
) -> None:
    def updates(task: str, **settings: list[int]) -> int:
        return make_runs(get_task(task), "pac4sac", preset, [0], settings)[
            0
        ].config.updates_per_step

    assert updates("cartpole-swingup") == on_cartpole
    assert updates("ant") == updates("Pendulum-v1") == elsewhere
    assert updates("cartpole-swingup", updates_per_step=[7]) == 7


def test_the_defaults_are_our_reading_of_the_paper() -> None:
    config = dataclasses.asdict(make_config("pac4sac"))
    expected = {
        **{
            "critics": 1,
            "width": 256,
            "depth": 3,
            "norm": True,
            "activation": "silu",
            "log_variance": -4.6,
        },
        **{
            "prior_mean": 0.0,
            "prior_variance": 1.0,
            "tau": 0.005,
            "gamma": 0.99,
            "alpha": 0.2,
            "learn_alpha": False,
        },
        **{
            "complexity": "paper",
            "xi": 0.01,
            "conservative": 1.0,
            "shots": 500,
            "shoot": "always",
            "lr": 1e-3,
        },
        **{
            "batch": 32,
            "capacity": 25_000,
            "warmup": 1000,
            "target": "mean",
            "target_shots": 1,
            "prior": "fixed",
        },
    }
    assert {name: config[name] for name in expected} == expected


def test_the_preset_repo_is_the_released_code() -> None:
    config = dataclasses.asdict(make_config("pac4sac", "repo"))
    expected = {
        **{
            "critics": 2,
            "depth": 2,
            "norm": False,
            "activation": "relu",
            "prior_mean": 1.0,
            "prior_variance": 1.0,
        },
        **{
            "log_variance": -10.0,
            "freeze_variance": True,
            "delta": 0.05,
            "learn_alpha": True,
            "lr": 3e-4,
        },
        **{
            "batch": 256,
            "capacity": 1_000_000,
            "warmup": 10_000,
            "shoot": "evaluation",
            "complexity": "maurer",
        },
        **{"alpha_loss": "plain"},
    }
    assert {name: config[name] for name in expected} == expected


def test_the_rivals_have_the_settings_of_the_reading() -> None:
    def settings(algo: str, *names: str) -> list[Any]:
        return [getattr(make_config(algo), name) for name in names]

    assert settings("ddpg", "noise") == [0.1]
    assert settings("sac", "critics", "alpha", "learn_alpha", "shots") == [2, 0.2, False, 1]
    assert settings("sac-auto", "learn_alpha") == [True]
    assert settings("oac", "beta", "shift", "critics") == [4.66, 23.53, 2]
    assert settings("oac-gauss", "critics", "head", "shift") == [1, "gaussian", 23.53]
    assert settings("oac-lab", "shift", "alpha", "smoothing", "smoothing_limit") == [
        0.1,
        0.0,
        0.447,
        0.5,
    ]
    assert settings("sac-nr", "clean", "matching") == [0.1, 0.002]
    assert settings("sac-fpi", "critics") == [1]


def test_an_algorithm_of_the_users_own_is_found_by_module_and_class() -> None:
    assert get_algorithm("pac4sac.agents.sac:Sac").agent is ALGORITHMS["sac"].agent
    for name, sentence in [
        ("no_such_module:Class", "could not be imported"),
        ("pac4sac.agents.sac:NoSuchClass", "could not be imported"),
        ("math:sqrt", "is not a subclass of pac4sac.Agent"),
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
