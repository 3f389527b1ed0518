"""Agents of one's own, each with a mistake that people make, and one without."""

from dataclasses import dataclass

import torch

from pac4sac.agents.api import NON_NEGATIVE, Hyper, Sac, SacConfig, Stream, Td3, Td3Config, per_run


@dataclass(frozen=True, kw_only=True)
class BareConfig(SacConfig):
    beta: float = 0.5


class BareSetting(Sac):
    Config = BareConfig


class UndecoratedConfig(SacConfig):
    beta: float = per_run(0.5, NON_NEGATIVE, "β")


class Undecorated(Sac):
    Config = UndecoratedConfig


class ForgottenConfig(Sac):
    def alpha(self, state):
        return Hyper(state).beta


class NoStream(Sac):
    def next_action(self, state, s2, draw):
        a2, log_pi = super().next_action(state, s2, draw)
        return a2 + 0.1 * draw["smoothing"], log_pi


class OneLossForAll(Sac):
    def actor_loss(self, state, pi, batch, draw):
        loss, log = super().actor_loss(state, pi, batch, draw)
        return loss.mean(), log


class LogsTheBatch(Sac):
    def actor_loss(self, state, pi, batch, draw):
        loss, log = super().actor_loss(state, pi, batch, draw)
        return loss, log | {"entropy": batch.r}


class LogsUnnamed(Sac):
    def actor_loss(self, state, pi, batch, draw):
        loss, log = super().actor_loss(state, pi, batch, draw)
        return loss, log | {"surprise": loss}


class LogsNothing(Sac):
    def logged(self):
        return (*super().logged(), "surprise")


class StuckActor(Sac):
    def actor_loss(self, state, pi, batch, draw):
        return super().actor_loss(
            state, {name: p.detach() + 0 * p for name, p in pi.items()}, batch, draw
        )


class RootOfZero(Sac):
    def critic_loss(self, state, theta, batch, target, draw):
        loss, log = super().critic_loss(state, theta, batch, target, draw)
        return loss + (loss - loss).sqrt(), log


class DrawsByItself(Sac):
    def bellman_target(self, state, batch, draw):
        target = super().bellman_target(state, batch, draw)
        return target._replace(y=target.y + 0.1 * torch.randn_like(target.y))


class ActsByChance(Sac):
    def behaviour(self, state, s, draw):
        return super().behaviour(state, s, draw) * torch.rand(())


class NormalisesOverRuns(Sac):
    def bellman_target(self, state, batch, draw):
        target = super().bellman_target(state, batch, draw)
        return target._replace(y=(target.y - target.y.mean()) / target.y.std())


class ReadsTheFirstRun(Sac):
    def bellman_target(self, state, batch, draw):
        target = super().bellman_target(state, batch, draw)
        return target._replace(y=target.y * self.config.gamma)


class Branches(Sac):
    def critic_loss(self, state, theta, batch, target, draw):
        loss, log = super().critic_loss(state, theta, batch, target, draw)
        return loss if loss.mean().item() > 0 else 2 * loss, log


class Forgets(Sac):
    def extra_state(self, seeds, device):
        return super().extra_state(seeds, device) | {
            "offset": torch.zeros(self.runs, device=device)
        }

    def learn(self, state, batch, draw, active):
        state["offset"] += batch.r.mean(-1)
        return super().learn(state, batch, draw, active)

    def deterministic_action(self, state, s):
        return super().deterministic_action(state, s + state["offset"][:, None, None])


class TooFar(Sac):
    def behaviour(self, state, s, draw):
        return 1.5 * super().behaviour(state, s, draw)


class Flat(Sac):
    def deterministic_action(self, state, s):
        return super().deterministic_action(state, s).flatten(1)


class NoTargetNetwork(Sac):
    with_target = ("critic", "policy")


class DelayedByNobody(Td3):
    delayed = {"actor": "patience"}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class NoisyConfig(Td3Config):
    spread: float = per_run(0.1, NON_NEGATIVE, "deviation of noise on rewards")


class Noisy(Td3):
    title = "TD3 with noise on its rewards, from a stream"
    Config = NoisyConfig

    def bellman_target(self, state, batch, draw):
        noise = Hyper(state).spread[:, None] * draw["reward"]
        return super().bellman_target(state, batch._replace(r=batch.r + noise), draw)

    def update_streams(self):
        return super().update_streams() | {"reward": Stream((self.config.batch,))}
