"""Names of tasks, and what becomes of an environment that is made into one."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.tasks import TASKS, Task, chosen_task, get_task, make_env
from pac4sac.tasks.catalogue import FIELD_TASKS
from pac4sac.tasks.registry import register_environments


class Echo(gymnasium.Env[Any, Any]):
    """Hands back the action it was given; observes a sample of its space; ends when told to."""

    def __init__(self, action_space: Any, observation_space: Any, ends_at: int = -1) -> None:
        self.action_space = action_space
        self.observation_space = observation_space
        self.ends_at = ends_at

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return (
            self.observation_space.sample(),
            1.0,
            self.steps == self.ends_at,
            False,
            {"action": action},
        )


UNIT = spaces.Box(-1, 1, (2,), np.float32)


@pytest.fixture
def echo_task(monkeypatch: pytest.MonkeyPatch) -> Task:
    # Spaces go in as keyword options, as a user's own options would.
    monkeypatch.setitem(
        gymnasium.registry, "Echo-v0", gymnasium.envs.registration.EnvSpec("Echo-v0", Echo)
    )
    return replace(
        get_task("Echo-v0"), env_kwargs={"action_space": UNIT, "observation_space": UNIT}
    )


def with_spaces(task: Task, **spaces_: Any) -> Task:
    return replace(task, env_kwargs=task.env_kwargs | spaces_)


def test_the_shipped_tasks_are_those_of_the_paper() -> None:
    assert {
        name: (t.env_id, t.horizon, t.r_limit, t.steps, t.updates_per_step)
        for name, t in TASKS.items()
    } == {
        "cartpole-swingup": ("pac4sac/CartpoleSwingup-v0", 1000, 850, 40_000, 4),
        "half-cheetah": ("pac4sac/HalfCheetah-v0", 1000, 2000, 250_000, 1),
        "ant": ("pac4sac/Ant-v0", 1000, 2500, 500_000, 1),
        "humanoid": ("pac4sac/Humanoid-v0", 1000, 3500, 500_000, 1),
    }


@pytest.mark.parametrize(
    ("name", "observations", "actions"),
    [("cartpole-swingup", 5, 1), ("half-cheetah", 17, 6), ("ant", 111, 8), ("humanoid", 376, 17)],
)
def test_a_shipped_environment_is_found_by_its_gymnasium_id(
    name: str, observations: int, actions: int
) -> None:
    register_environments()
    register_environments()  # a second time is no fault, and no warning
    env = gymnasium.make(TASKS[name].env_id)
    assert env.observation_space.shape == (observations,)
    assert env.action_space.shape == (actions,)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 1000


def test_any_gymnasium_id_is_a_task_with_the_environments_own_limits() -> None:
    task = get_task("Pendulum-v1")
    assert (task.name, task.env_id, task.horizon, task.r_limit) == (
        "Pendulum-v1",
        "Pendulum-v1",
        200,
        None,
    )
    assert get_task("MountainCarContinuous-v0").r_limit == 90.0


def test_a_benchmark_task_has_its_usual_budget_and_gymnasiums_limits() -> None:
    assert get_task("HalfCheetah-v5").steps == 1_000_000
    assert get_task("dm_control/cheetah-run-v0").steps == 500_000
    for name, task in FIELD_TASKS["mujoco"].items():
        spec = gymnasium.registry[name]
        assert (task.env_id, task.horizon, task.r_limit) == (
            name,
            spec.max_episode_steps,
            spec.reward_threshold,
        )


@pytest.mark.parametrize(
    ("extra", "name"), [(extra, name) for extra, tasks in FIELD_TASKS.items() for name in tasks]
)
def test_an_episode_of_a_benchmark_task_ends_at_its_time_limit(extra: str, name: str) -> None:
    for package in {"mujoco": ["mujoco"], "dmc": ["dm_control", "shimmy"]}[extra]:
        pytest.importorskip(package)
    env = make_env(replace(get_task(name), horizon=3), unit_actions=True)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    steps = [env.step(np.zeros(env.action_space.shape or (), np.float32)) for _ in range(3)]
    assert [(terminated, truncated) for _, _, terminated, truncated, _ in steps] == [
        (False, i == 2) for i in range(3)
    ]
    env.close()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("half-cheeta", "half-cheetah"), ("Pendulm-v1", "Pendulum-v1"), ("ANT", "ant")],
)
def test_a_misspelt_name_gets_the_nearest_names(name: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"'{name}'; did you mean .*{nearest}"):
        get_task(name)


def test_a_name_without_similar_names_gets_all_shipped_tasks() -> None:
    with pytest.raises(UserError, match="use one of cartpole-swingup, half-cheetah, ant, humanoid"):
        get_task("qqqqqqqq")


def test_a_module_before_the_id_is_imported_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_environments.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', 'gymnasium.envs.classic_control.pendulum:PendulumEnv', "
        "max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    env = make_env(get_task("my_environments:Mine-v0"))
    env.reset(seed=0)
    truncations = [env.step(np.zeros(1, np.float32))[3] for _ in range(7)]
    assert truncations == [False] * 6 + [True]
    gymnasium.registry.pop("Mine-v0")


def test_an_unknown_environment_of_a_module_gets_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_environments.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Theirs-v0', "
        "'gymnasium.envs.classic_control.pendulum:PendulumEnv', max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):  # the import registers only once
        with pytest.raises(UserError, match=r"did you mean their_environments:Theirs-v0\?"):
            get_task("their_environments:Hopper-v9")
    gymnasium.registry.pop("Theirs-v0")


def test_the_command_finds_a_module_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nearby_environments.py").write_text(
        "import gymnasium\ngymnasium.register('Near-v0', 'nowhere:Env')\n"
    )
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]
    )
    monkeypatch.chdir(tmp_path)
    assert main(["train", "nearby_environments:Nope-v0"]) == 2
    assert "did you mean nearby_environments:Near-v0?" in capsys.readouterr().err
    gymnasium.registry.pop("Near-v0")


def test_an_unknown_class_of_a_module_gets_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_classes.py").write_text(
        "import gymnasium\nclass Docking(gymnasium.Env):\n    pass\n"
        "class Dokin(gymnasium.Wrapper):\n    pass\n"
    )
    (tmp_path / "nothing_here.py").write_text("import gymnasium\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"did you mean own_classes:Docking\?"):
        chosen_task("own_classes:Doking")
    with pytest.raises(UserError, match="module 'nothing_here' has no such class or function"):
        chosen_task("nothing_here:Doking")


@pytest.mark.parametrize("name", [":Pendulum-v1", "gymnasium:", ":", ""])
def test_a_name_with_an_empty_part_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="Unknown task or environment"):
        get_task(name)


def test_a_missing_module_is_reported() -> None:
    with pytest.raises(UserError, match="no module 'no_such_module'"):
        get_task("no_such_module:Mine-v0")


def test_actions_are_scaled_from_the_unit_cube_to_the_bounds(echo_task: Task) -> None:
    bounds = spaces.Box(np.array([-3.0, 0.0]), np.array([1.0, 10.0]), dtype=np.float64)
    env = make_env(with_spaces(echo_task, action_space=bounds), unit_actions=True)
    env.reset(seed=0)
    assert env.action_space == UNIT
    for given, expected in {
        (-1, -1): (-3, 0),
        (1, 1): (1, 10),
        (0, 0.5): (-1, 7.5),
        (5, -5): (1, 0),
    }.items():
        taken = env.step(np.array(given, np.float32))[4]["action"]
        assert taken.dtype == np.float64
        assert taken.tolist() == list(expected)


def test_actions_are_in_environment_units_unless_unit_actions_is_set(echo_task: Task) -> None:
    bounds = spaces.Box(np.array([[-3.0], [0.0]]), np.array([[1.0], [10.0]]), dtype=np.float64)
    env = make_env(with_spaces(echo_task, action_space=bounds))
    env.reset(seed=0)
    assert env.action_space == bounds
    assert env.step(np.array([[-2.5], [9.0]]))[4]["action"].tolist() == [[-2.5], [9.0]]


def test_scaling_never_leaves_the_bounds_by_rounding(echo_task: Task) -> None:
    bounds = spaces.Box(np.float32(-0.1), np.float32(0.7), (1,), np.float32)
    env = make_env(with_spaces(echo_task, action_space=bounds), unit_actions=True)
    env.reset(seed=0)
    for edge in (-1.0, 1.0):
        assert bounds.contains(env.step(np.array([edge], np.float32))[4]["action"])


def test_actions_of_any_shape_become_vectors(echo_task: Task) -> None:
    env = make_env(
        with_spaces(echo_task, action_space=spaces.Box(-2, 2, (2, 3), np.float32)),
        unit_actions=True,
    )
    env.reset(seed=0)
    assert env.action_space.shape == (6,)
    taken = env.step(np.array([0, 0.5, 1, -1, -0.5, 0], np.float32))[4]["action"]
    assert taken.tolist() == [[0, 1, 2], [-2, -1, 0]]


def test_a_dictionary_of_observations_becomes_one_float32_vector(echo_task: Task) -> None:
    mixed = spaces.Dict(
        position=spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
        gear=spaces.Discrete(3),
        speed=spaces.Box(0, 9, ()),
    )
    env = make_env(with_spaces(echo_task, observation_space=mixed))
    observation, _ = env.reset(seed=1)
    mixed.seed(1)
    raw = mixed.sample()
    one_hot = np.eye(3)[raw["gear"]]
    expected = np.concatenate([one_hot, raw["position"].ravel(), [raw["speed"]]]).astype(np.float32)
    assert observation.dtype == np.float32
    assert env.observation_space.contains(observation)
    np.testing.assert_array_equal(np.sort(observation), np.sort(expected))


@pytest.mark.parametrize(("shape", "size"), [((), 1), ((4,), 4), ((2, 3), 6)])
def test_box_observations_of_any_shape_and_precision_are_flat_float32(
    echo_task: Task, shape: tuple[int, ...], size: int
) -> None:
    env = make_env(with_spaces(echo_task, observation_space=spaces.Box(-5, 5, shape, np.float64)))
    observation, _ = env.reset(seed=0)
    assert (observation.shape, observation.dtype) == ((size,), np.float32)
    assert env.observation_space.contains(env.step(np.zeros(2, np.float32))[0])


def test_the_horizon_truncates_and_does_not_change_termination(echo_task: Task) -> None:
    env = make_env(replace(with_spaces(echo_task, ends_at=3), horizon=3))
    for _ in range(2):  # the count starts afresh with each episode
        env.reset(seed=0)
        ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), (True, True)]
    env = make_env(replace(echo_task, horizon=2))
    env.reset(seed=0)
    assert [env.step(np.zeros(2, np.float32))[2:4] for _ in range(2)] == [
        (False, False),
        (False, True),
    ]


IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"action_space": spaces.Discrete(4)},
            "has Discrete actions, but agents support only continuous actions",
        ),
        ({"action_space": spaces.MultiDiscrete([2, 3])}, "has MultiDiscrete actions"),
        ({"action_space": spaces.Box(0, 3, (2,), np.int64)}, "has integer actions"),
        ({"action_space": spaces.Dict(arm=UNIT)}, "has Dict actions"),
        (
            {"action_space": spaces.Box(-np.inf, 1, (2,), np.float32)},
            "unbounded action space.* wrap the environment",
        ),
        ({"observation_space": IMAGE}, "has image observations"),
        ({"observation_space": spaces.Dict(camera=IMAGE, speed=UNIT)}, "has image observations"),
        (
            {"observation_space": spaces.Sequence(UNIT)},
            "has the observation space Sequence, which has no fixed length",
        ),
        ({"colour": "red"}, "does not take all of the options .*colour"),
    ],
)
def test_unsupported_environments_are_refused_in_one_sentence(
    echo_task: Task, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        make_env(with_spaces(echo_task, **wrong))


def test_missing_packages_are_reported_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("mujoco", "dm_control"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"'Hopper-v5' needs MuJoCo.*pip install .*\[mujoco\]"):
        make_env(get_task("Hopper-v5"))
    with pytest.raises(UserError, match=r"needs dm_control.*pip install .*\[dmc\]"):
        make_env(get_task("dm_control/cartpole-swingup-v0"))
