"""`pac4sac.certify`: all that can be said about how far a trained critic and its policy may be
trusted."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pac4sac.agents.base import Agent, State
from pac4sac.agents.bounds import check_delta
from pac4sac.agents.replay import Batch
from pac4sac.base.errors import UserError
from pac4sac.base.files import write_whole
from pac4sac.base.ranges import EPISODES, NON_NEGATIVE, check_value
from pac4sac.base.trust import allow
from pac4sac.certificates import critic_errors
from pac4sac.certificates.bound_rows import BoundRow, BoundTable
from pac4sac.certificates.critic_errors import Progress
from pac4sac.certificates.intervals import WidenedInterval, widen
from pac4sac.certificates.returns import Limits, ReturnCertificate, RewardRange, certify_returns
from pac4sac.certificates.texts import CAVEATS, TEXTS
from pac4sac.runs.reading import damage_text, read_run
from pac4sac.runs.statistics import Estimate
from pac4sac.tasks.registry import time_limit
from pac4sac.training.agent_file import TrainedAgent, choose_agent, load
from pac4sac.training.backends import on_threads
from pac4sac.training.evaluation import Episodes, evaluate
from pac4sac.training.value_error import Bias, Floats, ValueErrors, measure_value_errors

REMARKS: dict[str, str] = TEXTS["remarks"]
VERSION = 1
FEWEST = 4
SHOOTING_SHARE = (
    4  # a fourth as many episodes of the shooting policy, which costs hundreds of times more
)
# JSON has no such numbers
NOT_FINITE = {"Infinity": "infinite", "-Infinity": "-infinite", "NaN": None}
PARTS = 20  # of an episode, for the bias along it


@dataclass(frozen=True)
class BiasAlong:
    """The mean of m_p − G over the episode: by part of the judged steps, with intervals over
    episodes."""

    policy: str
    step: list[float]  # the middle of each part
    bias: list[Estimate]


@dataclass(frozen=True)
class Certificate:
    """What `certify` has found: measured bias and errors, every bound with its verdict,
    calibration, lower bounds on the return. Printed by `pac4sac certify`."""

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
    # of π's measuring episodes: too near to the time limit to know the rest of their return
    unjudged_steps: int
    measured: critic_errors.Measured
    rows: list[BoundRow]
    calibration: list[critic_errors.Calibration]
    interval: WidenedInterval | None  # None for a critic that offers no deviation
    returns: list[ReturnCertificate]
    remarks: list[str]  # what is left out, and why

    def policy_name(self, policy: str) -> str:
        """With the kind of returns that it is judged by."""
        return (
            "shooting, plain returns"
            if policy == "shooting"
            else f"π, {'soft' if self.alpha else 'plain'} returns"
        )

    def to_json(self) -> dict[str, Any]:
        about = asdict(self)
        # which come later, with what follows from them
        del (about["rows"], about["agent_file"], about["bias"])
        about["bias"] = {
            policy: _with(bias, "relative", "verdict") for policy, bias in self.bias.items()
        }
        about["bounds"] = [_with(row, "vacuous", "respected", "says") for row in self.rows]
        about["returns"] = [
            asdict(one) | {"vacuous": one.betting is not None and one.vacuous(one.betting)}
            for one in self.returns
        ]
        failing = {key for row in self.rows for key in row.fails}
        about["assumptions_that_fail"] = {
            key: text for key, text in CAVEATS.items() if key in failing
        }
        about["agent_file"] = str(self.agent_file)
        text = json.dumps({"format": "pac4sac certificate", "version": VERSION, **about})
        plain: dict[str, Any] = json.loads(text, parse_constant=NOT_FINITE.get)
        return plain

    def write(self, folder: str | Path) -> list[Path]:
        """certificate.json and certificate.png, in a folder that is made where it does not
        exist."""
        from pac4sac.certificates.picture import draw

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(
            folder / "certificate.json", json.dumps(self.to_json(), indent=1, ensure_ascii=False)
        )
        draw(self, folder / "certificate.png")
        return [folder / "certificate.json", folder / "certificate.png"]


def certify(
    path: str | Path,
    *,
    episodes: int = 64,
    delta: float = 0.05,
    seed: int = 0,
    reward_range: Limits | None = None,
    return_range: Limits | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    trust: str | Iterable[str] = (),
) -> Certificate:
    """Look at the agent at `path` (an agent file, a run, or an experiment, whose best run is taken)
    on fresh episodes: `episodes` to measure its errors, and as many again to certify them.
    `reward_range` and `return_range` say what is known of the task's rewards in a step and in an
    episode. With `out`, certificate.json and .png are written there. `trust` names modules of yours
    that the agent or its environment comes from."""
    allow(trust)
    if episodes < FEWEST:
        raise UserError(f"A certificate needs at least {FEWEST} episodes, not {episodes}.")
    if seed < 0:
        raise UserError(f"The seed must be 0 or greater, not {seed}.")
    check_value("episodes", episodes, int, EPISODES)
    check_value("seed", seed, int, NON_NEGATIVE)
    check_delta(delta)
    given = (
        None if reward_range is None else RewardRange(*reward_range, "you gave it", proven=False)
    )
    file = saved_agent(path)
    # batches this small are slower on several, and many times so where the cores are busy
    with on_threads(1):
        certificate = _examine(
            file, episodes, delta, seed, given, return_range, progress or (lambda text: None)
        )
    if out is not None:
        certificate.write(out)
    return certificate


def _examine(
    file: Path,
    episodes: int,
    delta: float,
    seed: int,
    given: RewardRange | None,
    limits: Limits | None,
    say: Progress,
) -> Certificate:
    trained = load(file)
    stored = critic_errors.stored_replay(file, trained)
    agent, state, task = trained.agent, trained.state | stored.prior, trained.run.task
    played = play_episodes(trained, state, episodes, seed, say)
    rewards = assumed_rewards(given or RewardRange.known(task), stored.batch, played)

    say("the critic on replay and fresh transitions …")
    scales = critic_errors.Scales(rewards.scale, played.policy.gamma, delta)
    replay = None
    if stored.batch is not None:
        replay = critic_errors.bellman_errors(agent, state, stored.batch, seed)
    kl, faults = posterior(agent, state)
    measuring = critic_errors.fresh_errors(agent, state, played.measuring, scales, seed)
    certifying = critic_errors.fresh_errors(agent, state, played.certifying, scales, seed + 1)
    measured = measuring.measured()
    table = BoundTable(
        replay, certifying, measured, kl, faults, seed, rewards_outside=rewards.are_outside
    )

    calibrations = critic_errors.calibrate(agent, state, task, played.measuring, seed, delta, say)
    remarks = [*about_training(file), *rewards.remarks, *about_posterior(kl, stored)]
    if not calibrations:
        remarks.append(REMARKS["no_uncertainty"])
    say(f"{episodes} episodes of the deterministic policy …")
    deterministic = evaluate(
        Episodes(agent, state, task, [seed], episodes, "certificate"), "deterministic"
    )[0]
    limit, errors = time_limit(task), played.by_policy
    unjudged = played.measuring.within(limit) & ~played.measuring.judged
    return Certificate(
        run=trained.run.id,
        task=task.name,
        algo=trained.run.algo,
        agent_file=file,
        seed=seed,
        delta=delta,
        episodes=episodes,
        gamma=scales.gamma,
        alpha=played.policy.alpha,
        rewards=rewards.scale,
        epsilon=scales.epsilon,
        epsilon_value=scales.epsilon_value,
        kl=kl,
        replay_tuples=None if replay is None else len(replay.m),
        bias={policy: bias for policy, e in errors.items() if (bias := e.bias(1 - delta))},
        along=[bias_along(policy, e, delta) for policy, e in errors.items()],
        unjudged_steps=int(unjudged.sum()),
        measured=measured,
        rows=table.rows(),
        calibration=calibrations,
        interval=widen(played.measuring, played.certifying, delta),
        returns=_certified_returns(played, deterministic, limits, rewards.assumed, limit, delta),
        remarks=remarks,
    )


class PlayedEpisodes(NamedTuple):
    """Fresh episodes of the stochastic policy and, if the agent shoots, of the shooting policy."""

    policy: ValueErrors  # both of the following
    measuring: ValueErrors
    certifying: ValueErrors
    shooting: ValueErrors | None

    @property
    def by_policy(self) -> dict[str, ValueErrors]:
        """The episodes that measure."""
        shooting = {} if self.shooting is None else {"shooting": self.shooting}
        return {"policy": self.measuring, **shooting}


def play_episodes(
    trained: TrainedAgent, state: State, episodes: int, seed: int, say: Progress
) -> PlayedEpisodes:
    agent, task, shooting = trained.agent, trained.run.task, None
    say(f"{2 * episodes} episodes of the policy …")
    (policy,) = measure_value_errors(agent, state, task, [seed], 2 * episodes, "certificate")
    if trained.shoots:
        count = max(FEWEST, episodes // SHOOTING_SHARE)
        say(f"{count} episodes of the shooting policy, the dearest part …")
        (shooting,) = measure_value_errors(
            agent, state, task, [seed], count, "certificate", shooting=True
        )
    measuring, certifying = policy.part(slice(episodes)), policy.part(slice(episodes, None))
    return PlayedEpisodes(policy, measuring, certifying, shooting)


class AssumedRewards(NamedTuple):
    """What bounds take for the range of a task's rewards."""

    scale: RewardRange  # by which errors are judged
    assumed: RewardRange | None  # what bounds on returns rest on
    are_outside: bool  # some rewards refute the range
    remarks: list[str]


