"""How often an episode does not replay to the same bits: simulators that have lived through many
episodes against fresh processes, half of which find other bytes in the memory that they are given
(`MALLOC_PERTURB_` of the GNU C library), in case something is read before it is written.

nice python benchmarks/replays.py --replays 1000 --out replays.json
python benchmarks/replays.py --replays 20 --without-fma    # as on a processor of another kind
"""

import os
import warnings
from dataclasses import replace

import numpy as np
from measuring import Report, parser
from numpy.typing import NDArray

from pac4sac.tasks import get_task
from pac4sac.tasks.pool import EnvPool

RUNS = 5


def strong_actions(rng: np.random.Generator, steps: int, size: int) -> NDArray[np.float32]:
    """[steps, RUNS, size]: full force one way or the other, held for some steps as trained policies
    do, and noise."""
    turns = rng.random((steps, RUNS, size)) < rng.choice([0.5, 0.1, 0.03], (1, RUNS, 1))
    held = np.where(np.cumsum(turns, axis=0) % 2, 1.0, -1.0)
    return (held + 0.2 * rng.standard_normal(held.shape)).clip(-1, 1).astype(np.float32)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--task", default="humanoid")
    arguments.add_argument("--replays", type=int, default=1000)
    arguments.add_argument(
        "--steps", type=int, default=400, help="of an episode; it is replayed from its second half"
    )
    arguments.add_argument(
        "--without-fma", action="store_true", help="have fresh processes compute sines another way"
    )
    options = arguments.parse_args()
    report, rng = Report(options), np.random.default_rng(0)
    task, replayed, strayed = replace(get_task(options.task), horizon=options.steps), 0, []
    with EnvPool(task, range(RUNS), 1) as lasting:
        lasting.reset()
        if options.without_fma:  # from here on, and for glibc only
            os.environ["GLIBC_TUNABLES"] = (
                "glibc.cpu.hwcaps=-FMA,-AVX2,-FMA4,-AVX2_Usable,-FMA_Usable"
            )
        while replayed < options.replays:
            moment = int(rng.integers(options.steps // 2, options.steps))
            actions = strong_actions(rng, options.steps, lasting.action_size)
            for step, action in enumerate(actions):
                if step == moment:
                    perturbed = replayed // RUNS % 2
                    os.environ["MALLOC_PERTURB_"] = str(rng.integers(1, 256) if perturbed else 0)
                    with EnvPool(task, range(RUNS), 1) as fresh, warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        fresh.restore(lasting.snapshot())
                    strayed += [
                        f"episode {replayed // RUNS} of seed {run}, step {step}"
                        for run in fresh.replay_mismatches
                    ]
                    replayed += RUNS
                lasting.send(action)
                lasting.receive()
            if replayed % 100 == 0:
                print(f"{replayed} replayed, {len(strayed)} strayed", flush=True)
    report.note(
        f"{replayed} episodes of {task.name} replayed, {len(strayed)} strayed: "
        f"{'; '.join(strayed) or 'none'}."
    )
    report.close()


if __name__ == "__main__":
    main()
