"""PAC4SAC and its critic with all that can be chosen: what the paper leaves open, what its released
code does, and what goes beyond both. By its defaults it computes what `pac4sac.py` does, and
nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents import bounds, full_covariance
from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target
from pac4sac.agents.full_covariance import FORGETTING, LOG_DETERMINANT, ROOT, FullCovarianceCritic
from pac4sac.agents.nets import Critic, Params
from pac4sac.agents.pac4sac import Objective, Pac4Sac, Pac4SacConfig, PacBayesConfig, PacBayesCritic
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, of_own_shots, pairs, take
from pac4sac.agents.settings import (
    ANY,
    MUJOCO_SAC,
    OPEN_UNIT,
    POSITIVE,
    Interval,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError

FRESH = (
    "fresh/"  # before names of what is drawn for a second minibatch, that of the exploration term
)

# --- Objectives of the critic beyond the paper's, each again a risk, a conservative term and an
# exploration term. The paper's bound is for losses in [0, 1], and its squared error is not one.
# Four objectives replace it by 1 − exp(−(Q − y)²/ε²), whose mean over Q ~ N(m_p, v_p) is known in
# closed form, and take a bound that is proven for it: what the bound adds to the risk is their
# conservative term. The fifth, second-order, bounds the risk of the mean critic.

BOUNDED: dict[str, Callable[..., Tensor]] = {  # of risk, KL, N and δ
    "classic": bounds.maurer,
    "quadratic": bounds.quadratic,
    "lambda": bounds.lambda_bound,
    "kl": bounds.kl_bound,
}
# The conservative term from KL, N and δ. The paper's training objective has no δ; "mcallester" is
# the bound as the paper prints it, the last two are proven.
COMPLEXITY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "paper": lambda kl, n, delta: bounds.complexity_paper(kl, n),
    "mcallester": bounds.complexity_mcallester,
    "mcallester-2003": bounds.complexity_mcallester_2003,
    "maurer": bounds.complexity_maurer,
    # as of bounds with a fixed λ: its slope does not grow where KL is small
    "linear": lambda kl, n, delta: kl / n,
}
OBJECTIVES = ("paper", "second-order", *BOUNDED)


def second_order(h: Hyper, y: Tensor, m_p: Tensor, complexity: Tensor) -> Objective:
    """The loss of pairs of critics, (m_p − y)², is the paper's Bellman term less v_p(s, a): it has
    an exploration term of weight 1 in it and bears no other. Pairs make the KL in `complexity`
    count twice."""
    risk = (m_p - y).square().mean(-1)
    return Objective(
        risk + h.conservative[:, None] * complexity, risk, complexity, torch.zeros_like(risk)
    )


def bounded(
    name: str,
    h: Hyper,
    y: Tensor,
    m_p: Tensor,
    v_p: Tensor,
    v_p_next: Tensor,
    kl: Tensor,
    n: Tensor,
) -> Objective:
    epsilon = h.loss_scale[:, None, None]
    risk = bounds.bounded_loss(m_p, v_p, y, epsilon).mean(-1)
    # λ is held: at its optimum the λ-bound has the slope of the quadratic one, and the two would be
    # one objective.
    held = {"lam": h.bound_lambda[:, None]} if name == "lambda" else {}
    conservative = BOUNDED[name](risk, kl, n, h.delta[:, None], **held) - risk
    # The exploration term is bounded as the risk is, or it would outweigh it: the loss that the
    # variance of the next value makes by itself, v_p(s′, a′)/ε² while that is small.
    exploration = bounds.bounded_loss(0.0, v_p_next, 0.0, epsilon).mean(-1)
    loss = risk + h.conservative[:, None] * conservative - h.xi[:, None] * exploration
    return Objective(loss, risk, conservative, exploration)


@dataclass(frozen=True, kw_only=True)
class BeyondConfig(PacBayesConfig):
    prior_mean: float = per_run(0.0, ANY, "mean of the prior of each weight")
    prior_variance: float = per_run(1.0, POSITIVE, "variance of the prior of each weight")
    delta: float = per_run(0.05, OPEN_UNIT, "δ of those complexity terms that have one")
    loss_range: float = per_run(
        1.0, POSITIVE, "range of an unbounded loss, which scales the conservative term"
    )
    loss_scale: float = per_run(
        10.0, POSITIVE, "ε of the bounded losses: errors far above it count the same"
    )
    bound_lambda: float = per_run(
        1.0, Interval(0, 2, low_open=True, high_open=True), "λ of the objective lambda"
    )
    observation_variance: float = per_run(1.0, POSITIVE, "σ² of the head full: noise of a target")
    forgetting: float = per_run(
        0.999, FORGETTING, "f of the head full: what an update leaves of older observations"
    )
    head: str = structural(
        "gaussian",
        ("gaussian", "full", "linear", "regression"),
        "last layer of the critic: weights independent, correlated, plain, or correlated by "
        "regression on the buffer",
    )
    freeze_variance: bool = structural(
        False, None, "never train the variances, as the released code does in effect"
    )
    objective: str = per_run("paper", OBJECTIVES, "what the critic minimises")
    complexity: str = structural("paper", tuple(COMPLEXITY), "form of the conservative term")
    target: str = structural(
        "mean", ("mean", "sampled"), "value of the next state: the target critic's mean or a sample"
    )
    exploration_batch: str = structural(
        "same",
        ("same", "fresh"),
        "minibatch of the exploration term: that of the others, or one of its own",
    )
    prior: str = per_run(
        "fixed",
        ("fixed", "moving", "moving-mean"),
        "keep the prior, or move it, or its mean alone, to the posterior after an episode",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        objective, full, fresh = self.objective, self.correlated, self.exploration_batch == "fresh"
        if objective == "second-order" and self.xi > 0:
            raise UserError(
                "The second-order objective has its exploration term in it; set xi=0 with it."
            )
        if objective in BOUNDED and self.loss_range != 1:
            raise UserError(
                f"The loss of the objective {objective} lies in [0, 1]; leave loss_range at "
                "1, set loss_scale."
            )
        if full and self.prior != "fixed":
            raise UserError(
                f"The {self.head} head carries its posterior on by itself; leave prior=fixed "
                "with it."
            )
        if full and self.freeze_variance:
            without = f"{self.head} head has no trained variances to freeze"
            raise UserError(f"The {without}; leave freeze_variance=false with it.")
        if fresh and objective == "second-order":
            without = "second-order objective has no exploration term apart"
            raise UserError(f"The {without}; leave exploration_batch=same with it.")
        if fresh and self.head != "gaussian":
            without = f"{self.head} head learns from no exploration term"
            raise UserError(f"The {without}; leave exploration_batch=same with it.")

    @property
    def correlated(self) -> bool:
        return self.head in ("full", "regression")


class BeyondCritic(PacBayesCritic):
    config: BeyondConfig

    # --- the last layer: Gaussian weights as in the paper, a full covariance, or plain weights

    def build_critic(self) -> Critic:
        trunk, critics = self.trunk(s=self.ds, a=self.da), self.config.critics
        if self.config.correlated:
            return FullCovarianceCritic(trunk, critics)
        return super().build_critic() if self.config.head == "gaussian" else Critic(trunk, critics)

    def params(self, state: State, name: str) -> Params:
        p = super().params(state, name)
        return self.with_covariance(state, p) if name.startswith("critic") else p

    def with_covariance(self, state: State, theta: Params) -> Params:
        if not self.config.correlated:
            return theta
        return {**theta, ROOT: state[ROOT], LOG_DETERMINANT: state[LOG_DETERMINANT]}

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = super().learn(state, batch, draw, active)
        if self.config.head == "full":
            full_covariance.observe(
                self.critic, self.params(state, "critic"), state, batch, active & state["alive"]
            )
        if self.config.head == "regression":
            with torch.no_grad():
                y = self.bellman_target(state, batch, draw).y
            n, theta = state["step"].clamp(1, self.config.capacity), self.params(state, "critic")
            full_covariance.gather(self.critic, theta, state, batch, y, n, active & state["alive"])
        return log

    def sample(self, theta: Params, s: Tensor, a: Tensor, epsilon: Tensor) -> Tensor:
        return (
            super().sample(theta, s, a, epsilon)
            if self.critic.gaussian
            else self.critic(theta, s, a)[0]
        )

    def logged(self) -> tuple[str, ...]:
        # With plain weights, what the critics beneath this one report is all there is.
        return super().logged() if self.critic.gaussian else super(PacBayesCritic, self).logged()

    # --- the objective

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        if not self.critic.gaussian:
            # the Bellman error is all
            return Agent.critic_loss(self, state, theta, batch, target, draw)
        if self.config.freeze_variance:
            # The released code clamps the variances where their gradient is zero; in effect they
            # are constants.
            theta = {**theta, "head.log_variance": theta["head.log_variance"].detach()}
        return super().critic_loss(state, self.with_covariance(state, theta), batch, target, draw)

    def objective(
        self,
        state: State,
        y: Tensor,
        m_p: Tensor,
        v_p: Tensor,
        v_p_next: Tensor,
        kl: Tensor,
        n: Tensor,
    ) -> Objective:
        def of(name: str) -> Objective:
            if name == "paper":
                return super(BeyondCritic, self).objective(state, y, m_p, v_p, v_p_next, kl, n)
            if name == "second-order":
                return second_order(Hyper(state), y, m_p, self.complexity(state, 2 * kl, n))
            return bounded(name, Hyper(state), y, m_p, v_p, v_p_next, kl, n)

        # One is computed for each choice in the cohort; its gradient must be finite also for runs
        # that chose another.
        names, numbers = (
            self.Config.choices("objective"),
            sorted({int(x) for x in self.numbers("objective")}),
        )
        chosen = of(names[numbers[0]])
        for number in numbers[1:]:
            own = (Hyper(state).objective == number)[:, None]
            terms = zip(of(names[number]), chosen, strict=True)
            chosen = Objective(*(torch.where(own, term, other) for term, other in terms))
        return chosen

    def complexity(self, state: State, kl: Tensor, n: Tensor) -> Tensor:
        """Of [R, M]; McAllester's root is for losses in [0, 1], and a wider range of the loss
        scales it."""
        h = Hyper(state)
        return h.loss_range[:, None] * COMPLEXITY[self.config.complexity](kl, n, h.delta[:, None])

    def here_and_next(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.config.exploration_batch == "fresh":
            # The paper uses the minibatch at hand twice, which it says is likely to bias the term.
            fresh = {
                name.removeprefix(FRESH): part
                for name, part in draw.items()
                if name.startswith(FRESH)
            }
            there = Batch(*(fresh[name] for name in Batch._fields))
            with torch.no_grad():
                target = target._replace(a2=self.bellman_target(state, there, fresh).a2)
            batch = batch._replace(s2=there.s2, terminated=there.terminated)
        m_p, v_p, v_p_next = super().here_and_next(state, theta, batch, target, draw)
        if self.config.correlated:
            # A covariance that is measured, not trained, leaves the features alone: the cheapest
            # way to be certain would be features that no longer tell pairs apart.
            v_p, v_p_next = v_p.detach(), v_p_next.detach()
        return m_p, v_p, v_p_next

    def update(self, state: State, data: Tensor, draw: Draw) -> None:
        if self.config.exploration_batch == "fresh":
            batch = self.drawn_batch(state, data, draw[FRESH + "replay"])
            draw = {**draw, **{FRESH + name: part for name, part in batch._asdict().items()}}
        super().update(state, data, draw)

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        if "next_value" not in draw:
            return super().target_value(state, s2, a2, draw)
        return self.sample(self.params(state, "critic/target"), s2, a2, draw["next_value"]).amin(1)

    def update_streams(self) -> dict[str, Stream]:
        streams = super().update_streams()
        if self.config.target == "sampled":
            streams["next_value"] = streams["actor_value"]
        if self.config.exploration_batch == "fresh":  # which transitions, and a′ where it is drawn
            streams[FRESH + "replay"] = Stream((self.config.batch,), uniform=True)
            streams |= {
                FRESH + name: stream for name, stream in streams.items() if name == "target"
            }
        return streams

    # --- the prior, which Section 3.1 suggests to update "with the posterior of the previous
    # episode". It is kept apart from the parameters: neither Adam nor Polyak averaging may touch
    # it.

    def divergence(self, state: State, theta: Params) -> Tensor:
        if isinstance(self.critic, FullCovarianceCritic):
            return self.critic.divergence(theta, state["prior_mean"], state["prior_log_variance"])
        m, log_v = self.critic.posterior(theta)
        # [R, M]
        return bounds.gaussian_kl(
            m, log_v.exp(), state["prior_mean"], state["prior_log_variance"].exp()
        )

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        def of_weights(setting: str) -> Tensor:  # [R, M, K]
            numbers = torch.tensor(self.numbers(setting), device=device).view(-1, 1, 1)
            return numbers.repeat(1, self.critic.members, self.critic.trunk.width)

        variance = of_weights("prior_variance")
        prior = {"prior_mean": of_weights("prior_mean"), "prior_log_variance": variance.log()}
        covariance = full_covariance.first(variance) if self.config.correlated else {}
        information = (
            full_covariance.no_information(variance) if self.config.head == "regression" else {}
        )
        return super().extra_state(seeds, device) | prior | covariance | information

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        super().end_of_episode(state, ended)
        if self.config.head == "regression":
            full_covariance.regress(state, ended)
        elif any(self.numbers("prior")) and self.critic.gaussian:  # fixed is 0
            kind, posterior = (
                Hyper(state).prior,
                self.critic.posterior(self.params(state, "critic")),
            )
            for name, value in zip(("prior_mean", "prior_log_variance"), posterior, strict=True):
                moving = ended & ((kind == 1) | ((kind == 2) & (name == "prior_mean")))
                state[name].copy_(torch.where(moving.view(-1, 1, 1), value, state[name]))


@dataclass(frozen=True, kw_only=True)
class BeyondPac4SacConfig(BeyondConfig, Pac4SacConfig):
    shooting: str = structural(
        "independent",
        ("independent", "thompson", "mean"),
        "samples of Q: one per candidate, one for all, or its mean",
    )


class BeyondPac4Sac(BeyondCritic, Pac4Sac):
    Config = BeyondPac4SacConfig
    presets: ClassVar = {
        "paper": {},
        # The released code, for comparison.
        "repo": {"critics": 2, "depth": 2, "norm": False, "activation": "relu", "prior_mean": 1.0}
        | {
            "log_variance": -10.0,
            "freeze_variance": True,
            "complexity": "maurer",
            "learn_alpha": True,
            "lr": 3e-4,
        }
        | {
            "alpha_loss": "plain",
            "batch": 256,
            "capacity": 1_000_000,
            "warmup": 10_000,
            "shoot": "evaluation",
        },
        # What had the least regret in the study `search`, on seeds of its own: learning starts in
        # the first episode, and the posterior is cold, so that the sampled critic is nearly its
        # mean.
        "best": {"warmup": 250, "xi": 0.0, "conservative": 0.01, "log_variance": -9.2},
        # The paper's objective and shooting with the networks, batches and learned α of others'
        # results on MuJoCo.
        "mujoco": {**MUJOCO_SAC, "warmup": 10_000},
    }
    updates_of_task: ClassVar = {"paper": 1, "best": 4}
    config: BeyondPac4SacConfig

    # --- shooting with one draw of the last layer's weights for all candidates, which are ranked by
    # a single critic, or by the mean of all

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        if self.config.shooting == "mean":
            return Sac.behaviour(self, state, s, draw)
        if (
            self.config.shooting == "independent"
            or "values" not in draw
            or not self.critic.gaussian
        ):
            return super().behaviour(state, s, draw)
        a, theta = self.candidates(state, s, draw), self.params(state, "critic")
        phi, weights = (
            self.critic.features(theta, *pairs(s, a)),
            self.critic.sampled_weights(theta, draw["values"]),
        )
        # [R, M, S·B]
        q = self.critic.per_member(torch.baddbmm(theta["head.bias"], phi, weights).squeeze(-1))
        return take(a, of_own_shots(q.amin(1).view(a.shape[:-1]), Hyper(state).shots).argmax(1))

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        streams = super().behaviour_streams(states, evaluating)
        if self.config.shooting == "thompson" and "values" in streams:
            streams["values"] = Stream((self.config.critics, self.critic.trunk.width))
        if self.config.shooting == "mean":
            streams.pop("values", None)
        return streams
