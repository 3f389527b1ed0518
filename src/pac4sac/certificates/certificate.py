"""`pac4sac.certify`: all that can be said about how far a trained critic and its policy may be trusted."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pac4sac.agents.base import Agent, State
from pac4sac.base.errors import UserError
from pac4sac.base.files import write_whole
from pac4sac.certificates.bounds_table import CAVEATS, Row, bounds_table
from pac4sac.certificates.calibration import Coverage, coverage, deviations, measure_after_random_steps
from pac4sac.certificates.evidence import fresh_evidence, look, stored_replay
from pac4sac.certificates.measured import Claims, Measured, Scales, measure
from pac4sac.certificates.policy import ReturnCertificate, certify_returns, check_delta
from pac4sac.certificates.ranges import RewardRange, given_range, known_range, observed_range
from pac4sac.certificates.unfinished import saved_agent, unfinished
from pac4sac.runs.statistics import Estimate, mean_interval
from pac4sac.tasks.registry import time_limit
from pac4sac.training.agent_file import TrainedAgent, load
from pac4sac.training.evaluation import Episodes, evaluate
from pac4sac.training.value_error import Bias, Policy, ValueErrors, measure_value_errors

Floats = NDArray[np.float64]
Progress = Callable[[str], None]
VERSION = 1
EPISODES = 64  # to measure, and as many again to certify
FEWEST = 4
SHOOTING_SHARE = 4  # a fourth as many episodes of the shooting policy, which costs hundreds of times more
PARTS = 20  # of an episode, for the bias along it


@dataclass(frozen=True)
class BiasAlong:
    """The mean of m_p − G over the episode: by part of the judged steps, with intervals over episodes."""

    policy: str
    step: list[float]  # the middle of each part
    bias: list[Estimate]


@dataclass(frozen=True)
class Certificate:
    run: str
    task: str
    algo: str
    agent_file: Path
    seed: int
    delta: float
    episodes: int
    gamma: float
    alpha: float
    rewards: RewardRange
    epsilon: float
    epsilon_value: float
    kl: float | None
    replay_tuples: int | None
    bias: dict[str, Bias]  # by policy
    along: list[BiasAlong]
    unjudged_steps: int  # of π's measuring episodes: too near to the time limit to know the rest of their return
    measured: Measured
    rows: list[Row]
    calibration: list[Coverage]
    returns: list[ReturnCertificate]
    remarks: list[str]  # what is left out, and why

    def to_json(self) -> dict[str, Any]:
        about = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("rows", "agent_file", "bias")}
        about["bias"] = {
            policy: dataclasses.asdict(bias) | {"relative": bias.relative, "verdict": bias.verdict}
            for policy, bias in self.bias.items()
        }
        about["bounds"] = [
            dataclasses.asdict(row) | {"vacuous": row.vacuous, "respected": row.respected, "says": row.says}
            for row in self.rows
        ]
        about["returns"] = [
            dataclasses.asdict(one) | {"vacuous": one.betting is not None and one.vacuous(one.betting)}
            for one in self.returns
        ]
        failing = {key for row in self.rows for key in row.fails}
        about["assumptions_that_fail"] = {key: text for key, text in CAVEATS.items() if key in failing}
        about["agent_file"] = str(self.agent_file)
        plain: dict[str, Any] = _plain({"format": "pac4sac certificate", "version": VERSION, **about})
        return plain

    def write(self, folder: str | Path) -> list[Path]:
        """certificate.json and certificate.png, in a folder that is made where it does not exist."""
        from pac4sac.certificates.picture import draw

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "certificate.json", json.dumps(self.to_json(), indent=1, ensure_ascii=False).encode())
        draw(self, folder / "certificate.png")
        return [folder / "certificate.json", folder / "certificate.png"]


def certify(
    path: str | Path,
    *,
    episodes: int = EPISODES,
    delta: float = 0.05,
    seed: int = 0,
    reward_range: tuple[float, float] | None = None,
    return_range: tuple[float, float] | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Look at the agent at `path` (an agent file, a run, or an experiment, whose best run is taken) on fresh episodes:
    `episodes` to measure its errors, and as many again to certify them. `reward_range` and `return_range` say what is
    known of the task's rewards in a step and in an episode. With `out`, certificate.json and .png are written there."""
    if episodes < FEWEST:
        raise UserError(f"A certificate needs at least {FEWEST} episodes, not {episodes}.")
    if seed < 0:
        raise UserError(f"The seed must be 0 or greater, not {seed}.")
    check_delta(delta)
    given = None if reward_range is None else given_range(*reward_range)
    file = saved_agent(path)
    examiner = _Examiner(file, load(file), episodes, delta, seed, progress or (lambda text: None))
    with _one_thread():
        certificate = examiner.certificate(given, return_range)
    if out is not None:
        certificate.write(out)
    return certificate


