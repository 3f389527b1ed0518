"""The four environments of the paper against recordings of the original library."""

import hashlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from pac4sac.tasks import TASKS, make_env
from pac4sac.tasks.robots import BulletEnv, pybullet

WALKERS = ["half-cheetah", "ant", "humanoid"]
FLOATING = {"ant": 27, "humanoid": 45}  # number of observation entries that are not constant zero


def make(name: str, render_mode: str | None = None, **options: Any) -> BulletEnv:
    env = make_env(replace(TASKS[name], env_kwargs=options), render_mode).unwrapped
    assert isinstance(env, BulletEnv)
    return env


@dataclass
class Episode:
    seed: int
    number: int
    reset_qpos: NDArray[np.float64]
    reset_observation: NDArray[np.float32]
    actions: NDArray[np.float32]
    observations: NDArray[np.float32]
    terms: NDArray[np.float64]


def golden_episodes(name: str) -> Iterator[Episode]:
    data = np.load(Path(__file__).parent / "golden" / f"{name}.npz")
    ends = np.cumsum(data["length"])[:-1]
    actions, observations, terms = (
        np.split(data[field], ends) for field in ("actions", "observations", "terms")
    )
    for i, seed in enumerate(data["seed"].tolist()):
        yield Episode(
            seed,
            int(data["episode"][i]),
            data["reset_qpos"][i],
            data["reset_observation"][i],
            (actions[i] / 1024).astype(np.float32),
            observations[i],
            terms[i],
        )


def joint_positions(env: BulletEnv) -> NDArray[np.float64]:
    indices = [
        index
        for index in range(pybullet.getNumJoints(1, physicsClientId=env._client))
        if pybullet.getJointInfo(1, index, physicsClientId=env._client)[2] != pybullet.JOINT_FIXED
    ]
    return np.array(
        [state[0] for state in pybullet.getJointStates(1, indices, physicsClientId=env._client)]
    )


@pytest.fixture(scope="module")
def same_arithmetic() -> bool:
    """Whether this machine's arithmetic is the recording one's to the last bit, judged where there
    are no contacts."""
    for episode in golden_episodes("cartpole-swingup"):
        env = make("cartpole-swingup")
        if episode.number == 0:
            env.reset(seed=episode.seed)
            rewards = [env.step(action)[1] for action in episode.actions]
            if rewards != episode.terms[:, 0].tolist():
                return False
        env.close()
    return True