def assumed_rewards(
    known: RewardRange | None, batch: Batch | None, played: PlayedEpisodes
) -> AssumedRewards:
    """Return the known range, or that of the rewards that were seen: then nothing is assumed, since
    extremes that were merely seen are no limits."""
    replayed = [] if batch is None else [batch.r[0].double().numpy()]
    scale, assumed, remarks = known, known, []
    if scale is None:
        scale = RewardRange.observed((*replayed, played.measuring.rewards())[0])
        remarks.append(REMARKS["unknown_rewards"].format(rewards=scale))
    fresh = [errors.rewards() for errors in (played.policy, played.shooting) if errors is not None]
    outside = scale.farthest_outside(np.concatenate(fresh + replayed))
    if outside is not None:
        limits_of = "each step" if scale.each_step else "an episode's mean"
        remarks.append(REMARKS["outside"].format(reward=outside, range=scale, limits_of=limits_of))
        assumed = None if scale.each_step else assumed
    return AssumedRewards(scale, assumed, outside is not None, remarks)


def _certified_returns(
    played: PlayedEpisodes,
    deterministic: Floats,
    limits: Limits | None,
    rewards: RewardRange | None,
    limit: int | None,
    delta: float,
) -> list[ReturnCertificate]:
    """Bound the expected return of each policy, by the limits that the user gave or by those that
    follow from the rewards and the time limit."""
    returns = {
        "π, one action": played.policy.returns(limit),
        "deterministic": deterministic[np.isfinite(deterministic)],
    }
    if played.shooting is not None:
        returns["shooting"] = played.shooting.returns(limit)
    because = "returns in the range that you gave"
    if limits is None and rewards is not None and limit is not None:
        limits, because = rewards.of_returns(limit), f"{rewards}, {limit} steps at most"
    return [
        certify_returns(x, limits, delta, policy=policy, because=because)
        for policy, x in returns.items()
    ]


