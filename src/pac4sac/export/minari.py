"""Export of fresh episodes of a trained agent, or of its replay buffer, as a Minari data set."""

import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pac4sac.base.errors import UserError, import_extra
from pac4sac.certificates.stored_replay import stored_replay
from pac4sac.runs.reading import read_run
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.tasks.registry import make_env
from pac4sac.training.agent_file import choose_agent
from pac4sac.training.trained_agent import TrainedAgent, load

ID = r"([-\w.]+/)*[-\w.]+-v\d+"  # id of a data set
LIBRARY, FOLDER = "Minari", "MINARI_DATASETS_PATH"
FRESH, REPLAY = "fresh episodes", "replay buffer"


@dataclass(frozen=True)
class Episode:
    """Hold one episode in the units of the environment; its last step is terminal or truncated."""

    observations: NDArray[Any]  # [T + 1, ...]
    actions: NDArray[Any]  # [T, ...]
    rewards: NDArray[np.float64]  # [T]
    terminated: bool
    seed: int | None = None


def export_minari(
    path: str | Path,
    name: str,
    *,
    out: Path | None = None,
    episodes: int = 100,
    seed: int = 0,
    from_replay: bool = False,
) -> str:
    """Write a Minari data set, and return a sentence with its size.

    Args:
        path: Agent file, run, or experiment, whose best run is used.
        name: Id of the data set, such as pendulum/sac-v0.
        out: Folder of all data sets; None for Minari's default.
        episodes: Number of fresh episodes.
        seed: Seed of the first fresh episode.
        from_replay: Write the replay buffer of the training instead of fresh episodes.

    Raises:
        UserError: If Minari is not installed, the id is invalid or taken, or there is no replay
            buffer.

    Example:
        >>> from pac4sac.export.minari import export_minari
        >>> export_minari("half-cheetah", "half-cheetah/pac4sac-v0")  # doctest: +SKIP
    """
    minari = import_extra("minari", "The export needs Minari", "h5py", "minari")
    if not re.fullmatch(ID, name):
        raise UserError(f"The name of a data set must have the form pendulum/sac-v0, not {name!r}.")
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}.")
    file = choose_agent(path)
    agent = load(file)
    chosen = [*replay_episodes(file, agent)] if from_replay else []
    with _datasets_in(out):
        if name in minari.list_local_datasets():
            raise UserError(f"The data set {name} already exists; choose another version.")
        chosen = chosen or [fresh_episode(agent, seed + number) for number in range(episodes)]
        _write(minari, name, agent, chosen, REPLAY if from_replay else FRESH)
    steps = sum(len(episode.rewards) for episode in chosen)
    place = f" in {out}" if out else ""
    return f"{len(chosen)} episodes with {steps:,} steps were written as {name}{place}."


@contextlib.contextmanager
def _datasets_in(out: Path | None) -> Iterator[None]:
    """Make Minari write to a folder inside a `with` block."""
    before = os.environ.get(FOLDER)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        os.environ[FOLDER] = str(out.resolve())
    try:
        yield
    finally:
        if before is not None:
            os.environ[FOLDER] = before
        elif out is not None:
            del os.environ[FOLDER]


def fresh_episode(agent: TrainedAgent, seed: int) -> Episode:
    """Play an episode with the policy that the agent was trained with."""
    with contextlib.closing(make_env(agent.run.task)) as env:
        reset = simulator_seed(seed, "minari", 1)
        observation, _ = env.reset(seed=reset)
        observations, actions, rewards = [np.asarray(observation)], [], []
        terminated = truncated = False
        while not (terminated or truncated):
            action = agent.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(np.asarray(observation))
            actions.append(action)
            rewards.append(float(reward))
    return Episode(np.stack(observations), np.stack(actions), np.array(rewards), terminated, reset)


def replay_episodes(file: Path, agent: TrainedAgent) -> Iterator[Episode]:
    """Yield the episodes in the replay buffer of an agent, the oldest first.

    The oldest episode may lack its beginning, and the last one its end. Two transitions belong to
    one episode if the second starts in the state in which the first ended, and no episode of the
    log ended between them.

    Raises:
        UserError: If its experiment has no replay buffer.
    """
    stored = stored_replay(file, agent)
    if stored.batch is None:
        raise UserError(f"There is no replay buffer: {stored.missing}. Omit --replay.")
    s, a, r, s2, terminated = (part[0].numpy() for part in stored.batch)
    with contextlib.closing(make_env(agent.run.task)) as env:
        shape = env.observation_space.shape or s.shape[1:]
        actions = np.stack([*map(env.from_unit or np.asarray, a)])
    logged = _logged_ends(file, len(r))
    follows = (s[1:] == s2[:-1]).all(axis=1) & ~terminated[:-1].astype(bool)
    begins = [0, *(step for step in range(1, len(r)) if step in logged or not follows[step - 1])]
    for begin, end in zip(begins, [*begins[1:], len(r)], strict=True):
        seen = np.concatenate([s[begin:end], s2[end - 1 : end]]).reshape(-1, *shape)
        rewards = r[begin:end].astype(np.float64)
        yield Episode(seen, actions[begin:end], rewards, bool(terminated[end - 1]))


def _logged_ends(file: Path, rows: int) -> set[int]:
    """Return the rows of a replay buffer at which episodes of the log have ended."""
    ends = [row["step"] for row in read_run(file.parent).episodes]
    first = max(ends, default=rows) - rows if _is_whole(file) else 0
    return {end - first for end in ends}


def _is_whole(file: Path) -> bool:
    """Return whether the steps of the rows are known, because the buffer ends with the last
    episode."""
    record = read_run(file.parent)
    return bool(record.episodes) and record.task.get("steps") == record.episodes[-1]["step"]


def _write(
    minari: Any, name: str, agent: TrainedAgent, episodes: Sequence[Episode], source: str
) -> None:
    """Write episodes as a data set."""
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            seed=episode.seed,
            observations=episode.observations,
            actions=episode.actions,
            rewards=list(episode.rewards),
            terminations=[False] * (len(episode.rewards) - 1) + [episode.terminated],
            truncations=[False] * (len(episode.rewards) - 1) + [not episode.terminated],
            infos={},
        )
        for number, episode in enumerate(episodes)
    ]
    run = agent.run
    with contextlib.closing(make_env(run.task)) as env, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on optional parts that this data set lacks
        spaces = env.observation_space, env.action_space
        spec = _spec(run.task.env_id)
        minari.create_dataset_from_buffers(
            dataset_id=name,
            buffer=buffers,
            env=spec,
            observation_space=_as_stored(spaces[0], episodes[0].observations),
            action_space=_as_stored(spaces[1], episodes[0].actions),
            algorithm_name=run.algo,
            data_format="hdf5",
            description=(
                f"{source.capitalize()} of {run.algo}, trained by pac4sac on {run.task.name} for "
                f"{run.task.steps} steps with seed {run.seed}."
            ),
        )


def _as_stored(space: Any, values: NDArray[Any]) -> Any:
    """Return a box with the data type of the values, which a data set stores unchanged."""
    if isinstance(space, gymnasium.spaces.Box) and space.dtype != values.dtype:
        return gymnasium.spaces.Box(space.low, space.high, space.shape, values.dtype.type)
    return space


def _spec(env_id: str) -> str | None:
    """Return the id of an environment that Gymnasium can make without this package, or None."""
    return None if ":" in env_id or env_id.startswith("pac4sac") else env_id