@pytest.mark.parametrize("restore_state", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_first_and_second_episodes_repeat_the_original(
    name: str, restore_state: bool, same_arithmetic: bool
) -> None:
    env = make(name, restore_state=restore_state)
    for episode in golden_episodes(name):
        if episode.number == 0:
            env.close()
            env = make(name, restore_state=restore_state)
            first, _ = env.reset(seed=episode.seed)
        else:
            first, _ = env.reset()  # goes on with the generator of the first episode
        np.testing.assert_array_equal(joint_positions(env), episode.reset_qpos)
        informative = len(episode.reset_observation)
        np.testing.assert_allclose(
            first[:informative],
            episode.reset_observation,
            rtol=0,
            atol=0 if same_arithmetic else 1e-6,
        )

        outcomes = [env.step(action) for action in episode.actions]
        observations = np.array([outcome[0] for outcome in outcomes])
        rewards = np.array([outcome[1] for outcome in outcomes])
        terms = np.array([list(outcome[4].values()) for outcome in outcomes])
        # Elsewhere a difference in the last bit grows with each contact: then only the beginning
        # can be compared.
        same = slice(None) if same_arithmetic or name == "cartpole-swingup" else slice(30)
        tolerance = 0.0 if same_arithmetic else 1e-6
        np.testing.assert_allclose(
            observations[same, :informative],
            episode.observations[same],
            rtol=tolerance,
            atol=tolerance,
        )
        assert not observations[:, informative:].any()
        np.testing.assert_allclose(
            terms[same], episode.terms[same], rtol=0, atol=max(tolerance, 1e-9)
        )
        np.testing.assert_allclose(
            rewards[same], episode.terms.sum(1)[same], rtol=0, atol=max(tolerance, 1e-9)
        )
        assert not any(terminated or truncated for _, _, terminated, truncated, _ in outcomes)
    env.close()


@pytest.mark.parametrize("name", TASKS)
def test_gymnasiums_checker_finds_no_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)  # no window while tests run
    env = gymnasium.make(TASKS[name].env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(no display|probably too (low|high))")
        check_env(env.unwrapped)
    env.close()


FINGERPRINT = """
import hashlib, numpy as np
from pac4sac.tasks import TASKS, make_env
digest = hashlib.sha256()
for task in TASKS.values():
    env = make_env(task)
    rng = np.random.default_rng(7)
    for seed in (3, None):
        digest.update(env.reset(seed=seed)[0].tobytes())
        for _ in range(150):
            observation, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
            digest.update(observation.tobytes() + np.float64(reward).tobytes())
print(digest.hexdigest())
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )


def test_two_processes_with_the_same_seed_and_actions_give_the_same_bytes() -> None:
    first, second = run_python(FINGERPRINT).stdout, run_python(FINGERPRINT).stdout
    assert len(first.strip()) == len(hashlib.sha256().hexdigest())
    assert first == second


def test_registration_and_task_names_do_not_load_the_simulator_and_loading_it_prints_nothing() -> (
    None
):
    done = run_python(
        "import sys; from pac4sac.tasks import get_task, make_env; task = get_task('ant')\n"
        "assert 'pybullet' not in sys.modules\n"
        "make_env(task).reset(); assert 'pybullet' in sys.modules"
    )
    assert done.stdout == done.stderr == ""


def rollout(env: BulletEnv, steps: int, **reset: Any) -> tuple[NDArray[np.float32], list[float]]:
    rng = np.random.default_rng(11)
    observations, rewards = [env.reset(**reset)[0]], []
    for _ in range(steps):
        observation, reward, *_ = env.step(
            rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        )
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations), rewards


def same(
    a: tuple[NDArray[np.float32], list[float]], b: tuple[NDArray[np.float32], list[float]]
) -> bool:
    return np.array_equal(a[0], b[0]) and a[1] == b[1]


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_does_not_depend_on_earlier_episodes(name: str) -> None:
    veteran, newcomer = make(name), make(name)
    for seed in range(2):
        rollout(veteran, 60, seed=seed)
    later = rollout(veteran, 200, seed=5)
    assert veteran.episode == 2
    assert same(later, rollout(newcomer, 200, seed=5, options={"episode": 2}))


def test_the_cheetahs_first_episode_has_less_friction() -> None:
    env = make("half-cheetah")
    first, later, latest = (rollout(env, 60, seed=5) for _ in range(3))
    assert same(later, latest)
    assert np.array_equal(first[0][0], later[0][0])
    assert not same(first, later)
    assert same(first, rollout(env, 60, seed=5, options={"episode": 0}))


@pytest.mark.parametrize("name", FLOATING)
def test_only_the_first_reward_of_an_instance_omits_the_ground_from_the_potential(
    name: str,
) -> None:
    env = make(name)
    (first_states, first), (later_states, later) = (
        rollout(env, 20, seed=5),
        rollout(env, 20, seed=5),
    )
    assert np.array_equal(first_states, later_states)
    assert first[0] != later[0]
    assert first[1:] == later[1:]


@pytest.mark.parametrize("name", FLOATING)
def test_compact_removes_exactly_the_entries_that_are_always_zero(name: str) -> None:
    full, rewards = rollout(make(name), 30, seed=1)
    compact, compact_rewards = rollout(make(name, compact=True), 30, seed=1)
    assert compact.shape == (31, FLOATING[name])
    assert np.array_equal(full[:, : FLOATING[name]], compact)
    assert rewards == compact_rewards


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("terminate_when_fallen", [False, True])
def test_falling_ends_an_episode_only_if_enabled(name: str, terminate_when_fallen: bool) -> None:
    env = make(name, terminate_when_fallen=terminate_when_fallen)
    env.reset(seed=0)
    idle = np.zeros(env.action_space.shape, np.float32)
    assert not env.step(idle)[2]
    on_its_back, on_its_face = (1, 0, 0, 0), (0, 0.5**0.5, 0, 0.5**0.5)
    height, orientation = (0.255, on_its_back) if name == "ant" else (0.4, on_its_face)
    pybullet.resetBasePositionAndOrientation(
        1, (0, 0, height), orientation, physicsClientId=env._client
    )
    _, _, terminated, truncated, info = env.step(idle)
    assert terminated is terminate_when_fallen
    assert not truncated
    assert (info["reward_alive"] < 0) is terminate_when_fallen


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_action_that_is_not_finite_is_refused(value: float) -> None:
    env = make("half-cheetah")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="not finite"):
        env.step(np.array([0, 0, value, 0, 0, 0], np.float32))


@pytest.mark.parametrize("name", TASKS)
def test_rendering_does_not_change_the_simulation(name: str) -> None:
    plain, filmed = make(name), make(name, "rgb_array")
    expected = rollout(plain, 6, seed=2)
    rng = np.random.default_rng(11)
    observations, rewards = [filmed.reset(seed=2)[0]], []
    pictures = []
    for _ in range(6):
        picture = filmed.render()
        assert picture is not None
        pictures.append(picture)
        observation, reward, *_ = filmed.step(
            rng.uniform(-1, 1, filmed.action_space.shape).astype(np.float32)
        )
        observations.append(observation)
        rewards.append(reward)
    assert same(expected, (np.array(observations), rewards))
    assert pictures[0].shape == (480, 640, 3)
    assert pictures[0].dtype == np.uint8
    assert not np.array_equal(pictures[0], pictures[-1])


def test_the_camera_follows_the_robot() -> None:
    env = make("ant", "rgb_array")
    env.reset(seed=0)
    here = env.render()
    # Tiles repeat every two metres, so that the same picture is taken there.
    pybullet.resetBasePositionAndOrientation(
        1, (40, -8, 0.75), (0, 0, 0, 1), physicsClientId=env._client
    )
    there = env.render()
    assert here is not None
    assert there is not None
    assert np.abs(here.astype(int) - there).mean() < 0.5
    assert here.std() > 10


def test_a_closed_environment_can_be_reset_again() -> None:
    env = make("ant", restore_state=True)
    before = rollout(env, 10, seed=4)
    env.close()
    env.close()
    assert same(before, rollout(env, 10, seed=4, options={"episode": 0}))
