"""Certificates of trained critics and policies: `pac4sac.certify`."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from pac4sac.agents.base import Agent, State
from pac4sac.agents.bounds import check_delta
from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.files import write_whole
from pac4sac.base.ranges import EPISODES, NON_NEGATIVE, check_value
from pac4sac.base.trust import allow
from pac4sac.certificates.bound_rows import BoundRow, BoundTable
from pac4sac.certificates.calibration import Calibration, calibrate
from pac4sac.certificates.critic_errors import Measured, Scales, bellman_errors, fresh_errors
from pac4sac.certificates.fresh_episodes import (
    FEWEST,
    BiasAlong,
    BiasPhase,
    PlayedEpisodes,
    Progress,
    assumed_rewards,
    bias_along,
    bias_by_phase,
    certified_returns,
    play_episodes,
)
from pac4sac.certificates.intervals import WidenedInterval, widen
from pac4sac.certificates.returns import Limits, ReturnCertificate, RewardRange
from pac4sac.certificates.stored_replay import StoredReplay, stored_replay
from pac4sac.certificates.texts import CAVEATS, REMARKS
from pac4sac.runs.reading import damage_text, read_run
from pac4sac.tasks.registry import time_limit
from pac4sac.training.agent_file import choose_agent
from pac4sac.training.backends import on_threads
from pac4sac.training.evaluation import Episodes, evaluate
from pac4sac.training.trained_agent import load
from pac4sac.training.value_error import Bias

VERSION = 1
# JSON has no infinity
NOT_FINITE = {"Infinity": "infinite", "-Infinity": "-infinite", "NaN": None}


@dataclass(frozen=True)
class Certificate:
    """Hold the result of `certify`, which the command `pac4sac certify` prints.

    Attributes:
        run: Name of the run.
        task: Name of the task.
        algo: Name of the algorithm.
        agent_file: The agent file.
        seed: Seed of the episodes.
        delta: Probability that a bound may fail.
        episodes: Number of measuring episodes, and of certifying episodes.
        gamma: Discount factor.
        alpha: Weight of the entropy.
        rewards: Range of the rewards.
        epsilon: Scale of the bounded loss for Bellman errors.
        epsilon_value: Scale of the bounded loss for value errors.
        kl: KL divergence of the last layer; None for plain weights.
        replay_tuples: Number of stored transitions; None without a replay buffer.
        bias: Value bias by policy.
        along: Bias along the episode, by policy.
        phases: Bias of the policy early, middle and late in the episode.
        unjudged_steps: Steps of measuring episodes too close to the time limit to be judged.
        measured: Measured errors.
        rows: The bounds.
        calibration: Coverage of the critic's intervals.
        interval: Calibrated interval; None for a critic without a standard deviation.
        returns: Lower bounds on the expected return.
        remarks: Omitted parts, with the reasons.

    Example:
        >>> certificate = pac4sac.certify("experiments/pendulum-v1-sac")
        >>> [path.name for path in certificate.write("certificates")]
        ['certificate.json', 'certificate.png']
    """

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
    phases: list[BiasPhase]  # bias of the policy early, middle and late in the episode
    # steps of π's measuring episodes that are too close to the time limit
    unjudged_steps: int
    measured: Measured
    rows: list[BoundRow]
    calibration: list[Calibration]
    interval: WidenedInterval | None  # None if no step could be judged
    returns: list[ReturnCertificate]
    remarks: list[str]  # omitted parts, with the reason for each

    def policy_name(self, policy: str) -> str:
        """Return the name of a policy, with "with entropy" if its returns include entropy.

        Args:
            policy: "policy" or "shooting".
        """
        if policy == "shooting":
            return "shooting policy"
        return "policy, with entropy" if self.alpha else "policy"

    def to_json(self) -> dict[str, Any]:
        """Return the content of certificate.json, with values derived from the measurements."""
        about = asdict(self)
        for written_below in ("rows", "agent_file", "bias"):
            del about[written_below]
        biases = {p: _with(bias, "relative", "verdict") for p, bias in self.bias.items()}
        about |= {
            "bias": biases,
            "phases": [_with(phase, "verdict") for phase in self.phases],
            "bounds": [_with(row, "vacuous", "respected", "says") for row in self.rows],
            "returns": [
                asdict(bound) | {"vacuous": bound.has_vacuous_bound} for bound in self.returns
            ],
            "assumptions_that_fail": self._failing_assumptions(),
            "agent_file": str(self.agent_file),
        }
        text = json.dumps({"format": "pac4sac certificate", "version": VERSION, **about})
        plain: dict[str, Any] = json.loads(text, parse_constant=NOT_FINITE.get)
        return plain

    def _failing_assumptions(self) -> dict[str, str]:
        """Return the assumptions that fail for at least one bound, in words."""
        failing = set(chain.from_iterable(row.fails for row in self.rows))
        return {key: text for key, text in CAVEATS.items() if key in failing}

    def write(self, folder: str | Path) -> list[Path]:
        """Write certificate.json and certificate.png into a folder.

        Args:
            folder: Folder, which is created if needed.

        Returns:
            The paths of the two files.
        """
        from pac4sac.certificates.picture import draw

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        numbers, picture = folder / "certificate.json", folder / "certificate.png"
        write_whole(numbers, json.dumps(self.to_json(), indent=1, ensure_ascii=False))
        draw(self, picture)
        return [numbers, picture]


def _with(row: Bias | BiasPhase | BoundRow, *derived: str) -> dict[str, Any]:
    """Return the fields of a row, and further attributes of it."""
    return asdict(row) | {name: getattr(row, name) for name in derived}


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
    """Measure the errors of an agent on fresh episodes, and certify bounds with other episodes.

    Args:
        path: An agent file, a run, or an experiment, whose best run is used.
        episodes: Number of measuring episodes; as many others certify.
        delta: Probability that a bound may fail.
        seed: Seed of the episodes.
        reward_range: Smallest and largest possible reward of a step, if known.
        return_range: Smallest and largest possible return of an episode, if known.
        out: Folder for certificate.json and certificate.png.
        progress: Called with a line of text before each slow part.
        trust: Custom modules that define the agent or its environment.

    Returns:
        The certificate, with measurements, bounds and calibration.

    Raises:
        UserError: If an argument is wrong, or there is no agent.

    Example:
        >>> certificate = pac4sac.certify("experiments/pendulum-v1-sac")
        >>> verdict = certificate.bias["policy"].verdict
    """
    check_types(certify, locals())
    allow(trust)
    if episodes < FEWEST:
        raise UserError(f"A certificate needs at least {FEWEST} episodes, not {episodes}.")
    if seed < 0:
        raise UserError(f"The seed must be 0 or greater, not {seed}.")
    check_value("episodes", episodes, int, EPISODES)
    check_value("seed", seed, int, NON_NEGATIVE)
    check_delta(delta)
    given = None if reward_range is None else RewardRange(*reward_range, "given", proven=False)
    file = saved_agent(path)
    # Small batches are slower on several threads, and much slower if the cores are busy.
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
    """Return the certificate of an agent file."""
    trained = load(file)
    stored = stored_replay(file, trained)
    agent, state, task = trained.agent, trained.state | stored.prior, trained.run.task
    played = play_episodes(trained, state, episodes, seed, say)
    rewards = assumed_rewards(given or RewardRange.known(task), stored.batch, played)

    say("evaluating the critic on replay and fresh transitions …")
    scales = Scales(rewards.scale, played.policy.gamma, delta)
    table = _bound_table(agent, state, stored, played, scales, seed, rewards.are_outside)
    calibrations = calibrate(agent, state, task, played.measuring, seed, delta, say)
    remarks = [*about_training(file), *rewards.remarks, *about_posterior(table.kl, stored)]
    if not calibrations:
        remarks.append(REMARKS["no_uncertainty"])
    say(f"playing {episodes} episodes of the deterministic policy …")
    runs = Episodes(agent, state, task, [seed], episodes, "certificate")
    deterministic = evaluate(runs, "deterministic")[0]
    limit = time_limit(task)
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
        kl=table.kl,
        replay_tuples=None if table.replay is None else len(table.replay.m),
        bias=played.biases(1 - delta),
        phases=bias_by_phase(played.measuring, delta),
        along=[bias_along(policy, e, delta) for policy, e in played.by_policy.items()],
        unjudged_steps=int(unjudged.sum()),
        measured=table.measured,
        rows=table.rows(),
        calibration=calibrations,
        interval=widen(played.measuring, played.certifying, delta),
        returns=certified_returns(played, deterministic, limits, rewards.assumed, limit, delta),
        remarks=remarks,
    )


def _bound_table(
    agent: Agent,
    state: State,
    stored: StoredReplay,
    played: PlayedEpisodes,
    scales: Scales,
    seed: int,
    rewards_outside: bool,
) -> BoundTable:
    """Return all bounds, computed from the replay buffer and the certifying episodes and compared
    with the measuring episodes."""
    on_replay = None
    if stored.batch is not None:
        on_replay = bellman_errors(agent, state, stored.batch, seed)
    kl, fails = posterior(agent, state)
    measuring = fresh_errors(agent, state, played.measuring, scales, seed)
    certifying = fresh_errors(agent, state, played.certifying, scales, seed + 1)
    return BoundTable(on_replay, certifying, measuring.measured(), kl, fails, seed, rewards_outside)


def about_posterior(kl: float | None, stored: StoredReplay) -> list[str]:
    """Return the reasons for omitted bounds: weights without a distribution, or no replay
    buffer."""
    if kl is None:
        return [REMARKS["plain_weights"]]
    if stored.batch is None:
        return [REMARKS["no_replay"].format(missing=stored.missing)]
    return []


def posterior(agent: Agent, state: State) -> tuple[float | None, tuple[str, ...]]:
    """Return the KL of the critic's weights, and the assumptions that they violate.

    The KL is None if the weights have no distribution. Several critics form either a product
    posterior over all their weights, whose KL is the sum, or a mixture, whose KL is at most the
    mean.
    """
    if not agent.critic.gaussian or not hasattr(agent, "divergence"):
        return None, ()
    with torch.no_grad():
        each = agent.divergence(state, agent.params(state, "critic"))
    kl, shape = (each.sum(), "minimum") if agent.takes_minimum else (each.mean(), "mixture")
    fails = []
    if getattr(agent, "prior_moves", False):
        fails.append("prior")
    if agent.critic.members > 1:
        fails.append(shape)
    return float(kl), tuple(fails)


# --- the agent file, and its training


def saved_agent(path: str | Path) -> Path:
    """Return the agent file of a path."""
    path = Path(path)
    if path.exists() and not _has_agent(path):
        for experiment in (path, path.resolve().parent.parent):
            if (experiment / "experiment.json").is_file():
                quoted = shlex.quote(str(experiment))
                raise UserError(REMARKS["not_yet"].format(path=path, experiment=quoted))
    return choose_agent(path)


def _has_agent(path: Path) -> bool:
    """Return whether a path is a file, or a run or experiment folder with an agent."""
    patterns = ("agent.safetensors", "runs/*/agent.safetensors")
    return path.is_file() or any(any(path.glob(pattern)) for pattern in patterns)


def about_training(agent_file: Path) -> list[str]:
    """Return remarks on unfinished training and damaged logs of an agent; empty if its run is
    unknown."""
    try:
        run = read_run(agent_file.parent)
    except UserError:
        return []
    remarks = []
    if run.status != "finished":
        why = ": ".join(part for part in (run.status, run.status_detail) if part)
        remarks.append(REMARKS["unfinished"].format(why=why))
    if run.damage:
        remarks.append(REMARKS["damaged"].format(logs=damage_text(run)))
    return remarks
