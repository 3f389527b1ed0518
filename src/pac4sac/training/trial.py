"""A trial of an agent on made-up data: what `pac4sac check` can say of an algorithm of one's own before hours are spent
on it. Whatever would go wrong in silence is tried on purpose: other random numbers, other company."""

import dataclasses
import functools
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
from pac4sac.training.agent_file import acting_tensors, adopt
from pac4sac.training.backends import disagreement, on_threads, trace
from pac4sac.training.learner import Learner, Operation, Tensors

CPU = torch.device("cpu")
SEEDS = (3, 5, 8)
# All sizes differ, so that no tensor fits where it should not.
DS, DA, STATES, CAPACITY, STEPS = 6, 2, 4, 60, 2
SMALL = {"width": 16, "depth": 1, "batch": 9, "capacity": CAPACITY, "warmup": 0, "updates_per_step": 1}


@dataclasses.dataclass(frozen=True)
class Examination:
    """What was looked at, and in a sentence what is to be mended, if anything is."""

    what: str
    problem: str = ""


def examine(algo: str) -> Iterator[Examination]:
    """One after the other; what a failed one would spoil is left out. Raises where there is no such agent."""
    agent, configs = get_algorithm(algo).agent, varied_settings(algo)
    yield Examination(f"settings: {', '.join(own_settings(agent)) or 'none of its own'}")
    trial = Trial(agent, configs)
    for what, look in {
        "networks and what is said of them": trial.networks,
        "acting: shapes, streams, actions within [-1, 1]": trial.acting,
        "learning: losses, metrics, finite gradients that reach every network": trial.learning,
        "repeatability: the same update twice, to the bit": trial.repeating,
        "independence: alone as among others": trial.company,
        "an agent read back from its file acts alike": trial.reading_back,
        "compiling: no branch on numbers": trial.compiling,
    }.items():
        with on_threads(1):
            problem = told(look, agent)
        yield Examination(what, problem)
        if problem and look not in (trial.company, trial.reading_back):
            return


def own_settings(agent: type[Agent]) -> list[str]:
    """The settings that every agent does not have, and which of them are per run."""
    common, per_run = {f.name for f in dataclasses.fields(AgentConfig)}, agent.Config.per_run_names()
    names = [f.name for f in dataclasses.fields(agent.Config) if f.name not in common]
    return [f"{name} (per run)" if name in per_run else name for name in names]


def varied_settings(algo: str) -> list[AgentConfig]:
    """Of as many runs as there are seeds, each with other numbers wherever runs may differ."""
    configs = [make_config(algo, "paper", SMALL)] * len(SEEDS)
    for f in dataclasses.fields(configs[0]):
        if f.metadata["per_run"] and type(f.default) is float:
            for run, factor in enumerate((1.0, 0.9, 0.8)):
                try:
                    value = factor * getattr(configs[run], f.name)
                    configs[run] = dataclasses.replace(configs[run], **{f.name: value})
                except UserError:  # this one cannot vary, or not with the others
                    continue
    return configs


def told(look: Callable[[], str], agent: type[Agent]) -> str:
    """The problem that an examination found, or the error in which it ended, with its place in the user's code."""
    try:
        return look()
    except Exception as error:
        frames, home = traceback.extract_tb(error.__traceback__), sys.modules[agent.__module__].__file__
        own = [frame for frame in frames if frame.filename == home]
        first_line = (str(error).splitlines() or ["no message"])[0]
        sentence = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line}"
        sentence = " ".join([sentence, *getattr(error, "__notes__", [])])
        if not own and isinstance(error, UserError):
            return sentence
        at = (own or frames)[-1]
        return f"In {at.name}, line {at.lineno} of {Path(at.filename).name}: {sentence}"


