"""A trained agent that acts and values actions, and how it is loaded."""

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
    """A trained agent, as `pac4sac.load` returns it.

    Methods take observations and actions of the environment that `gymnasium.make` or
    `pac4sac.make_env` makes: one, or several along a first axis. They return one result, or several
    along a first axis.

    Attributes:
        run: How the agent was trained.
        task: Task whose environment it acts in.
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
        # of random numbers, by what they are for and the number of states
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
            observation: One observation or several. Instead of a dictionary it may be the vector
                that `make_env` makes of it.
            shooting: Whether to shoot; None to shoot if the agent was trained with shooting.

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

        An action is that of the policy alone, without shooting; `act` shoots.

        Args:
            observation: As in `act`.
            state: Returned unchanged, because no agent is recurrent.
            episode_start: Ignored, for the same reason.
            deterministic: Whether to use the deterministic policy. Otherwise actions are sampled
                from the policy.

        Returns:
            The actions as in `act`, and `state`.
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
        """Return mean and standard deviation of Q that the critic predicts, in units of reward.

        Of several critics the mean is the smallest, as in learning; an ensemble is taken as a
        whole. The standard deviation is that of the posterior or, without a posterior, the distance
        between several critics. It is None for a single critic without a posterior.

        Args:
            observation: One observation or several.
            action: One action or as many as observations.

        Returns:
            Mean, standard deviation, and the source of the latter.
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

        A sample is one critic, with the same weights for all pairs. All samples of a critic without
        a posterior are equal.

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
            raise UserError(f"samples must be a whole number at least 1, not {samples!r}.")
        s, a, is_one = self._pairs(observation, action)
        critic = self.agent.critic
        stream = Stream((critic.members, critic.trunk.width))
        tape = Tape([seed], {"posterior": stream}, torch.device("cpu"), length=samples)
        tape.seek(0)
        drawn = self.agent.drawn_values(self.state, s, a, tape.blocks["posterior"])[0].T
        values = (drawn * self.agent.reward_scale(self.state)).double().numpy()
        return np.asarray(values[:, 0] if is_one else values)

    def _actions(self, a: Tensor, is_one: bool) -> NDArray[Any]:
        """Return actions [1, B, da] in [-1, 1] as the environment takes them."""
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
        """Return observations [1, B, ds], their actions [1, B, da], and whether it is one pair."""
        s, is_one = self._observations(observation)
        actions, is_one_action = as_rows(
            action, self._adapter.action_shape, self.agent.da, "actions"
        )
        if is_one != is_one_action or len(actions) != s.shape[1]:
            raise UserError(
                "Each observation needs an action: "
                f"{'one was' if is_one else f'{s.shape[1]} were'} given with "
                f"{'one action' if is_one_action else f'{len(actions)} actions'}."
            )
        a = np.stack([self._adapter.to_unit(action) for action in actions]).astype(np.float32)
        return s, torch.from_numpy(a).unsqueeze(0), is_one

    def _draw(self, purpose: str, states: int) -> Mapping[str, Tensor]:
        """Return the next random numbers for shooting or for the policy in a number of states."""
        if (purpose, states) not in self._tapes:
            if purpose == "shooting":
                streams = self.agent.behaviour_streams(states, evaluating=True)
            else:
                streams = self.agent.policy_streams(states)
            length = BLOCK if states == 1 else 1  # a block for many states would be large
            tape = Tape([self._seed], streams, torch.device("cpu"), length)
            self._tapes[purpose, states] = tape
        tape = self._tapes[purpose, states]
        tape.seek(self._position)
        self._position += 1
        return read(tape.blocks, torch.tensor(self._position - 1))


def as_rows(
    values: Any, shape: tuple[int, ...] | None, size: int, what: str
) -> tuple[NDArray[np.float32], bool]:
    """Return one or several values, shaped or flat, as [B, size]; and whether it was one.

    Args:
        values: The values as the user gave them.
        shape: Shape of one of them in the environment; None if it has none.
        size: Length of one of them as a vector.
        what: Name of the values, for the message.
    """
    try:
        array = np.array(values, np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"This agent takes {what} as arrays of numbers ({error}).") from error
    shapes = {(size,), shape or (size,)}
    is_one = array.shape in shapes
    if is_one or (array.shape[1:] in shapes and len(array)):
        return array.reshape(-1, size), is_one
    each = ", ".join(map(str, shape or (size,)))
    raise UserError(
        f"This agent takes {what} of the shape [{each}], or several at once as [B, {each}], "
        f"not {list(array.shape)}."
    )


def load(
    path: str | Path, *, task: Environment | None = None, trust: str | Iterable[str] = ()
) -> TrainedAgent:
    """Load a trained agent.

    Args:
        path: An agent file, a run folder, or a shipped agent such as "half-cheetah". Of the folder
            of an experiment or a study, the best run is taken with a warning that names it.
        task: Task or environment to act in, as in `train`; None for that of the training. Needed if
            this program cannot import the environment of the training.
        trust: Custom modules that its algorithm or its environment comes from.

    Returns:
        The agent, ready to act in the environment of its task.

    Raises:
        UserError: If there is no agent, or it is damaged, or it does not fit this version.

    Example:
        >>> agent = pac4sac.load("experiments/pendulum-v1-sac/runs/sac-seed0")
        >>> agent.act([-1.0, 0.0, 0.0]).shape
        (1,)
    """
    check_types(load, locals())
    allow(trust)
    folder, path = Path(path), choose_agent(path)
    if (count := len(agents_below(folder))) > 1:
        warnings.warn(
            f"{folder} holds {count} agents; took {path.parent.name}, which has the best last "
            "returns. To take another one, name its run folder.",
            stacklevel=2,
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
    _warn_if_edited(run, path)
    return TrainedAgent(run, agent, state, task=None if task is None else chosen_task(task))


def _described_agent(about: Mapping[str, Any], path: Path) -> tuple[Run, Agent]:
    """Return the run that an agent's file describes, and an agent with its settings."""
    kinds = {"run": dict, "observation_size": int, "action_size": int}
    check_kinds(about, kinds, str(path))
    sizes = about["observation_size"], about["action_size"]
    if min(sizes) < 1:
        raise UserError(f"{path} is damaged: its agent has {sizes[0]} inputs, {sizes[1]} outputs.")
    try:
        run = Run.from_description(about["run"])
        return run, make_agent([run], *sizes)
    except UserError:
        raise
    except Exception as error:  # an agent's code can raise anything
        raise UserError(
            f"{path} does not describe an agent that this pac4sac knows ({error})."
        ) from error


def _check_memory(agent: Agent, path: Path) -> None:
    """Refuse an agent that needs more memory to act than is free."""
    weights = sum(net.members * sum(net.sizes) for net in agent.nets.values())
    numbers = 4 * weights + tape_size(agent.behaviour_streams(1, evaluating=True))
    free = free_bytes(torch.device("cpu"))
    if 4 * numbers > free:
        raise UserError(
            f"The agent in {path} needs {4 * numbers / 1e9:.1f} GB of memory to act, and "
            f"{free / 1e9:.1f} GB are free."
        )


def _warn_if_edited(run: Run, path: Path) -> None:
    """Warn if other code than today's trained an agent."""
    # The environment may be missing here; acting does not need it.
    with contextlib.suppress(UserError):
        if edited := run.edited():
            warnings.warn(
                f"{path} was trained by other code ({edited}), so that it may act otherwise.",
                stacklevel=3,
            )
