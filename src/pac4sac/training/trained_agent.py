"""Trained agents, which act and estimate values, and their loading."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.agents.tape import BLOCK, Stream, Tape, read
from pac4sac.agents.tape import size as tape_size
from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds
from pac4sac.base.trust import allow
from pac4sac.tasks import Environment, Task, chosen_task
from pac4sac.tasks.registry import make_env
from pac4sac.training.agent_file import (
    acting_tensors,
    adopt,
    agents_below,
    check_networks,
    choose_agent,
    read_agent_file,
)
from pac4sac.training.backends import free_bytes
from pac4sac.training.critic_value import Value, mean_and_std, std_source
from pac4sac.training.run import Run, make_agent


class SpaceAdapter(NamedTuple):
    """Hold the shapes of an environment's spaces, and conversions to and from them."""

    observation_shape: tuple[int, ...] | None
    action_shape: tuple[int, ...]
    to_vector: Callable[[Any], Any]
    from_unit: Callable[[Any], NDArray[Any]]
    to_unit: Callable[[Any], NDArray[Any]]


class TrainedAgent:
    """Act and estimate values with a trained agent, which `pac4sac.load` returns.

    Methods accept observations and actions of the environment from `gymnasium.make` or
    `pac4sac.make_env`, one or several along a first axis, and return one or several results.

    Attributes:
        run: The run that trained the agent.
        task: Task in whose environment it acts.
        agent: The algorithm.
        state: The weights.

    Example:
        >>> agent = pac4sac.load("experiments/pendulum-v1-sac/runs/sac-seed0")
        >>> env = pac4sac.make_env("Pendulum-v1")
        >>> observation, _ = env.reset(seed=0)
        >>> action = agent.act(observation)
        >>> agent.value(observation, action).source
        'critics'
    """

    def __init__(
        self, run: Run, agent: Agent, state: State, seed: int = 0, task: Task | None = None
    ) -> None:
        self.run, self.agent, self.state = run, agent, state
        self.task = run.task if task is None else task
        self.shoots = max(agent.shots(evaluating=True)) > 1
        self._seed, self._position = seed, 0
        # (purpose, number of states) -> stream of random numbers
        self._tapes: dict[tuple[str, int], Tape] = {}

    def __repr__(self) -> str:
        run = self.run
        return f"TrainedAgent({run.id}: {run.algo} on {run.task.name}, {run.task.steps:,} steps)"

    @functools.cached_property
    def _adapter(self) -> SpaceAdapter:
        with contextlib.closing(make_env(self.task)) as env:
            shapes = env.env.observation_space.shape, env.env.action_space.shape or ()
            return SpaceAdapter(
                *shapes,
                env.to_vector or np.asarray,
                env.from_unit or np.asarray,
                env.to_unit or np.asarray,
            )

    @torch.no_grad()
    def act(self, observation: Any, *, shooting: bool | None = None) -> NDArray[Any]:
        """Return actions of the deterministic policy or of the shooting policy.

        Args:
            observation: One observation or several. For dictionary observations, the vector of
                `make_env` is accepted too.
            shooting: Whether to use shooting; None to use it if the agent was trained with
                shooting.

        Returns:
            One action or several, in the units of the environment.
        """
        check_types(TrainedAgent.act, locals())
        s, is_one = self._observations(observation)
        shooting = self.shoots if shooting is None else shooting
        if shooting:
            a = self.agent.behaviour(self.state, s, self._draw("shooting", s.shape[1]))
        else:
            a = self.agent.deterministic_action(self.state, s)
        return self._actions(a, is_one)

    @torch.no_grad()
    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], Any]:
        """Return actions and `state`, with the signature of Stable-Baselines3.

        The actions come from the policy without shooting; use `act` for shooting.

        Args:
            observation: As in `act`.
            state: Returned unchanged, because no agent is recurrent.
            episode_start: Ignored, because no agent is recurrent.
            deterministic: Whether to use the deterministic policy instead of sampled actions.

        Returns:
            Actions as in `act`, and `state`.
        """
        check_types(TrainedAgent.predict, locals())
        s, is_one = self._observations(observation)
        if deterministic:
            a = self.agent.deterministic_action(self.state, s)
        else:
            a, _ = self.agent.sample_policy(self.state, s, self._draw("policy", s.shape[1]))
        return self._actions(a, is_one), state

    @torch.no_grad()
    def value(self, observation: Any, action: Any) -> Value:
        """Return the critic's mean and standard deviation of Q, in units of reward.

        With several critics, the mean is that of the critic with the smallest value, as in
        learning. An ensemble counts as one critic. The standard deviation comes from the posterior
        or, without a posterior, from the spread of several critics. It is None for a single critic
        without a posterior.

        Args:
            observation: One observation or several.
            action: One action or as many as observations.

        Returns:
            Mean, standard deviation, and the source of the standard deviation.
        """
        s, a, is_one = self._pairs(observation, action)
        m, _, deviation = mean_and_std(self.agent, self.state, s, a)
        source, mean = std_source(self.agent), m[0].double().numpy()
        std = None if source is None else deviation[0].double().numpy()
        if is_one:
            return Value(float(mean[0]), None if std is None else float(std[0]), source)
        return Value(mean, std, source)

    @torch.no_grad()
    def sample_value(
        self, observation: Any, action: Any, samples: int = 1, *, seed: int = 0
    ) -> NDArray[np.float64]:
        """Return samples of Q from the critic's posterior.

        Each sample uses one draw of the critic's weights for all pairs. Without a posterior, all
        samples are equal.

        Args:
            observation: One observation or several.
            action: One action or as many as observations.
            samples: Number of samples.
            seed: Seed of the samples.

        Returns:
            Array [samples] for one pair, [samples, B] for several.
        """
        check_types(TrainedAgent.sample_value, locals())
        if not isinstance(samples, int) or samples < 1:
            raise UserError(f"samples must be a whole number above 0, not {samples!r}.")
        s, a, is_one = self._pairs(observation, action)
        critic = self.agent.critic
        stream = Stream((critic.members, critic.trunk.width))
        tape = Tape([seed], {"posterior": stream}, torch.device("cpu"), length=samples)
        tape.seek(0)
        drawn = self.agent.drawn_values(self.state, s, a, tape.blocks["posterior"])[0].T
        values = (drawn * self.agent.reward_scale(self.state)).double().numpy()
        return np.asarray(values[:, 0] if is_one else values)

    def _actions(self, a: Tensor, is_one: bool) -> NDArray[Any]:
        """Convert actions [1, B, da] in [-1, 1] to the environment's units."""
        actions = [self._adapter.from_unit(action) for action in a[0].numpy()]
        return actions[0] if is_one else np.stack(actions)

    def _observations(self, observation: Any) -> tuple[Tensor, bool]:
        """Return observations [1, B, ds], and whether a single one was given."""
        is_array = isinstance(observation, np.ndarray | list)
        vectors = observation if is_array else self._adapter.to_vector(observation)
        rows, is_one = as_rows(
            vectors, self._adapter.observation_shape, self.agent.ds, "observations"
        )
        return torch.from_numpy(rows).unsqueeze(0), is_one

    def _pairs(self, observation: Any, action: Any) -> tuple[Tensor, Tensor, bool]:
        """Return observations [1, B, ds], actions [1, B, da], and whether a single pair was
        given."""
        s, is_one = self._observations(observation)
        actions, is_one_action = as_rows(
            action, self._adapter.action_shape, self.agent.da, "actions"
        )
        if is_one != is_one_action or len(actions) != s.shape[1]:
            raise UserError(
                "Each observation needs an action, but "
                f"{'one observation was' if is_one else f'{s.shape[1]} observations were'} given "
                f"with {'one action' if is_one_action else f'{len(actions)} actions'}."
            )
        a = np.stack([self._adapter.to_unit(action) for action in actions]).astype(np.float32)
        return s, torch.from_numpy(a).unsqueeze(0), is_one

    def _draw(self, purpose: str, states: int) -> Mapping[str, Tensor]:
        """Return the next random numbers for shooting or for the policy, for a number of states."""
        if (purpose, states) not in self._tapes:
            if purpose == "shooting":
                streams = self.agent.behaviour_streams(states, evaluating=True)
            else:
                streams = self.agent.policy_streams(states)
            length = BLOCK if states == 1 else 1  # a block for many states would need much memory
            tape = Tape([self._seed], streams, torch.device("cpu"), length)
            self._tapes[purpose, states] = tape
        tape = self._tapes[purpose, states]
        tape.seek(self._position)
        self._position += 1
        return read(tape.blocks, torch.tensor(self._position - 1))


