"""Checks of an algorithm on synthetic data, which `pac4sac check` runs.

The checks find mistakes that training does not report. For example, a result may depend on other
runs of the cohort, or on undeclared random numbers.
"""

import contextlib
import dataclasses
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pac4sac.agents import get_algorithm, make_config
from pac4sac.agents.base import Agent
from pac4sac.agents.nets import Critic
from pac4sac.agents.settings import AgentConfig
from pac4sac.agents.tape import Stream, Tape, read
from pac4sac.base.errors import UserError
from pac4sac.training.agent_file import acting_tensors
from pac4sac.training.backends import disagreement, on_threads, trace
from pac4sac.training.learner import Learner, Operation, Tensors

CPU = torch.device("cpu")
SEEDS = (3, 5, 8)
# All sizes differ, so that a tensor in the wrong place has the wrong shape.
DS, DA, STATES, CAPACITY, STEPS = 6, 2, 4, 60, 2
SMALL = {
    "width": 16,
    "depth": 1,
    "batch": 9,
    "capacity": CAPACITY,
    "warmup": 0,
    "updates_per_step": 1,
}


@dataclasses.dataclass(frozen=True)
class Examination:
    """Hold the result of one check."""

    what: str
    problem: str = ""  # sentence on the problem; empty if the check passed


def examine(algo: str) -> Iterator[Examination]:
    """Yield the results of all checks, up to the first failure on which others depend.

    Args:
        algo: Name of an algorithm, or "module:Class".

    Raises:
        UserError: If there is no such algorithm.
    """
    agent, configs = get_algorithm(algo).agent, varied_settings(algo)
    yield Examination(f"settings: {', '.join(own_settings(agent)) or 'no custom ones'}")
    trial = Trial(agent, configs)
    for what, look in {
        "networks and their declarations": trial.networks,
        "acting: shapes, streams, actions within [-1, 1]": trial.acting,
        "learning: losses, metrics, finite gradients that reach every network": trial.learning,
        "repeatability: the same update twice, bit for bit": trial.repeating,
        "independence: same result alone and in a batch": trial.independence,
        "saving: an agent loaded from its file acts the same": trial.reading_back,
        "compiling: no branch on values": trial.compiling,
    }.items():
        problem = problem_of(look, agent)
        yield Examination(what, problem)
        if problem and look not in (trial.independence, trial.reading_back):
            return


def own_settings(agent: type[Agent]) -> list[str]:
    """Return the settings declared outside this package, with per-run settings marked."""
    names: set[str] = set()
    for config in agent.Config.__mro__:
        if config.__module__.split(".")[0] != __name__.split(".")[0]:
            names |= inspect.get_annotations(config).keys()
    fields = [f for f in dataclasses.fields(agent.Config) if f.name in names]
    return [f"{f.name} (per run)" if f.metadata["per_run"] else f.name for f in fields]


def varied_settings(algo: str) -> list[AgentConfig]:
    """Return the settings of one run per seed; all per-run numbers differ between runs."""
    common = make_config(algo, overrides=SMALL)
    return [_scaled_settings(common, factor) for factor in (1.0, 0.9, 0.8)]


def _scaled_settings(config: AgentConfig, factor: float) -> AgentConfig:
    """Multiply all per-run numbers by a factor, unless the result is not allowed."""
    for f in dataclasses.fields(config):
        if f.metadata["per_run"] and type(f.default) is float:
            with contextlib.suppress(UserError):
                value = factor * getattr(config, f.name)
                config = dataclasses.replace(config, **{f.name: value})
    return config


def problem_of(look: Callable[[], None], agent: type[Agent]) -> str:
    """Run a check; return its error with the place in the user's code, or "" if it passed."""
    try:
        with on_threads(1):
            look()
    except Exception as error:
        sentence = " ".join([_error_text(error), *getattr(error, "__notes__", [])])
        frames = traceback.extract_tb(error.__traceback__)
        home = sys.modules[agent.__module__].__file__
        own = [frame for frame in frames if frame.filename == home]
        if not own and isinstance(error, UserError):
            return sentence
        at = (own or frames)[-1]
        return f"In {at.name}, line {at.lineno} of {Path(at.filename).name}: {sentence}"
    return ""


def _error_text(error: Exception) -> str:
    """Return the message of a UserError, or the type and first line of another error."""
    if isinstance(error, UserError):
        return str(error)
    first_line = (str(error).splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first_line}"


