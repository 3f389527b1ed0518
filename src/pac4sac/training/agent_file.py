"""`agent.safetensors`: all that acting needs, in one small file per run, and the agent read back
from it."""

import contextlib
import functools
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.agents.tape import BLOCK, Stream, Tape, read
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds, check_links, parse_json, write_whole
from pac4sac.base.trust import allow
from pac4sac.runs.metrics import last_evaluations
from pac4sac.runs.reading import RunRecord, read_run, run_folders_below
from pac4sac.tasks.registry import make_env
from pac4sac.training.run import Run, make_agent

FORMAT, VERSION = "pac4sac agent", 1
AGENT = "agent.safetensors"
# trained agents that can be named like a task
SHIPPED = Path(__file__).parents[1] / "shipped" / "agents"
LAST_EPISODES = 10  # by which agents are ranked that were not evaluated


def acting_tensors(agent: Agent, state: State, run: int) -> dict[str, Tensor]:
    """The networks, their posterior, the scale of their rewards and the per-run settings of one
    run; no optimiser, no targets."""
    kept = (*agent.nets, "log_alpha")
    names = [
        name
        for name in state
        if name in kept or name.startswith(("hyper/", "posterior/", "rewards/"))
    ]
    return {name: state[name][run : run + 1].cpu().contiguous() for name in names}


def save_agent(path: Path, run: Run, agent: Agent, state: State, index: int) -> None:
    tensors = acting_tensors(agent, state, index)
    about = {"run": run.describe(), "observation_size": agent.ds, "action_size": agent.da}
    write_whole(path, agent_bytes(about, tensors))