def as_rows(
    values: Any, shape: tuple[int, ...] | None, size: int, what: str
) -> tuple[NDArray[np.float32], bool]:
    """Return one or several values, shaped or flat, as [B, size], and whether a single one was
    given.

    Args:
        values: The given values.
        shape: Shape of one value in the environment; None if it has none.
        size: Length of one value as a vector.
        what: Name of the values, for the message.
    """
    try:
        array = np.array(values, np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be arrays of numbers ({error}).") from error
    shapes = {(size,), shape or (size,)}
    is_one = array.shape in shapes
    if is_one or (array.shape[1:] in shapes and len(array)):
        return array.reshape(-1, size), is_one
    each = ", ".join(map(str, shape or (size,)))
    raise UserError(
        f"This agent needs {what} of the shape [{each}], or a batch of the shape [B, {each}], not "
        f"{list(array.shape)}."
    )


def load(
    path: str | Path, *, task: Environment | None = None, trust: str | Iterable[str] = ()
) -> TrainedAgent:
    """Load a trained agent.

    Args:
        path: An agent file, a run folder, or a shipped agent such as "half-cheetah". For the folder
            of an experiment or study, the best run is used, with a warning that names it.
        task: Task or environment to act in, as in `train`; None for the training task. Required if
            this program cannot import the training environment.
        trust: Custom modules that define its algorithm or its environment.

    Returns:
        The agent, ready to act in the environment of its task.

    Raises:
        UserError: If there is no agent, or it is damaged or incompatible with this version.

    Example:
        >>> agent = pac4sac.load("experiments/pendulum-v1-sac/runs/sac-seed0")
        >>> agent.act([-1.0, 0.0, 0.0]).shape
        (1,)
    """
    check_types(load, locals())
    allow(trust)
    return load_chosen(path, task, stacklevel=3)


def load_chosen(path: str | Path, task: Environment | None, stacklevel: int) -> TrainedAgent:
    """Load a trained agent for a public function.

    Args:
        path: As in `load`.
        task: As in `load`.
        stacklevel: Stack level of warnings, so that they name the caller's line.
    """
    folder, path = Path(path), choose_agent(path)
    if (count := len(agents_below(folder))) > 1:
        warnings.warn(
            f"{folder} has {count} agents; {path.parent.name} is used, because its last returns "
            "are the best. To use another agent, give its run folder.",
            stacklevel=stacklevel,
        )
    about, tensors = read_agent_file(path)
    run, agent = _described_agent(about, path)
    check_networks(agent, tensors, str(path))
    _check_memory(agent, path)
    state = agent.initial_state([run.seed], torch.device("cpu"))
    # per-run settings come from the description of the run
    stored = {name: x for name, x in tensors.items() if not name.startswith("hyper/")}
    needed = {name for name in acting_tensors(agent, state, 0) if not name.startswith("hyper/")}
    if missing := sorted(needed - stored.keys()):
        raise UserError(f"{path} is incomplete: it lacks {', '.join(missing)}.")
    adopt(state, stored, str(path))
    _warn_if_edited(run, path, stacklevel + 1)
    return TrainedAgent(run, agent, state, task=None if task is None else chosen_task(task))


def _described_agent(about: Mapping[str, Any], path: Path) -> tuple[Run, Agent]:
    """Return the run in the description of an agent file, and an agent with its settings."""
    kinds = {"run": dict, "observation_size": int, "action_size": int}
    check_kinds(about, kinds, str(path))
    sizes = about["observation_size"], about["action_size"]
    if min(sizes) < 1:
        raise UserError(
            f"{path} is damaged: its agent has {sizes[0]} observation and {sizes[1]} action "
            "dimensions, but must have at least one of each."
        )
    try:
        run = Run.from_description(about["run"])
        return run, make_agent([run], *sizes)
    except UserError:
        raise
    except Exception as error:  # custom agents can raise any exception
        raise UserError(
            f"{path} does not describe an agent that this version of pac4sac supports ({error})."
        ) from error


def _check_memory(agent: Agent, path: Path) -> None:
    """Refuse an agent that needs more than the free memory to act."""
    weights = sum(net.members * sum(net.sizes) for net in agent.nets.values())
    numbers = 4 * weights + tape_size(agent.behaviour_streams(1, evaluating=True))
    free = free_bytes(torch.device("cpu"))
    if 4 * numbers > free:
        raise UserError(
            f"The agent in {path} needs {4 * numbers / 1e9:.1f} GB of memory to act, but only "
            f"{free / 1e9:.1f} GB are free."
        )


def _warn_if_edited(run: Run, path: Path, stacklevel: int) -> None:
    """Warn if another version of the code trained an agent."""
    # The environment may be missing here, but acting does not need it.
    with contextlib.suppress(UserError):
        if edited := run.edited():
            warnings.warn(
                f"{path} was trained by another version of the code ({edited}), so it may act "
                "differently.",
                stacklevel=stacklevel,
            )
