"""The cost study: seconds per 1000 steps of each algorithm, repeated."""

import json
import time
from pathlib import Path

from pac4sac.studies.definition import Study
from pac4sac.tasks import task_sizes
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import backends
from pac4sac.training.checkpoint import write_whole
from pac4sac.training.folder import machine, versions
from pac4sac.training.learner import Learner
from pac4sac.training.options import Options
from pac4sac.training.runs import Run, make_agent

MEASURED_STEPS = 1000


def measure_cost(study: Study, root: Path, options: Options) -> Path:
    """Write `cost.json`: for each algorithm the times of 1000 steps, each with its updates, after the warm-up. One run
    of it is timed, and only variants that are called by the algorithm's name."""
    rows = []
    device = backends.pick_device(options.device)
    for run in {run.label: run for run in reversed(study.runs()) if run.label == run.algo}.values():
        backend, seconds = time_run(run, study.repetitions, options)
        rows.append({"algo": run.algo, "label": run.label, "backend": backend, "seconds_per_1000_steps": seconds})
    rows.reverse()
    about = {"version": 1, "machine": machine(), "versions": versions(), "device": str(device), "rows": rows}
    root.mkdir(parents=True, exist_ok=True)
    path = root / "cost.json"
    write_whole(path, json.dumps(about, indent=1).encode())
    return path


def time_run(run: Run, repetitions: int, options: Options) -> tuple[str, list[float]]:
    """A single run, as in the paper: act, step, update, store."""
    device = backends.pick_device(options.device)
    backends.set_precision(options.precision)
    agent = make_agent([run], *task_sizes(run.task))
    steps = max(agent.learning_starts()) + repetitions * MEASURED_STEPS
    learner = Learner(agent, [run.seed], steps, device)
    updates = repetitions * MEASURED_STEPS * agent.updates_per_step
    backend = backends.prepare(learner, backends.choose_backend(options.backend, device, updates))
    seconds = []
    with EnvPool(run.task, [run.seed], 0) as pool:
        learner.begin(pool.reset())
        started = time.perf_counter()
        for left in reversed(range(steps)):
            pool.send(learner.act())
            learner.learn()
            seen = pool.receive()
            learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
            if left % MEASURED_STEPS == 0:
                now = time.perf_counter()
                seconds.append(round(now - started, 4))
                started = now
    return backend, seconds[-repetitions:]  # what was before them is the warm-up