class Trial:
    """Run the checks of an agent; a failed check raises an error that says what to fix."""

    def __init__(self, agent: type[Agent], configs: Sequence[AgentConfig]) -> None:
        self.make, self.configs = agent, configs

    def learner(self, runs: Sequence[int] = (0, 1, 2)) -> Learner:
        """Return a learner in the middle of training, before an update of all parts.

        The content of a run's replay buffer depends on its seed.
        """
        agent = self.make([self.configs[run] for run in runs], DS, DA)
        learner = Learner(agent, [SEEDS[run] for run in runs], CAPACITY, CPU)
        for place, run in enumerate(runs):
            rows = np.random.default_rng(SEEDS[run]).uniform(
                -1, 1, (CAPACITY, learner.buffers["replay"].shape[-1])
            )
            rows[:, -1] = np.arange(CAPACITY) % 5 == 4  # an episode ends
            learner.buffers["replay"][place] = torch.from_numpy(rows)
        learner.begin(learner.buffers["replay"][:, 0, :DS].numpy())
        learner.step, _ = agent.full_update(CAPACITY)
        for counter in ("step", "update"):
            learner.state[counter].fill_(learner.step)
        return learner

    def learned(self, learner: Learner) -> Tensors:
        """Return all tensors after some steps, metrics last.

        Comparisons report the first tensor that differs. Metrics are last, because networks are
        more informative.
        """
        for _ in range(STEPS):
            learner.act()
            learner.learn()
            s2, nothing = learner.buffers["replay"][:, 1, :DS].numpy(), np.zeros(learner.agent.runs)
            learner.store(s2, s2, nothing, nothing)
        tensors = learner.state | learner.buffers
        return {
            name: tensors[name].clone()
            for name in sorted(tensors, key=lambda name: name.startswith("metrics"))
        }

    @functools.cached_property
    def reference(self) -> tuple[Learner, Tensors, Tensors]:
        """Return a cohort of all runs, with its tensors before and after learning."""
        torch.manual_seed(0)
        learner = self.learner()
        before = {
            name: tensor.clone() for name, tensor in (learner.state | learner.buffers).items()
        }
        return learner, before, self.learned(learner)

    def networks(self) -> None:
        """Check that the declarations of the class refer to existing networks and settings."""
        agent = self.make(self.configs, DS, DA)
        require(
            isinstance(getattr(agent, "critic", None), Critic),
            "networks() must set self.critic to a Critic.",
        )
        nets = ", ".join(agent.nets)
        for name in agent.with_target:
            require(
                name in agent.nets, f"with_target refers to {name}, but networks() returns {nets}."
            )
        for part, setting in agent.delayed.items():
            known = part in agent.nets or part.removesuffix("/target") in agent.with_target
            require(
                known, f"delayed refers to {part}, which is neither a network nor a target network."
            )
            declared = setting in agent.Config.per_run_names()
            require(
                declared,
                f"delayed refers to the setting {setting}, which must be declared with per_run(…).",
            )
        self.learner()

    def acting(self) -> None:
        """Check shapes and ranges of actions, and the shape of log-densities."""
        learner = self.learner()
        agent, state, s = (
            learner.agent,
            learner.state,
            learner.buffers["replay"][:, :STATES, :DS].clone(),
        )
        given = {"deterministic_action": agent.deterministic_action(state, s)}
        for evaluating in (False, True):
            draw = reading(agent.behaviour_streams(STATES, evaluating))
            given[f"behaviour{' in evaluations' if evaluating else ''}"] = agent.behaviour(
                state, s, draw
            )
        given["sample_policy"], log_pi = agent.sample_policy(
            state, s, reading(agent.policy_streams(STATES))
        )
        shape = [len(SEEDS), STATES, DA]
        for what, a in given.items():
            wrong = (
                f"{what} returns the shape {list(a.shape)}, but must return [R, B, da], here "
                f"{shape}."
            )
            require(list(a.shape) == shape, wrong)
            inside = bool((a.abs() <= 1 + 1e-6).all())  # False for NaN
            require(
                inside,
                f"{what} returns actions outside [-1, 1]; end it with .clamp(-1, 1) or tanh.",
            )
        wrong = (
            f"sample_policy returns log-densities of the shape {list(log_pi.shape)}, but must "
            f"return [R, B], here {shape[:2]}."
        )
        require(list(log_pi.shape) == shape[:2], wrong)
        learner.act()

    def learning(self) -> None:
        """Check that updates are finite and change every network."""
        learner, before, after = self.reference
        name = learner.agent.trained()[int(after["diverged_net"].max())]
        wrong = (
            f"The loss of the {name} or its gradient is not finite; look for √0, log 0 and "
            "divisions by 0."
        )
        require(bool(after["alive"].all()), wrong)
        for name in learner.agent.nets:
            wrong = (
                f"The {name} does not change in an update: its loss must depend on the weights "
                "that it gets as an argument."
            )
            require(not torch.equal(before[name], after[name]), wrong)
        for name, tensor in after.items():
            require(
                bool(tensor.isfinite().all()),
                f"{name} is not finite after an update; check the logged metrics too.",
            )

    def repeating(self) -> None:
        """Check that acting and learning give the same numbers when repeated."""
        torch.manual_seed(1)
        once, again = (self.learner().act().copy() for _ in range(2))
        acts_alike = np.array_equal(once, again)
        second = self.learned(self.learner())
        learns_alike = all(
            torch.equal(tensor, second[name]) for name, tensor in self.reference[2].items()
        )
        where, streams = ("Learning", "update") if acts_alike else ("Acting", "behaviour")
        wrong = (
            f"{where} gave different numbers the second time: draw random numbers from a stream "
            f"that {streams}_streams() "
        )
        require(
            acts_alike and learns_alike,
            wrong + 'declares, as draw["name"], and never with torch.randn or similar functions.',
        )

    def independence(self) -> None:
        """Check that a run learns the same alone as in a cohort."""
        _, before, together = self.reference
        gap = disagreement(of_run(before, 1), of_run(together, 1), self.learned(self.learner([1])))
        wrong = (
            f"A run learned differently alone than in a cohort of three ({gap}): means and "
            "normalisation must not include the first axis (runs), and per-run settings must be "
            "read as Hyper(state).name, not self.config.name."
        )
        require(gap is None, wrong)

    def reading_back(self) -> None:
        """Check that an agent acts the same with only the tensors of its file."""
        learner, _, _ = self.reference
        agent, state, s = learner.agent, learner.state, learner.buffers["replay"][:, :STATES, :DS]
        kept = {name: state[name] for name in acting_tensors(agent, state, 0)}
        draw = reading(agent.behaviour_streams(STATES))
        fresh = agent.initial_state(SEEDS, CPU) | kept
        now, later = (
            torch.cat([agent.deterministic_action(x, s), agent.behaviour(x, s, draw)])
            for x in (state, fresh)
        )
        wrong = (
            "An agent loaded from its file acts differently: tensors that acting needs, "
            "other than networks, must be in "
        )
        require(
            torch.equal(now, later),
            wrong + "extra_state() under a name that begins with posterior/.",
        )

    def compiling(self) -> None:
        """Check that an update can be traced, and that the trace computes the same."""
        _, before, expected = self.reference
        learner = self.learner()
        try:
            learner.use(traced)
        except Exception as error:
            error.add_note(
                "An update is compiled as a whole: use torch.where instead of `if` on values, "
                "and do not call .item()."
            )
            raise
        gap = disagreement(before, expected, self.learned(learner))
        require(
            gap is None,
            f"The traced update does not compute the same as the original ({gap}): the trace "
            "turned a value into a constant.",
        )


def require(right: bool, otherwise: str) -> None:
    """Raise an error with the message `otherwise` unless a condition holds."""
    if not right:
        raise UserError(otherwise)


def traced(operation: Operation, tensors: Tensors) -> Callable[[], None]:
    """Trace an operation as for a compiler, but run the trace directly. This can be used as a
    backend."""
    program = trace(operation, tensors)
    return torch.no_grad()(lambda: program(*tensors.values()))


def reading(streams: dict[str, Stream]) -> dict[str, Tensor]:
    """Return the first random numbers of the streams, for all runs."""
    tape = Tape(SEEDS, streams, CPU, length=1)
    tape.seek(0)
    return read(tape.blocks, torch.tensor(0))


def of_run(tensors: Tensors, run: int) -> Tensors:
    """Return the tensors of one run, as if it were alone."""
    parts = {name: tensor[run : run + 1] for name, tensor in tensors.items() if tensor.dim()}
    parts |= {  # runs are the last axis of metrics
        name: tensor[..., run : run + 1]
        for name, tensor in tensors.items()
        if name.startswith("metrics")
    }
    return tensors | parts
