"""Reward wrappers: what they pay, and how a task names them."""

import json
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.tasks import Task, get_task, make_env
from pac4sac.tasks.catalogue import EXPLORATION_TASKS, portable
from pac4sac.tasks.registry import given_task
from pac4sac.tasks.wrappers import PositionDelay, TargetReward


class Cart(gymnasium.Env[Any, Any]):
    """A cart that its action moves along x; a step takes half a second."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    dt = 0.5

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.x = 0.0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += float(action[0])
        return self.observe(), 7.0, False, False, {}

    def observe(self) -> Any:
        return np.array([self.x, -self.x], np.float32)

    def position(self) -> tuple[float, float]:
        return self.x, 0.0


def rewards(env: gymnasium.Env[Any, Any], *actions: float) -> list[float]:
    env.reset(seed=0)
    return [float(env.step(np.array([a], np.float32))[1]) for a in actions]


class TestPositionDelay:
    def test_rewards_speed_beyond_the_distance_minus_the_action_cost(self) -> None:
        env = PositionDelay(Cart(), distance=1.5, action_cost=0.1)
        # x = 1, 2, 1: speed 2, 2, −2 m/s, of which only the second is paid
        assert rewards(env, 1.0, 1.0, -1.0) == pytest.approx([-0.1, 2.0 - 0.1, -0.1])

    def test_restarts_with_each_episode(self) -> None:
        env = PositionDelay(Cart(), distance=0.5, action_cost=0.0)
        assert rewards(env, 1.0) == rewards(env, 1.0) == [2.0]

    def test_refuses_an_environment_without_an_x_position(self) -> None:
        env = gymnasium.make("Pendulum-v1")
        with pytest.raises(UserError, match="PendulumEnv has no x position"):
            PositionDelay(env)

    @pytest.mark.parametrize(
        ("name", "has_one"),
        [("Hopper-v5", True), ("Ant-v5", True), ("Reacher-v5", False), ("Pusher-v5", False)],
    )
    def test_needs_a_first_joint_that_moves_along_x(self, name: str, has_one: bool) -> None:
        pytest.importorskip("mujoco")
        env = gymnasium.make(name)
        if has_one:
            assert PositionDelay(env).reset(seed=0)[0].shape == env.observation_space.shape
        else:
            with pytest.raises(UserError, match="has no x position"):
                PositionDelay(env)

    @pytest.mark.parametrize("argument", ["distance", "action_cost"])
    def test_refuses_negative_arguments(self, argument: str) -> None:
        with pytest.raises(UserError, match=f"{argument} .* at least 0, not -1"):
            PositionDelay(Cart(), **{argument: -1.0})

    @pytest.mark.parametrize("distance", ["far", None, True, float("nan")])
    def test_refuses_arguments_that_are_not_numbers(self, distance: Any) -> None:
        with pytest.raises(UserError, match="distance"):
            PositionDelay(Cart(), distance=distance)


class TestTargetReward:
    def test_is_1_inside_the_box_and_0_elsewhere(self) -> None:
        env = TargetReward(Cart(), low={"0": 1.0}, high={"0": 2.0, "1": -1.0})
        assert rewards(env, 0.5, 0.5, 1.0, 0.5) == [0.0, 1.0, 1.0, 0.0]

    def test_takes_indices_as_numbers(self) -> None:
        assert rewards(TargetReward(Cart(), low={0: 1.0}), 0.5, 0.5) == [0.0, 1.0]  # type: ignore[dict-item]

    @pytest.mark.parametrize("limit", [1.5, -1.5])
    def test_refuses_limits_that_no_observation_has(self, limit: float) -> None:
        with pytest.raises(UserError, match=r"low\.0 .* in \[-1, 1\], not -?1\.5"):
            TargetReward(gymnasium.make("Pendulum-v1"), low={"0": limit})

    def test_refuses_observations_that_are_not_a_vector(self) -> None:
        env = gymnasium.make("Blackjack-v1")
        with pytest.raises(UserError, match="needs a Box as the observation space, not Tuple"):
            TargetReward(env)

    @pytest.mark.parametrize("low", [{"2": 0.0}, {"x": 0.0}, {"0": "a"}, {"-1": 0.0}, [1.0]])
    def test_refuses_limits_of_nothing(self, low: Any) -> None:
        with pytest.raises(UserError, match="sparse-target"):
            TargetReward(Cart(), low=low)

    def test_refuses_an_empty_box(self) -> None:
        with pytest.raises(UserError, match="lower limit above"):
            TargetReward(Cart(), low={"0": 1.0}, high={"0": 0.0})


class TestATask:
    wrappers = ({"wrapper": "sparse-target", "low": {"0": 0.9}},)

    def test_is_made_with_its_wrappers(self) -> None:
        env = make_env(replace(get_task("Pendulum-v1"), wrappers=list(self.wrappers)))
        env.reset(seed=0)
        paid = {float(env.step(env.action_space.sample())[1]) for _ in range(300)}
        assert paid <= {0.0, 1.0}

    def test_without_wrappers_is_stored_as_before_there_were_any(self) -> None:
        assert "wrappers" not in portable(get_task("Pendulum-v1"))

    def test_with_wrappers_is_read_back(self) -> None:
        task = replace(get_task("Pendulum-v1"), wrappers=list(self.wrappers))
        assert Task(**json.loads(json.dumps(portable(task)))) == task

    @pytest.mark.parametrize(
        ("wrappers", "message"),
        [
            ("sparse", "must be a list"),
            ([3], "or a dictionary such as"),
            ([{"name": "sparse-target"}], "or a dictionary such as"),
            ([{"wrapper": "sparse-targe"}], "did you mean sparse-target"),
        ],
    )
    def test_of_unknown_or_malformed_wrappers_is_refused(self, wrappers: Any, message: str) -> None:
        with pytest.raises(UserError, match=message):
            replace(get_task("Pendulum-v1"), wrappers=wrappers)

    def test_with_an_unknown_argument_is_refused_when_it_is_made(self) -> None:
        wrappers = [{"wrapper": "position-delay", "metres": 2.0}]
        with pytest.raises(UserError, match="does not accept"):
            make_env(replace(get_task("Pendulum-v1"), wrappers=wrappers))

    def test_is_shown_by_its_name_if_it_is_in_the_suite(self) -> None:
        task = get_task("cartpole-swingup-sparse")
        assert given_task(task) == {"task": "cartpole-swingup-sparse", "changes": {}}

    def test_records_the_source_of_its_wrappers(self, tmp_path: Any) -> None:
        result = pac4sac.train(
            *("cartpole-swingup-sparse", "sac"), steps=60, out=tmp_path / "a", device="cpu",
            backend="eager", workers=0, settings={"warmup": 30, "batch": 8, "width": 8},
            evaluation_episodes=1,
        )  # fmt: skip
        about = json.loads((result.runs[0].folder / "run.json").read_text())
        assert about["task"]["wrappers"] == get_task("cartpole-swingup-sparse").wrappers
        assert "pac4sac.tasks.wrappers" in about["code"]


@pytest.mark.parametrize("name", ["half-cheetah-delayed", "ant-delayed"])
def test_random_actions_get_no_reward_on_delayed_robots(name: str) -> None:
    env = make_env(replace(get_task(name), horizon=60))
    env.reset(seed=0)
    env.action_space.seed(0)
    total = [float(env.step(env.action_space.sample())[1]) for _ in range(60)]
    assert min(total) > -0.01
    assert max(total) < 0


def test_the_sparse_swing_up_rewards_an_upright_pole_near_the_centre() -> None:
    env = make_env(get_task("cartpole-swingup-sparse"))
    target = env.env
    assert isinstance(target, TargetReward)
    inside = np.array([0.2, 0.0, 0.996, 0.0, 0.0], np.float32)
    for observation, expected in [
        (inside, 1.0),
        (inside * [2, 1, 1, 1, 1], 0.0),
        (inside * [-1, 1, 1, 1, 1], 1.0),
        (inside * [1, 1, 0.99, 1, 1], 0.0),
    ]:
        target.env = type("Still", (Cart,), {"observe": lambda self, o=observation: o})()
        target.env.reset()
        assert target.step(np.zeros(1))[1] == expected


def test_every_task_of_the_suite_has_a_threshold_and_a_budget() -> None:
    for tasks in EXPLORATION_TASKS.values():
        for task in tasks.values():
            assert task.r_limit is not None
            assert task.horizon is not None
            assert task.steps > 0


MUJOCO_ROBOTS = ("HalfCheetah", "Ant", "Hopper", "Humanoid")


@pytest.mark.parametrize("robot", MUJOCO_ROBOTS)
def test_mujoco_robots_are_rewarded_for_speed_beyond_the_distance(robot: str) -> None:
    pytest.importorskip("mujoco")
    task = get_task(f"{robot}-v5-delayed")
    env = make_env(task)
    env.reset(seed=1)
    env.action_space.seed(1)
    raw: Any = env.env.unwrapped
    for far, is_paid in ((-0.5, False), (0.5, True)):
        position = raw.data.qpos.copy()
        position[0] = task.wrappers[0]["distance"] + far
        raw.set_state(position, raw.data.qvel.copy())
        env.step(env.action_space.sample())  # which sees the jump
        x, action = raw.data.qpos[0], env.action_space.sample()
        reward = env.step(action)[1]
        speed = (raw.data.qpos[0] - x) / raw.dt
        cost = 0.001 * np.square(action.astype(np.float64)).sum()
        assert speed != 0
        assert reward == pytest.approx(is_paid * speed - cost, abs=1e-9)


@pytest.mark.parametrize("name", EXPLORATION_TASKS["dmc"])
def test_dm_control_tasks_repeat_each_action_twice(name: str) -> None:
    pytest.importorskip("shimmy")
    env, steps, truncated = make_env(get_task(name)), 0, False
    env.reset(seed=0)
    env.action_space.seed(0)
    while not truncated:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert 0 <= float(reward) <= 2
        assert not terminated
        steps += 1
    assert steps == 500
