"""Critics with randomised prior functions (Osband et al. 2018). A fixed random function is added to
each member, so members differ in states without data."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pac4sac.agents.nets import OBSERVED, Critic, Parameter, Params, Trunk, weighted_sum

PRIOR = "prior_function."  # prefix of the weights of p_k


class PriorCritic(Critic):
    """Compute m_k(s, a) = Σ m_i φ_i + b + p_k(s, a). The features φ and the head of a member are
    learned; p_k is a fixed random function with one hidden layer."""

    def __init__(
        self,
        trunk: Trunk,
        prior: Trunk,
        members: int,
        scales: Sequence[float],
        gaussian: bool = False,
        log_variance: float = 0.0,
    ) -> None:
        """Lay out the weights.

        Args:
            trunk: Layers of the learned part.
            prior: Layers of the random function.
            members: Number of members of a run.
            scales: Scale of the random functions of each run.
            gaussian: Whether the head of the learned part has Gaussian weights.
            log_variance: Initial log-variance of these weights.
        """
        super().__init__(trunk, members, gaussian, log_variance)
        self.prior, self.scales = prior, scales
        added = prior.parameters | {"head": Parameter((prior.width, 1), prior.width**-0.5)}
        # Stored with the trained weights but without a gradient, so that copies, files and members
        # include it.
        self.lay_out(
            self.parameters | {PRIOR + name: parameter for name, parameter in added.items()}
        )

    def initial(self, seeds: Sequence[int], stream: str, device: torch.device) -> Tensor:
        weights = super().initial(seeds, stream, device)
        scales = torch.tensor(self.scales, device=device).repeat_interleave(self.members)
        self.views(weights)[PRIOR + "head"].mul_(scales.view(-1, 1, 1))
        return weights

    def of_own_pairs(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return m_k and v_k, each [R, M, B]."""
        m, v = super().of_own_pairs(p, s, a)
        return m + self.prior_of_own_pairs(p, s, a), v

    def prior_function(self, p: Params, s: Tensor, a: Tensor) -> Tensor:
        """Return p_k, [R, M, B]."""
        return self.prior_of_own_pairs(p, *self.of_members(s, a))

    def prior_of_own_pairs(self, p: Params, s: Tensor, a: Tensor) -> Tensor:
        fixed = self.of_prior(p)
        return self.per_member(weighted_sum(self.prior(fixed, s, a), fixed["head"]))

    def of_prior(self, p: Params) -> Params:
        """Return the weights of the random functions, with the observation statistics if
        observations are standardised."""
        return {
            name.removeprefix(PRIOR): x.detach()
            for name, x in p.items()
            if name.startswith((PRIOR, OBSERVED))
        }

    def sampled(self, p: Params, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return super().sampled(p, s, a, noise) + self.prior_function(p, s, a).unsqueeze(-1)