class Trial:
    def __init__(self, agent: type[Agent], configs: Sequence[AgentConfig]) -> None:
        self.make, self.configs, self.name = agent, configs, agent.__name__

    def learner(self, runs: Sequence[int] = (0, 1, 2)) -> Learner:
        """In the middle of its training, at an update in which all moves; what a run has seen depends on its seed."""
        agent = self.make([self.configs[run] for run in runs], DS, DA)
        learner = Learner(agent, [SEEDS[run] for run in runs], CAPACITY, CPU)
        for place, run in enumerate(runs):
            learner.buffers["replay"][place] = torch.from_numpy(experience(SEEDS[run]))
        learner.begin(learner.buffers["replay"][:, 0, :DS].numpy())
        learner.step = CAPACITY + -CAPACITY % agent.period
        learner.state["step"].fill_(learner.step)
        learner.state["update"].fill_(learner.step)
        return learner

    def learned(self, learner: Learner) -> Tensors:
        """All tensors after some steps."""
        for _ in range(STEPS):
            learner.act()
            learner.learn()
            s2 = learner.buffers["replay"][:, learner.step % CAPACITY, :DS].numpy().copy()
            nothing = np.zeros(len(s2))
            learner.store(s2, s2, nothing, nothing)
        return copies(learner)

    @functools.cached_property
    def reference(self) -> tuple[Learner, Tensors, Tensors]:
        """A cohort of all runs that has learned, with its tensors before and after."""
        torch.manual_seed(0)
        learner = self.learner()
        before = copies(learner)
        return learner, before, self.learned(learner)

    def networks(self) -> str:
        agent = self.make(self.configs, DS, DA)
        per_run, copied = agent.Config.per_run_names(), {f"{name}/target" for name in agent.with_target}
        if not isinstance(getattr(agent, "title", None), str):
            return f'{self.name} has no title, a line for tables: title = "…".'
        if not isinstance(getattr(agent, "critic", None), Critic):
            return f"networks() of {self.name} sets no self.critic, a Critic, which evaluations of its values ask."
        if unknown := sorted(set(agent.with_target) - set(agent.nets)):
            return f"with_target names {', '.join(unknown)}, and networks() gives {', '.join(agent.nets)}."
        if unknown := sorted(set(agent.delayed) - set(agent.nets) - copied):
            return f"delayed names {', '.join(unknown)}, which is neither a network nor the slow copy of one."
        if unknown := sorted(set(agent.delayed.values()) - set(per_run)):
            return f"delayed names the setting {', '.join(unknown)}, which must be declared by per_run(…)."
        self.learner()
        return ""

    def acting(self) -> str:
        learner = self.learner()
        agent, state = learner.agent, learner.state
        s = learner.buffers["replay"][:, :STATES, :DS].clone()
        given: dict[str, Tensor] = {"greedy": agent.greedy(state, s)}
        for evaluating in (False, True):
            draw = reading(agent.behaviour_streams(STATES, evaluating))
            given[f"behaviour{' in evaluations' if evaluating else ''}"] = agent.behaviour(state, s, draw)
        given["sample_policy"], log_pi = agent.sample_policy(state, s, reading(agent.policy_streams(STATES)))
        for what, a in given.items():
            if a.shape != (len(SEEDS), STATES, DA):
                return (
                    f"{what} gives the shape {list(a.shape)} and must give [R, B, da], here {[len(SEEDS), STATES, DA]}."
                )
            if not bool((a.abs() <= 1 + 1e-6).all()):  # NaN neither
                return f"{what} gives actions outside of [-1, 1]; end it with .clamp(-1, 1) or with tanh."
        if log_pi.shape != (len(SEEDS), STATES):
            return (
                f"sample_policy gives log-densities {list(log_pi.shape)} and must give [R, B], {[len(SEEDS), STATES]}."
            )
        learner.act()
        return ""

    def learning(self) -> str:
        learner, before, after = self.reference
        agent = learner.agent
        if not bool(after["alive"].all()):
            name = agent.trained()[int(after["diverged_net"].max())]
            return f"The loss of the {name} or its gradient is not finite; look for √0, log 0 and divisions in it."
        for name in agent.nets:
            if torch.equal(before[name], after[name]):
                return (
                    f"The {name} does not move: its loss does not depend on its weights, which are an argument of it."
                )
        strange = [n for n, t in after.items() if t.is_floating_point() and not bool(t.isfinite().all())]
        if strange:
            return (
                f"{', '.join(strange)} is not finite after an update; the metrics are {', '.join(agent.metric_names)}."
            )
        if lost := sorted(self.reported() - set(agent.metric_names)):
            return f"The losses report {', '.join(lost)}, which logged() does not name, so that no log will have it."
        return ""

    def reported(self) -> set[str]:
        """All names that the losses report in an update."""
        learner, names = self.learner(), set[str]()
        measured = learner.agent.measured
        learner.agent.measured = lambda log: (names.update(log), measured(log))[1]  # type: ignore[method-assign, func-returns-value]
        learner.learn()
        return names

    def repeating(self) -> str:
        _, _, first = self.reference
        torch.manual_seed(1)
        second = self.learned(self.learner())
        if differing := [name for name, tensor in first.items() if not same_bits(tensor, second[name])]:
            where, streams = ("Acting", "behaviour") if "action" in differing else ("Learning", "update")
            return (
                f"{where} gave other numbers the second time ({differing[0]}): draw random numbers from a stream that "
                f'{streams}_streams() declares, as draw["name"], and never by torch.randn and its like.'
            )
        return ""

    def company(self) -> str:
        _, before, together = self.reference
        for run in range(len(SEEDS)):
            alone = self.learned(self.learner([run]))
            if gap := disagreement(of_run(before, run), of_run(together, run), of_run(alone, 0)):
                return (
                    f"A run learned otherwise alone than among three ({gap}): no mean and no normalisation may go over "
                    "the first axis, that of runs, and a per-run setting is Hyper(state).name, not self.config.name."
                )
        return ""

    def reading_back(self) -> str:
        learner, _, _ = self.reference
        for run, seed in enumerate(SEEDS):
            agent = self.make([self.configs[run]], DS, DA)
            read_back, whole = agent.initial_state([seed], CPU), of_run(learner.state, run)
            adopt(read_back, acting_tensors(learner.agent, learner.state, run), self.name)
            s, draw = (
                torch.from_numpy(experience(seed)[None, :STATES, :DS]),
                reading(agent.behaviour_streams(STATES), 1),
            )
            one, other = (torch.cat([agent.greedy(x, s), agent.behaviour(x, s, draw)]) for x in (read_back, whole))
            if not torch.allclose(one, other, atol=1e-5):
                return (
                    "An agent read back from its file acts otherwise: what acting needs beside the networks must be in "
                    "extra_state() under a name that begins with posterior/."
                )
        return ""

    def compiling(self) -> str:
        _, before, expected = self.reference
        learner = self.learner()
        try:
            learner.use(traced)
        except Exception as error:
            error.add_note(
                "An update is compiled whole: there may be no `if` on numbers and no .item(); use torch.where."
            )
            raise
        if gap := disagreement(before, expected, self.learned(learner)):
            return f"Traced for the compiler it computes something else ({gap}): a number was taken for a constant."
        return ""