class _Examiner:
    def __init__(
        self, file: Path, trained: TrainedAgent, episodes: int, delta: float, seed: int, say: Progress
    ) -> None:
        self.file, self.trained = file, trained
        self.agent: Agent = trained.agent
        self.state: State = trained.state
        self.task = trained.run.task
        self.episodes, self.delta, self.seed, self.say = episodes, delta, seed, say
        self.limit = time_limit(self.task)
        self.remarks: list[str] = [text] if (text := unfinished(file)) else []

    def certificate(self, given: RewardRange | None, return_range: tuple[float, float] | None) -> Certificate:
        stored = stored_replay(self.file, self.trained)
        self.state |= stored.prior
        self.say(f"{2 * self.episodes} episodes of the policy …")
        played = self.play("policy", 2 * self.episodes)
        measuring, certifying = episodes_of(played, 0, self.episodes), episodes_of(played, self.episodes, None)
        errors = {"policy": measuring}
        if self.trained.shoots:
            count = max(FEWEST, self.episodes // SHOOTING_SHARE)
            self.say(f"{count} episodes of the shooting policy, the dearest part …")
            errors["shooting"] = self.play("shooting", count)

        replayed = None if stored.batch is None else stored.batch.r[0].double().numpy()
        rewards = given or known_range(self.task)
        assumed = rewards  # what returns may rest on; extremes that were merely seen are no limits
        if rewards is None:
            rewards = observed_range(measuring.rewards(0) if replayed is None else replayed)
            self.remarks.append(f"Nothing is known about this task's rewards; errors are judged by {rewards}.")
        seen = [e.rewards(0) for e in (played, *errors.values())] + ([] if replayed is None else [replayed])
        outside = rewards.farthest_outside(np.concatenate(seen))
        if outside is not None:
            limits_of = "each step" if rewards.each_step else "an episode's mean"
            self.remarks.append(
                f"A reward of {outside:.3g} lies outside [{rewards.low:g}, {rewards.high:g}], assumed of {limits_of}: "
                "what rests on that range is no certificate; bounded errors do not."
            )
            assumed = None if rewards.each_step else assumed
        gamma = float(played.gamma[0])
        scales = Scales(rewards, gamma)

        self.say("the critic on replay and fresh transitions …")
        replay = None if stored.batch is None else look(self.agent, self.state, stored.batch, self.seed)
        kl = self.divergence()
        if kl is None:
            self.remarks.append(
                "This critic's weights are plain numbers: the PAC-Bayes bounds, which need a posterior, do not apply."
            )
        elif replay is None:
            self.remarks.append(f"The bounds on the replay are left out: {stored.missing}.")
        of_measuring = fresh_evidence(self.agent, self.state, measuring, self.seed)
        of_certifying = fresh_evidence(self.agent, self.state, certifying, self.seed + 1)
        measured = measure(of_measuring, claims_of(measuring), scales, self.delta)
        rows = bounds_table(
            replay=replay,
            fresh=of_certifying,
            claims=claims_of(certifying),
            measured=measured,
            kl=kl,
            scales=scales,
            delta=self.delta,
            seed=self.seed,
            also_fails=self.faults_of_the_posterior(),
            rewards_outside=outside is not None,
        )

        calibration = self.calibrate(measuring)
        limits, because = self.return_limits(assumed, return_range)
        returns = [self.certified("π, one action", self.returns_of(played), limits, because)]
        self.say(f"{self.episodes} episodes of the deterministic policy …")
        fresh = Episodes(self.agent, self.state, self.task, [self.seed], self.episodes, "certificate")
        greedy = evaluate(fresh, "greedy")
        returns.append(self.certified("deterministic", greedy[0], limits, because))
        if "shooting" in errors:
            returns.append(self.certified("shooting", self.returns_of(errors["shooting"]), limits, because))
        found = {policy: e.bias(0, 1 - self.delta) for policy, e in errors.items()}
        return Certificate(
            run=self.trained.run.id,
            task=self.task.name,
            algo=self.trained.run.algo,
            agent_file=self.file,
            seed=self.seed,
            delta=self.delta,
            episodes=self.episodes,
            gamma=gamma,
            alpha=float(played.alpha[0]),
            rewards=rewards,
            epsilon=scales.epsilon,
            epsilon_value=scales.epsilon_value,
            kl=kl,
            replay_tuples=None if replay is None else len(replay.m),
            bias={policy: bias for policy, bias in found.items() if bias is not None},
            along=[bias_along(policy, e, self.delta) for policy, e in errors.items()],
            unjudged_steps=int((self.within_task(measuring) & ~measuring.judged[0]).sum()),
            measured=measured,
            rows=rows,
            calibration=calibration,
            returns=returns,
            remarks=self.remarks,
        )

    def play(self, policy: Policy, episodes: int) -> ValueErrors:
        return measure_value_errors(
            self.agent, self.state, self.task, [self.seed], episodes, "certificate", policy=policy
        )

    def divergence(self) -> float | None:
        if not self.agent.critic.gaussian or not hasattr(self.agent, "divergence"):
            return None
        with torch.no_grad():
            # Several critics are one posterior over all of their weights: the product, whose KL is the sum.
            return float(self.agent.divergence(self.state, self.agent.params(self.state, "critic")).sum())

    def faults_of_the_posterior(self) -> tuple[str, ...]:
        moved = getattr(self.agent.config, "prior", "fixed") != "fixed"
        return (*(["prior"] if moved else []), *(["minimum"] if self.agent.critic.members > 1 else []))

    def calibrate(self, measuring: ValueErrors) -> list[Coverage]:
        offered = deviations(self.agent, self.state, measuring)
        if offered is None:
            self.remarks.append("A single plain critic offers no uncertainty: there is nothing to calibrate.")
            return []
        name, deviation = offered
        error = measuring.m[0] - measuring.g[0]
        found = [coverage("π's own states", name, error, deviation, measuring.judged[0], self.delta)]
        self.say(f"{self.episodes} episodes that begin with random actions …")
        longest = int(measuring.judged[0].sum(1).max())
        strayed, chosen = measure_after_random_steps(
            self.agent, self.state, self.task, self.episodes, self.seed, longest
        )
        offered = deviations(self.agent, self.state, strayed)
        if offered is not None:
            error = strayed.m[0] - strayed.g[0]
            found.append(coverage("after random actions", name, error, offered[1], chosen, self.delta))
        return [one for one in found if one is not None]

    def return_limits(
        self, rewards: RewardRange | None, given: tuple[float, float] | None
    ) -> tuple[tuple[float, float] | None, str]:
        if given is not None:
            return given, "returns in the range that you gave"
        if rewards is None or self.limit is None:
            return None, ""
        return rewards.of_returns(self.limit), f"{rewards}, {self.limit} steps at most"

    def within_task(self, errors: ValueErrors) -> NDArray[np.bool_]:
        """Which steps are of the task's own length; episodes may have been played on beyond it. None of an episode
        whose simulator failed, which leaves nothing to judge."""
        steps, length = np.arange(errors.reward.shape[2]), np.minimum(errors.length[0], self.limit or math.inf)
        return np.asarray((steps < length[:, None]) & errors.judged[0].any(1, keepdims=True))

    def returns_of(self, errors: ValueErrors) -> Floats:
        within = self.within_task(errors)
        return np.asarray(np.where(within, errors.reward[0], 0.0).sum(1)[within.any(1)])

    def certified(
        self, policy: str, returns: Floats, limits: tuple[float, float] | None, because: str
    ) -> ReturnCertificate:
        finite = returns[np.isfinite(returns)]
        if not len(finite):
            raise UserError(f"No episode of the policy {policy!r} could be played; its simulator failed in each.")
        return certify_returns(finite, limits, self.delta, policy=policy, because=because)


def episodes_of(errors: ValueErrors, first: int, stop: int | None) -> ValueErrors:
    """A part of the episodes."""
    by_episode = [
        field.name
        for field in dataclasses.fields(errors)
        if isinstance(value := getattr(errors, field.name), np.ndarray) and value.ndim > 1
    ]
    return dataclasses.replace(errors, **{name: getattr(errors, name)[:, first:stop] for name in by_episode})


def claims_of(errors: ValueErrors) -> Claims:
    v = np.zeros_like(errors.m[0]) if errors.v is None else errors.v[0]
    return Claims(errors.m[0], v, errors.g[0], errors.judged[0])


def bias_along(policy: str, errors: ValueErrors, delta: float) -> BiasAlong:
    error, judged = errors.m[0] - errors.g[0], errors.judged[0]
    last = int(np.flatnonzero(judged.any(0)).max(initial=0)) + 1
    middles, biases = [], []
    for part in np.array_split(np.arange(last), min(PARTS, last)):
        some = judged[:, part].any(1)
        if not some.any():
            continue
        total = np.where(judged, error, 0.0)[:, part].sum(1)
        biases.append(mean_interval(total[some] / judged[:, part].sum(1)[some], 1 - delta))
        middles.append(float(part.mean()))
    return BiasAlong(policy, middles, biases)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Batches this small are slower on several threads, and many times so where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _plain(value: Any) -> Any:
    """As JSON knows it: numbers that are not finite become words."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "infinite" if value > 0 else "-infinite" if value < 0 else None
    return value