def about_posterior(kl: float | None, stored: critic_errors.StoredReplay) -> list[str]:
    if kl is None:
        return [REMARKS["plain_weights"]]
    return [] if stored.batch is not None else [REMARKS["no_replay"].format(missing=stored.missing)]


def posterior(agent: Agent, state: State) -> tuple[float | None, tuple[str, ...]]:
    """The KL of the critic's weights, where they have a distribution, and what that violates of the
    theorems."""
    if not agent.critic.gaussian or not hasattr(agent, "divergence"):
        return None, ()
    with torch.no_grad():
        each = agent.divergence(state, agent.params(state, "critic"))
    # Several critics are one posterior over all of their weights, the product, whose KL is the sum;
    # or over the weights of one of them, a mixture, whose KL is at most the mean.
    kl, shape = (each.sum(), "minimum") if agent.takes_minimum else (each.mean(), "mixture")
    moved = getattr(agent, "prior_moves", False)
    return float(kl), (
        *(["prior"] if moved else []),
        *([shape] if agent.critic.members > 1 else []),
    )


def bias_along(policy: str, errors: ValueErrors, delta: float) -> BiasAlong:
    last = int(np.flatnonzero(errors.judged.any(0)).max(initial=0)) + 1
    parts = np.array_split(np.arange(last), min(PARTS, last))
    judged = {
        float(part.mean()): bias
        for part in parts
        if (bias := errors.part(steps=part).bias(1 - delta))
    }
    return BiasAlong(policy, [*judged], [bias.estimate for bias in judged.values()])


# --- the agent file, and its training


def saved_agent(path: str | Path) -> Path:
    """The agent file that a path names."""
    path = Path(path)
    if not (
        path.is_file()
        or any(path.glob("agent.safetensors"))
        or any(path.glob("runs/*/agent.safetensors"))
    ):
        for experiment in (path, path.resolve().parent.parent):
            if (experiment / "experiment.json").is_file():
                raise UserError(
                    REMARKS["not_yet"].format(path=path, experiment=shlex.quote(str(experiment)))
                )
    return choose_agent(path)


def about_training(agent_file: Path) -> list[str]:
    """Why it ended early, or that it goes on, and what of its logs is damaged; nothing where that
    is not known."""
    try:
        run = read_run(agent_file.parent)
    except UserError:
        return []
    why = ": ".join(part for part in (run.status, run.status_detail) if part)
    told = [] if run.status == "finished" else [REMARKS["unfinished"].format(why=why)]
    return told + ([REMARKS["damaged"].format(logs=damage_text(run))] if run.damage else [])


def _with(one: Bias | BoundRow, *derived: str) -> dict[str, Any]:
    return asdict(one) | {name: getattr(one, name) for name in derived}