def traced(operation: Operation, tensors: Tensors) -> Callable[[], None]:
    """A backend: what a compiler would be given, run as it is."""
    program = trace(operation, tensors)

    def run() -> None:
        with torch.no_grad():
            program(*tensors.values())

    return run


def experience(seed: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """Transitions of a run, [CAPACITY, width]; one of five ends its episode."""
    rows = np.random.default_rng(seed).normal(size=(CAPACITY, 2 * DS + DA + 2)).astype(np.float32)
    rows[:, DS : DS + DA] = np.tanh(rows[:, DS : DS + DA])
    rows[:, -1] = np.arange(CAPACITY) % 5 == 4
    return rows


def reading(streams: dict[str, Stream], runs: int = len(SEEDS)) -> dict[str, Tensor]:
    tape = Tape(range(runs), streams, CPU, length=1)
    tape.seek(0)
    return read(tape.blocks, torch.tensor(0))


def copies(learner: Learner) -> Tensors:
    return {name: tensor.clone() for name, tensor in (learner.state | learner.buffers).items()}


def of_run(tensors: Tensors, run: int) -> Tensors:
    """What belongs to one run, as if it were alone."""

    def part(name: str, tensor: Tensor) -> Tensor:
        if tensor.dim() == 0:
            return tensor
        by_run_second = name.startswith("metrics") and tensor.dim() == 2
        return tensor[:, run : run + 1] if by_run_second else tensor[run : run + 1]

    return {name: part(name, tensor) for name, tensor in tensors.items()}


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(), other.nan_to_num()) if one.is_floating_point() else torch.equal(one, other)
