"""Fresh episodes of a certificate, with the bias along an episode, the range of rewards and lower
bounds on the return."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pac4sac.agents.base import State
from pac4sac.agents.replay import Batch
from pac4sac.certificates.returns import Limits, ReturnCertificate, RewardRange, certify_returns
from pac4sac.certificates.texts import REMARKS
from pac4sac.runs.statistics import Estimate, bias_verdict
from pac4sac.training.trained_agent import TrainedAgent
from pac4sac.training.value_error import Bias, Floats, ValueErrors, measure_value_errors

Progress = Callable[[str], None]
FEWEST = 4  # episodes
# The shooting policy plays a quarter of the episodes, because it is hundreds of times slower.
SHOOTING_SHARE = 4
PARTS = 20  # parts of an episode in the curve of the bias
PHASES = ("early", "middle", "late")


class PlayedEpisodes(NamedTuple):
    """Hold fresh episodes of the stochastic policy and, if the agent uses shooting, of the shooting
    policy."""

    policy: ValueErrors  # both halves
    measuring: ValueErrors
    certifying: ValueErrors
    shooting: ValueErrors | None

    @property
    def by_policy(self) -> dict[str, ValueErrors]:
        """Return the measuring episodes by policy."""
        shooting = {} if self.shooting is None else {"shooting": self.shooting}
        return {"policy": self.measuring, **shooting}

    def rewards(self) -> list[Floats]:
        """Return the rewards of all episodes, by policy."""
        played = [self.policy] if self.shooting is None else [self.policy, self.shooting]
        return [errors.rewards() for errors in played]

    def biases(self, confidence: float) -> dict[str, Bias]:
        """Return the bias of the critic by policy, where a step could be judged."""
        found = {policy: errors.bias(confidence) for policy, errors in self.by_policy.items()}
        return {policy: bias for policy, bias in found.items() if bias}


def play_episodes(
    trained: TrainedAgent, state: State, episodes: int, seed: int, say: Progress
) -> PlayedEpisodes:
    """Play twice `episodes` episodes; the first half measures, the second half certifies."""
    agent, task, shooting = trained.agent, trained.run.task, None
    say(f"playing {2 * episodes} episodes of the policy …")
    (policy,) = measure_value_errors(agent, state, task, [seed], 2 * episodes, "certificate")
    if trained.shoots:
        count = max(FEWEST, episodes // SHOOTING_SHARE)
        say(f"playing {count} episodes of the shooting policy (the slowest part) …")
        (shooting,) = measure_value_errors(
            agent, state, task, [seed], count, "certificate", shooting=True
        )
    measuring, certifying = policy.part(slice(episodes)), policy.part(slice(episodes, None))
    return PlayedEpisodes(policy, measuring, certifying, shooting)


@dataclass(frozen=True)
class BiasAlong:
    """Hold the mean of m_p − G in parts of the episode, with intervals over episodes."""

    policy: str
    step: list[float]  # middle step of each part
    bias: list[Estimate]


def bias_along(policy: str, errors: ValueErrors, delta: float) -> BiasAlong:
    """Return the bias in up to `PARTS` parts of the episode, except parts without a judged step."""
    last = int(np.flatnonzero(errors.judged.any(0)).max(initial=0)) + 1
    steps, biases = [], []
    for part in np.array_split(np.arange(last), min(PARTS, last)):
        if bias := errors.part(steps=part).bias(1 - delta):
            steps.append(float(part.mean()))
            biases.append(bias.estimate)
    return BiasAlong(policy, steps, biases)


@dataclass(frozen=True)
class BiasPhase:
    """Hold the bias in a third of the episode; the intervals of all thirds hold simultaneously."""

    name: str  # early, middle or late
    first_step: int
    last_step: int
    bias: Estimate

    @property
    def verdict(self) -> str:
        return bias_verdict(self.bias)


def bias_by_phase(errors: ValueErrors, delta: float) -> list[BiasPhase]:
    """Return the bias early, in the middle and late in the episode, at steps counted from 1."""
    last = int(np.flatnonzero(errors.judged.any(0)).max(initial=0)) + 1
    found = []
    for name, part in zip(PHASES, np.array_split(np.arange(last), len(PHASES)), strict=True):
        if len(part) and (bias := errors.part(steps=part).bias(1 - delta / len(PHASES))):
            found.append(BiasPhase(name, int(part[0]) + 1, int(part[-1]) + 1, bias.estimate))
    return found


# --- rewards and returns


class AssumedRewards(NamedTuple):
    """Hold the range of a task's rewards that bounds assume."""

    scale: RewardRange  # scale of the errors
    assumed: RewardRange | None  # assumed by bounds on returns; None: nothing is
    are_outside: bool  # whether an observed reward is outside the range
    remarks: list[str]


def assumed_rewards(
    known: RewardRange | None, batch: Batch | None, played: PlayedEpisodes
) -> AssumedRewards:
    """Return the known range or, without one, the range of observed rewards, which bounds do not
    assume."""
    replayed = [] if batch is None else [batch.r[0].double().numpy()]
    scale, assumed, remarks = known, known, []
    if scale is None:
        seen = replayed[0] if replayed else played.measuring.rewards()
        scale = RewardRange.observed(seen)
        remarks.append(REMARKS["unknown_rewards"].format(rewards=scale))
    outside = scale.farthest_outside(np.concatenate([*played.rewards(), *replayed]))
    if outside is not None:
        limits_of = "each step" if scale.each_step else "an episode's mean"
        remarks.append(REMARKS["outside"].format(reward=outside, range=scale, limits_of=limits_of))
        assumed = None if scale.each_step else assumed
    return AssumedRewards(scale, assumed, outside is not None, remarks)


def certified_returns(
    played: PlayedEpisodes,
    deterministic: Floats,
    limits: Limits | None,
    rewards: RewardRange | None,
    limit: int | None,
    delta: float,
) -> list[ReturnCertificate]:
    """Bound the expected return of each policy, with the given limits or with limits that follow
    from the rewards and the time limit."""
    returns = {
        "policy": played.policy.returns(limit),
        "deterministic policy": deterministic[np.isfinite(deterministic)],
    }
    if played.shooting is not None:
        returns["shooting policy"] = played.shooting.returns(limit)
    because = "returns in the given range"
    if limits is None and rewards is not None and limit is not None:
        limits, because = rewards.of_returns(limit), f"{rewards}, at most {limit} steps"
    return [
        certify_returns(x, limits, delta, policy=policy, because=because)
        for policy, x in returns.items()
    ]
