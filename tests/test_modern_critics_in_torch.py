"""XQC and FlashSAC next to the same algorithms in plain PyTorch: its modules, autograd and Adam, with
the order of their publications. Both see the same batches and the same noise."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_cohorts import make_agent, random_batch
from torch import Tensor, nn
from torch.distributions.transforms import TanhTransform

from pac4sac.agents.base import Agent, State
from pac4sac.agents.replay import Batch

DS, DA, BATCH, UPDATES = 3, 2, 32, 30
BINS, LOW, HIGH = 11, -3.0, 3.0
SHARED = {"width": 8, "batch": BATCH, "bins": BINS, "value_min": LOW, "value_max": HIGH}
SHARED |= {"lr": 3e-3, "tau": 0.1, "warmup": 0, "norm": False, "activation": "relu", "gamma": 0.9}
SHARED |= {"normalise_rewards": False, "learn_alpha": True, "alpha": 0.3, "log_std_max": 2.0}
SHARED |= {"alpha_loss": "plain", "target_entropy": -0.5, "lr_steps": 100, "updates_per_step": 1}


class Normalisation(nn.BatchNorm1d):
    """Running statistics with the variance of the batch itself, which PyTorch multiplies by
    B/(B − 1)."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        self.running_mean = self.running_mean.lerp(x.detach().mean(0), self.momentum)
        self.running_var = self.running_var.lerp(x.detach().var(0, correction=0), self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class Plain(nn.Sequential):
    """XQC's network: BatchNorm, then Linear, BatchNorm and ReLU twice, then a linear head."""

    def __init__(self, inputs: int, outputs: int) -> None:
        layers: list[nn.Module] = [Normalisation(inputs, 1e-3, 0.01)]
        for size in (inputs, 8):
            layers += [nn.Linear(size, 8, bias=False), Normalisation(8, 1e-3, 0.01), nn.ReLU()]
        super().__init__(*layers, nn.Linear(8, outputs))

    def names(self) -> dict[str, nn.Module]:
        return {"bn0": self[0], "0": self[1], "bn1": self[2], "1": self[4], "bn2": self[5]} | {
            "head": self[7]
        }


class Residual(nn.Module):
    """FlashSAC's network with one block."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.bn = Normalisation(inputs, 1e-5, 0.01)
        self.embed = nn.Linear(inputs, 8, bias=False)
        self.widen, self.narrow = nn.Linear(8, 32, bias=False), nn.Linear(32, 8, bias=False)
        self.bn_wide, self.bn_narrow = Normalisation(32, 1e-5, 0.01), Normalisation(8, 1e-5, 0.01)
        self.rms = nn.RMSNorm(8, eps=1e-6)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(self.bn(x))
        inside = F.relu(self.bn_wide(self.widen(x)))
        return self.head(self.rms(x + F.relu(self.bn_narrow(self.narrow(inside)))))

    def names(self) -> dict[str, nn.Module]:
        return {
            **{"bn": self.bn, "": self.embed, "0.0": self.widen, "0.0.bn": self.bn_wide},
            **{"0.1": self.narrow, "0.1.bn": self.bn_narrow, "rms": self.rms, "head": self.head},
        }


PARTS = {"scale": "weight", "shift": "bias", "mean": "running_mean", "variance": "running_var"}


def adopt(network: Any, weights: dict[str, Tensor], member: int = 0) -> None:
    """Give a PyTorch network the weights of one of our members."""
    for name, module in network.names().items():
        for part in ("weight", "bias", *PARTS):
            key = f"{name}.{part}".removeprefix(".")
            if key in weights:
                value = weights[key][member]
                place = getattr(module, PARTS.get(part, part))
                place.data.copy_(value.T if part == "weight" else value.view(place.shape))


class Reference:
    """One run in plain PyTorch."""

    def __init__(self, algo: str, agent: Agent, state: State, delay: int) -> None:
        self.flash, self.delay, self.number = algo == "flashsac", delay, 0
        kind = Residual if self.flash else Plain
        self.actor = kind(DS, 2 * DA)
        self.critics = nn.ModuleList(kind(DS + DA, BINS) for _ in range(2))
        self.targets = nn.ModuleList(kind(DS + DA, BINS) for _ in range(2))
        adopt(self.actor, dict(agent.params(state, "actor")))
        for member in range(2):
            for networks, name in ((self.critics, "critic"), (self.targets, "critic/target")):
                adopt(networks[member], dict(agent.params(state, name)), member)
        self.log_alpha = torch.tensor(math.log(0.3), requires_grad=True)
        self.z = torch.linspace(LOW, HIGH, BINS)
        owners = {"actor": self.actor, "critic": self.critics}
        self.adam = {name: torch.optim.Adam(own.parameters()) for name, own in owners.items()}
        self.adam["log_alpha"] = torch.optim.Adam([self.log_alpha])
        self.steps = dict.fromkeys(self.adam, 0)

    def step(self, name: str, loss: Tensor) -> None:
        self.adam[name].zero_grad()
        loss.backward(inputs=self.adam[name].param_groups[0]["params"])
        progress = self.steps[name] / 100
        if self.flash:  # a cosine that ends at a half
            share = 0.5 + 0.5 * (1 + math.cos(math.pi * progress)) / 2
        else:  # a line that ends at a tenth
            share = 1 - 0.9 * progress
        self.adam[name].param_groups[0]["lr"] = 3e-3 * share
        self.adam[name].step()
        self.steps[name] += 1
        if name != "log_alpha":
            self.normalise({"actor": self.actor, "critic": self.critics}[name])

    @torch.no_grad()
    def normalise(self, network: nn.Module) -> None:
        for module in network.modules():
            if isinstance(module, nn.Linear):
                module.weight.div_(module.weight.norm(dim=1, keepdim=True))
            elif self.flash and isinstance(module, nn.RMSNorm):
                module.weight.mul_(math.sqrt(len(module.weight)) / module.weight.norm())
            elif self.flash and isinstance(module, Normalisation):
                both = torch.cat([module.weight, module.bias])
                both *= math.sqrt(len(module.weight)) / both.norm()
                module.weight.copy_(both[: len(module.weight)])
                module.bias.copy_(both[len(module.weight) :])
        if not self.flash:
            for module in network.modules():
                if isinstance(module, Plain):
                    module[0].bias.zero_()  # which our networks lack

    def policy(self, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.actor(s).chunk(2, -1)
        log_std = -10 + 12 * (torch.tanh(raw) + 1) / 2 if self.flash else raw.clamp(-10, 2)
        normal = torch.distributions.Normal(mean[: len(noise)], log_std[: len(noise)].exp())
        u = normal.mean + normal.stddev * noise
        slope = TanhTransform().log_abs_det_jacobian(u, torch.tanh(u))
        return torch.tanh(u), (normal.log_prob(u) - slope).sum(-1)

    def project(self, y: Tensor, p: Tensor) -> Tensor:
        """Share each value between the bins below and above, one at a time."""
        projected = torch.zeros(len(y), BINS)
        for row in range(len(y)):
            for value, share in zip(y[row].tolist(), p[row].tolist(), strict=True):
                place = (min(max(value, LOW), HIGH) - LOW) / ((HIGH - LOW) / (BINS - 1))
                below = min(int(place), BINS - 2)
                projected[row, below] += share * (below + 1 - place)
                projected[row, below + 1] += share * (place - below)
        return projected

    def update_critic(self, batch: Batch, noise: Tensor) -> None:
        s, a, r, s2, terminated = (part[0] for part in batch)
        with torch.no_grad():
            self.actor.eval()
            a2, log_pi = self.policy(s2, noise)
            joint = torch.cat([torch.cat([s, a], -1), torch.cat([s2, a2], -1)])
            self.targets.train()
            each = torch.stack([net(joint)[BATCH:].softmax(-1) for net in self.targets])
            least = (each @ self.z).argmin(0)
            p = each[least, torch.arange(BATCH)]
            alpha = self.log_alpha.exp()
            y = r[:, None] + 0.9 * (1 - terminated)[:, None] * (self.z - (alpha * log_pi)[:, None])
            wanted = self.project(y, p)
        self.critics.train()
        losses = [F.cross_entropy(net(joint)[:BATCH], wanted) for net in self.critics]
        self.step("critic", losses[0] + losses[1])
        self.critics.eval()
        for target, net in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
            target.data.lerp_(net.data, 0.1)

    def update_actor(self, batch: Batch, noise: Tensor) -> None:
        self.actor.train()
        s = torch.cat([batch.s[0], batch.s2[0]]) if self.flash else batch.s[0]
        a, log_pi = self.policy(s, noise)
        self.critics.eval()
        pairs = torch.cat([batch.s[0], a], -1)
        q = torch.stack([net(pairs).softmax(-1) @ self.z for net in self.critics]).amin(0)
        alpha = self.log_alpha.exp().detach()
        entropy = -log_pi.detach().mean()
        self.step("actor", (alpha * log_pi - q).mean())
        self.step("log_alpha", self.log_alpha.exp() * (entropy + 0.5 * DA))

    def update(self, batch: Batch, draw: dict[str, Tensor]) -> None:
        moves_actor = self.number % self.delay == 0
        self.number += 1
        if self.flash and moves_actor:
            self.update_actor(batch, draw["actor"][0])
        self.update_critic(batch, draw["target"][0])
        if not self.flash and moves_actor:
            self.update_actor(batch, draw["actor"][0])


@pytest.mark.parametrize(("algo", "delay"), [("xqc", 3), ("flashsac", 2)])
def test_a_critic_learns_the_same_as_in_plain_pytorch(algo: str, delay: int) -> None:
    depth, schedule = (1, "cosine") if algo == "flashsac" else (2, "linear")
    end = {"lr_end": 0.5 if algo == "flashsac" else 0.1}
    settings = SHARED | {"depth": depth, "lr_schedule": schedule, "policy_delay": delay} | end
    agent = make_agent(algo, **settings)
    state = agent.initial_state([3], torch.device("cpu"))
    reference = Reference(algo, agent, state, delay)
    generator = torch.Generator().manual_seed(0)
    everyone = torch.ones(1, dtype=torch.bool)
    for update in range(UPDATES):
        batch = random_batch(size=BATCH, seed=update)
        noise = torch.randn(2, 1, BATCH, DA, generator=generator)
        draw = {"target": noise[0], "actor": noise[1]}
        state["step"].fill_(update)
        agent.learn(state, batch, draw, everyone)
        reference.update(batch, draw)
    expected = agent.initial_state([3], torch.device("cpu"))
    for name, networks in (("actor", [reference.actor]), ("critic", reference.critics)):
        assert_same(agent, state, name, list(networks))
    assert_same(agent, state, "critic/target", list(reference.targets), ("mean", "variance"))
    assert state["log_alpha"].item() == pytest.approx(reference.log_alpha.item(), rel=1e-4)
    assert (state["critic"] - expected["critic"]).abs().mean() > 0.01


def assert_same(
    agent: Agent, state: State, name: str, networks: list[Any], but: tuple[str, ...] = ()
) -> None:
    """Compare all weights, by writing ours into a copy of the reference's networks."""
    weights = dict(agent.params(state, name))
    for member, network in enumerate(networks):
        before = {key: value.clone() for key, value in network.state_dict().items()}
        adopt(network, weights, member)
        for key, ours in network.state_dict().items():
            if "running" in key and but:
                continue  # of target networks, which are never used
            torch.testing.assert_close(
                ours, before[key], rtol=1e-3, atol=1e-4, msg=lambda m, key=key: f"{name} {key}: {m}"
            )
