"""The cost study: seconds per 1000 steps of each algorithm, repeated."""

import json
import time
from pathlib import Path

from pac4sac.studies.definition import Study
from pac4sac.studies.plan import task_sizes
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import backends
from pac4sac.training.checkpoint import write_whole
from pac4sac.training.folder import machine, versions
from pac4sac.training.learner import Learner
from pac4sac.training.loop import Options
from pac4sac.training.runs import Run, make_agent

MEASURED_STEPS = 1000


def measure_cost(study: Study, root: Path, options: Options) -> Path:
    """Write `cost.json`: for every variant the times of 1000 steps, each with its update, after the warm-up."""
    rows = []
    device = backends.pick_device(options.device)
    for run in study.runs():
        backend, seconds = time_run(run, study.repetitions, options)
        rows.append({"algo": run.algo, "label": run.label, "backend": backend, "seconds_per_1000_steps": seconds})
    about = {"version": 1, "machine": machine(), "versions": versions(), "device": str(device), "rows": rows}
    root.mkdir(parents=True, exist_ok=True)
    path = root / "cost.json"
    write_whole(path, json.dumps(about, indent=1).encode())
    return path


def time_run(run: Run, repetitions: int, options: Options) -> tuple[str, list[float]]:
    """A single run, as in the paper: act, step, update, store."""
    device = backends.pick_device(options.device)
    agent = make_agent([run], *task_sizes(run.task))
    steps = max(agent.learning_starts()) + repetitions * MEASURED_STEPS
    learner = Learner(agent, [run.seed], steps, device)
    updates = repetitions * MEASURED_STEPS * agent.config.updates_per_step
    backend = backends.prepare(learner, backends.choose_backend(options.backend, device, updates))
    seconds = []
    with EnvPool(run.task, [run.seed], 0) as pool:
        learner.begin(pool.reset())
        started = time.perf_counter()
        for step in range(1, steps + 1):
            pool.send(learner.act())
            learning = learner.step >= max(agent.learning_starts())
            if learning:
                for _ in range(agent.config.updates_per_step):
                    learner.update()
            else:
                learner.skip_updates(agent.config.updates_per_step)
            seen = pool.receive()
            learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
            if (steps - step) % MEASURED_STEPS == 0:
                now = time.perf_counter()
                if learning:
                    seconds.append(round(now - started, 4))
                started = now
    return backend, seconds
