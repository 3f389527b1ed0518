"""Exploration noise that is correlated over time, instead of independent at each step.

The noise is a sum of stationary first-order processes of unit variance,

    x_k ← φ_k x_k + √(1 − φ_k²) ε_k,   ε_k ~ N(0, 1),   φ_k = exp(−1/τ_k),

divided by √K, so its marginal distribution stays N(0, 1). One process is Ornstein–Uhlenbeck noise.
Processes with τ_k = 1, 2, 4, … give pink noise, whose power falls as 1/f between their corner
frequencies (Eberhard et al. 2023 use it for exploration).
"""

import math

from torch import Tensor

COLOURS = ("white", "pink", "ornstein-uhlenbeck")
# Time constants τ_k in steps by colour.
TIME_CONSTANTS: dict[str, tuple[float, ...]] = {
    "white": (),
    "pink": tuple(2.0**k for k in range(10)),
    "ornstein-uhlenbeck": (-1 / math.log(0.85),),  # θ = 0.15, as in DDPG
}


def correlations(colour: str) -> list[float]:
    """Return φ_k of each process."""
    return [math.exp(-1 / tau) for tau in TIME_CONSTANTS[colour]]


def advance(processes: Tensor, innovations: Tensor, phi: Tensor) -> Tensor:
    """Advance processes [R, N, K, ...] by one step in place, and return their sum [R, N, ...].

    Args:
        processes: The state of each process.
        innovations: Independent normal draws of the same shape.
        phi: φ_k, [R, K].
    """
    phi = phi.view(len(phi), 1, -1, *(1,) * (processes.dim() - 3))
    processes.copy_(phi * processes + (1 - phi.square()).sqrt() * innovations)
    return processes.sum(2) / math.sqrt(processes.shape[2])