def agent_bytes(about: Mapping[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """The file of an agent."""
    label = {"version": VERSION, "about": about, "sha256": checksum(about, tensors)}
    # One entry only: safetensors writes several in an order that differs between processes.
    return safetensors.torch.save(tensors, {FORMAT: json.dumps(label, sort_keys=True)})


def checksum(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        content.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        content.update(tensors[name].numpy().tobytes())
    return content.hexdigest()


def agent_file(path: str | Path) -> Path:
    """The agent file meant by a path: itself, that of a run folder, that of an experiment with a
    single run, or, where nothing lies there, that of a shipped agent of that name."""
    path = Path(path)
    check_links(path)  # of a file that is named itself there is nothing to ask
    own = [file for file in (path, path / AGENT) if file.is_file()]
    agents = own[:1] or _agents_below(path)
    if not agents and not path.exists() and str(path) in shipped_agents():
        agents = [SHIPPED / f"{path}.safetensors"]
    if not agents:
        names = ", ".join(shipped_agents())
        state = "holds no trained agent" if path.exists() else "does not exist"
        raise UserError(
            f"{path} {state}; give a run folder, an {AGENT}, or one that ships: {names}."
        )
    if len(agents) > 1:
        raise UserError(
            f"{path} holds {len(agents)} agents; name one of its runs, such as {agents[0].parent}."
        )
    return agents[0]


def _agents_below(path: Path) -> list[Path]:
    """Of all runs of an experiment or a study."""
    return [run / AGENT for run in run_folders_below(path) if (run / AGENT).is_file()]


def shipped_agents() -> list[str]:
    """The names of the trained agents that ship with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def choose_agent(path: str | Path) -> Path:
    """The agent file that a path names; of an experiment or a study with several, the one that did
    best in the end."""
    path = Path(path)
    if len(agents := _agents_below(path)) < 2:
        return agent_file(path)
    runs = [read_run(agent.parent) for agent in agents]
    if len({run.task["name"] for run in runs}) > 1:
        raise UserError(
            f"{path} holds agents of several tasks; name one of its runs, such as {runs[0].folder}."
        )
    return max(runs, key=_merit).folder / AGENT


def _merit(run: RunRecord) -> tuple[bool, float]:
    """The last evaluation; a run without one ranks behind, by its last training episodes."""
    # where an agent shoots, that is the later of the two
    if means := list(last_evaluations(run).values()):
        return True, float(means[-1])
    return False, float(np.mean(run.returns[-LAST_EPISODES:])) if len(run.returns) else -np.inf


class Value(NamedTuple):
    """Q(s, a), the discounted sum of the environment's own rewards, with entropy where the agent
    learns with it: floats for one pair, arrays [B] for several."""

    mean: Any
    # of the critic's posterior; 0 for a critic without one, also where there are two of them
    deviation: Any


class SpaceAdapter(NamedTuple):
    """Between what an environment has and what the networks take and give."""

    observation_shape: tuple[int, ...] | None
    action_shape: tuple[int, ...]
    to_vector: Callable[[Any], Any]
    from_unit: Callable[[Any], NDArray[Any]]
    to_unit: Callable[[Any], NDArray[Any]]


class TrainedAgent:
    """A trained agent in its task's environment, as `pac4sac.load` gives it.

    All methods take observations and actions as the environment itself has them, whether
    `gymnasium.make` or `pac4sac.make_env` made it: one, or several at once with the number of them
    as the first axis. What they give is for one or for several accordingly. `run` says how it was
    trained; `agent` and `state` are algorithm and weights."""

    def __init__(self, run: Run, agent: Agent, state: State, seed: int = 0) -> None:
        self.run, self.agent, self.state = run, agent, state
        self.shoots = max(agent.shots(evaluating=True)) > 1
        self._seed, self._position = seed, 0
        self._tapes: dict[int, Tape] = {}  # of random numbers for shooting, by the number of states

    @functools.cached_property
    def _adapter(self) -> SpaceAdapter:
        with contextlib.closing(make_env(self.run.task)) as env:
            shapes = env.env.observation_space.shape, env.env.action_space.shape or ()
            return SpaceAdapter(
                *shapes,
                env.to_vector or np.asarray,
                env.from_unit or np.asarray,
                env.to_unit or np.asarray,
            )

    @torch.no_grad()
    def act(self, observation: Any, *, shooting: bool | None = None) -> NDArray[Any]:
        """Actions of the deterministic policy; or with shooting, the default where the agent was
        trained with it. A dictionary of observations may also come as the vector that `make_env`
        makes of it."""
        s, is_one = self._observations(observation)
        shooting = self.shoots if shooting is None else shooting
        a = (
            self.agent.behaviour(self.state, s, self._draw(s.shape[1]))
            if shooting
            else self.agent.deterministic_action(self.state, s)
        )
        actions = [self._adapter.from_unit(action) for action in a[0].numpy()]
        return actions[0] if is_one else np.stack(actions)

    @torch.no_grad()
    def value(self, observation: Any, action: Any) -> Value:
        """What the critic thinks that an action is worth in a state: mean and standard deviation of
        Q, in units of reward. Of several critics the one with the smallest mean speaks, as in
        learning; an ensemble speaks as a whole. A critic without a posterior has the deviation
        0."""
        s, a, is_one = self._pairs(observation, action)
        m, v = self.agent.value_estimate(self.state, s, a)
        mean, variance = (
            x[0].double().numpy() for x in (m, torch.zeros_like(m) if v is None else v)
        )
        value = Value(mean, np.sqrt(variance))
        return Value(*(float(x[0]) for x in value)) if is_one else value

    @torch.no_grad()
    def sample_value(
        self, observation: Any, action: Any, samples: int = 1, *, seed: int = 0
    ) -> NDArray[np.float64]:
        """Draws of Q from the critic's posterior, [samples] for one pair and [samples, B] for
        several. Each is one critic, with the same weights for all pairs, so that differences
        between actions are drawn too. All are equal for a critic without a posterior. The same seed
        draws the same critics."""
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

    def _observations(self, observation: Any) -> tuple[Tensor, bool]:
        """[1, B, ds], and whether it is a single one."""
        is_array = isinstance(observation, np.ndarray | list)
        vectors = observation if is_array else self._adapter.to_vector(observation)
        rows, is_one = as_rows(
            vectors, self._adapter.observation_shape, self.agent.ds, "observations"
        )
        return torch.from_numpy(rows).unsqueeze(0), is_one

    def _pairs(self, observation: Any, action: Any) -> tuple[Tensor, Tensor, bool]:
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

    def _draw(self, states: int) -> Mapping[str, Tensor]:
        if states not in self._tapes:
            streams = self.agent.behaviour_streams(states, evaluating=True)
            length = BLOCK if states == 1 else 1  # what is not needed of a block would be much
            self._tapes[states] = Tape([self._seed], streams, torch.device("cpu"), length)
        tape = self._tapes[states]
        tape.seek(self._position)
        self._position += 1
        return read(tape.blocks, torch.tensor(self._position - 1))


def as_rows(
    values: Any, shape: tuple[int, ...] | None, size: int, what: str
) -> tuple[NDArray[np.float32], bool]:
    """One or several, each of its shape or flat, as [B, size], and whether it is one."""
    try:
        array = np.array(values, np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"This agent takes {what} as arrays of numbers ({error}).") from error
    one, is_one = {(size,), shape or (size,)}, array.shape in {(size,), shape or (size,)}
    if is_one or (array.shape[1:] in one and len(array)):
        return array.reshape(-1, size), is_one
    each = ", ".join(map(str, shape or (size,)))
    raise UserError(
        f"This agent takes {what} of the shape [{each}], or several at once as [B, {each}], "
        f"not {list(array.shape)}."
    )


def load(path: str | Path, *, trust: str | Iterable[str] = ()) -> TrainedAgent:
    """The agent of a file or a run, or one that ships with the package, such as "half-cheetah".
    `trust` names modules of yours that its algorithm or environment comes from."""
    allow(trust)
    path = agent_file(path)
    about, tensors = read_agent_file(path)
    sizes = {"observation_size": int, "action_size": int}
    try:
        run = Run.from_description(check_kinds(about, {"run": dict, **sizes}, str(path))["run"])
        agent = make_agent([run], *(about[size] for size in sizes))
    except (KeyError, TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise UserError(f"{path} describes no agent that this pac4sac knows ({error}).") from error
    state = agent.initial_state([run.seed], torch.device("cpu"))
    # the run has those
    needed = {name for name in acting_tensors(agent, state, 0) if not name.startswith("hyper/")}
    if missing := sorted(needed - tensors.keys()):
        raise UserError(f"{path} is incomplete: it lacks {', '.join(missing)}.")
    # per-run settings come from the description of the run
    networks = {name: x for name, x in tensors.items() if not name.startswith("hyper/")}
    adopt(state, networks, str(path))
    # of an environment that is not here, which acting may not need
    with contextlib.suppress(UserError):
        if edited := run.edited():
            warnings.warn(
                f"{path} was trained by other code ({edited}), so that it may act otherwise.",
                stacklevel=2,
            )
    return TrainedAgent(run, agent, state)


def adopt(state: State, tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy the tensors of one run into a state, for all runs of it."""
    for name, tensor in tensors.items():
        if name not in state or (1, *state[name].shape[1:]) != tensor.shape:
            raise UserError(f"The agent in {source} has another structure ({name} does not fit).")
        state[name].copy_(tensor.expand_as(state[name]))


def read_agent_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        # Not opened by safetensors, which takes no path that is no text. What it has read has a
        # header of JSON.
        content = path.read_bytes()
        tensors = safetensors.torch.load(content)
        header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
        label = parse_json((header.get("__metadata__") or {})[FORMAT])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} is no agent of pac4sac, or it is damaged ({error}).") from error
    check_kinds(label, {"about": dict, "sha256": str}, str(path), VERSION)
    if checksum(label["about"], tensors) != label["sha256"]:
        raise UserError(f"{path} is damaged: its content does not match its checksum.")
    return label["about"], tensors


def agent_checksum(source: str | Path) -> str:
    """Which agent it is, wherever its file lies, in a form short enough for a name."""
    path = agent_file(source)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UserError(f"The agent {path} cannot be read ({error.strerror}).") from error


def start_from(source: str | Path, agent: Agent, state: State, expected: str | None = None) -> None:
    """Begin with the networks of a trained agent: all runs with the same weights, their targets
    equal to them."""
    if expected is not None and agent_checksum(source) != expected:
        raise UserError(
            f"{source} is no longer the agent {expected} that this training was to start "
            "from; train again."
        )
    _, tensors = read_agent_file(agent_file(source))
    networks = {name: tensor for name, tensor in tensors.items() if name in agent.nets}
    # What a critic knows, it knows on the scale of its rewards.
    scale = {name: tensor for name, tensor in tensors.items() if name.startswith("rewards/")}
    if bool(scale) != agent.config.normalise_rewards:
        told = str(bool(scale)).lower()
        raise UserError(
            f"The agent in {source} was trained with normalise_rewards={told}; set it so here too."
        )
    if missing := sorted(set(agent.nets) - set(networks)):
        raise UserError(
            f"The agent in {source} has no {' or '.join(missing)}; it is of another algorithm."
        )
    adopt(state, networks | scale, str(source))
    for name in agent.with_target:
        state[f"{name}/target"].copy_(state[name])
