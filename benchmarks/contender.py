"""One library training SAC in the trivial environment, in a process and a virtual environment of
its own.

`python contender.py pac4sac|sb3|sbx JSON` says in a line of JSON when it has warmed up; then every
line it reads is a number of environment steps to train, and is answered with the seconds they took.
It imports nothing from here that the other libraries' environments lack."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import trivial  # noqa: F401 (registers the environment)

WARM_UP = 350  # steps: past the start of learning and all compilation
WIDTH, LEARNING_STARTS = 256, 300
SETTINGS = {
    "learning_rate": 1e-3,
    "buffer_size": 25_000,
    "learning_starts": LEARNING_STARTS,
    "ent_coef": 0.2,
}
ENDLESS = 10**8


class Line:
    """The line to the parent; whatever a library prints goes to the errors instead."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def tell(self, **message: Any) -> None:
        self.out.write(json.dumps(message) + "\n")
        self.out.flush()

    def orders(self) -> Iterator[int]:
        for line in sys.stdin:
            yield int(line)


def serve(line: Line, train: Callable[[int], None], about: dict[str, Any]) -> None:
    line.tell(ready=about)
    for steps in line.orders():
        start = time.perf_counter()
        train(steps)
        line.tell(seconds=time.perf_counter() - start)


def stable_baselines3(line: Line, batch: int, depth: int) -> None:
    import stable_baselines3
    import torch

    policy = {"net_arch": [WIDTH] * depth, "activation_fn": torch.nn.SiLU}
    settings: dict[str, Any] = SETTINGS | {"batch_size": batch, "policy_kwargs": policy}
    model = stable_baselines3.SAC("MlpPolicy", "Trivial-v0", device="cpu", **settings)

    def train(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False, log_interval=None)

    train(WARM_UP)
    seconds = {}
    for threads in {1, torch.get_num_threads()}:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        train(100)
        seconds[threads] = time.perf_counter() - start
    fastest = min(seconds, key=lambda threads: seconds[threads])
    torch.set_num_threads(fastest)
    differs = "no layer norm"
    serve(
        line,
        train,
        {"version": stable_baselines3.__version__, "threads": fastest, "differs": differs},
    )


def sbx(line: Line, batch: int, depth: int) -> None:
    import flax
    import jax
    import sbx

    policy = {"net_arch": [WIDTH] * depth, "activation_fn": flax.linen.silu, "layer_norm": True}
    settings: dict[str, Any] = SETTINGS | {"batch_size": batch, "policy_kwargs": policy}
    model = sbx.SAC("MlpPolicy", "Trivial-v0", **settings)

    def train(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False, log_interval=None)
        jax.block_until_ready((model.policy.qf_state.params, model.policy.actor_state.params))

    train(WARM_UP)
    differs = "no layer norm in the actor"
    serve(line, train, {"version": sbx.__version__, "threads": None, "differs": differs})


def ours(line: Line, batch: int, depth: int, runs: int, device: str, backend: str) -> None:
    """The whole training loop; orders are taken between its steps."""
    import torch

    from pac4sac import Callback, train

    class Orders(Callback):
        def __init__(self) -> None:
            self.orders = line.orders()
            self.until, self.start = WARM_UP, 0.0

        def on_step(self, step: int) -> None:
            if step < self.until:
                return
            if device == "cuda":
                torch.cuda.synchronize()
            if self.start:
                line.tell(seconds=time.perf_counter() - self.start)
            else:
                line.tell(ready={"version": "", "threads": torch.get_num_threads(), "differs": ""})
            try:
                self.until = step + next(self.orders)
            except StopIteration:
                raise SystemExit from None
            self.start = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        train(
            "trivial:Trivial-v0",
            "sac",
            seeds=range(runs),
            settings={"warmup": LEARNING_STARTS, "batch": batch, "depth": depth},
            steps=ENDLESS,
            out=f"{folder}/experiment",
            callbacks=[Orders()],
            device=device,
            backend=backend,
            workers=0,
            checkpoint_every=ENDLESS,
        )


if __name__ == "__main__":
    libraries: dict[str, Callable[..., None]] = {
        "pac4sac": ours,
        "sb3": stable_baselines3,
        "sbx": sbx,
    }
    libraries[sys.argv[1]](Line(), **json.loads(sys.argv[2]))
