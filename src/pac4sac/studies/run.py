"""Running a study from its definition to complete folders, once or in several goes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pac4sac.errors import UserError
from pac4sac.studies.cost import measure_cost
from pac4sac.studies.definition import Study, Variant
from pac4sac.studies.local import Watcher, run_local, side_by_side
from pac4sac.studies.plan import PlannedCohort, begin, memory_budget, plan
from pac4sac.tasks import get_task
from pac4sac.training.backends import pick_device
from pac4sac.training.checkpoint import write_whole
from pac4sac.training.experiment import check_computing
from pac4sac.training.options import Options
from pac4sac.training.runs import Run
from pac4sac.training.signals import StopRequest

WITH_COST = ("cost", "smoke")


def study_folder(study: Study, out: Path | None) -> Path:
    return out if out is not None else Path("experiments") / f"study-{study.name}"


def run_study(
    study: Study,
    root: Path,
    watcher: Watcher,
    *,
    engine: str = "local",
    address: str | None = None,
    parallel: int | None = None,
    memory: int | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> bool:
    """Train what is not trained yet; True when the study is complete. Called again, it goes on."""
    if engine not in ("local", "ray"):
        raise UserError(f"There is no engine {engine!r}; use local or ray.")
    if parallel is not None and parallel < 1:
        raise UserError(f"At least 1 cohort must be trained at a time, not {parallel}; leave --parallel out to choose.")
    how = Options(**{**study.options, **options, "steps": 1})
    # What a cluster can compute is not known here.
    device = check_computing(how) if engine == "local" else pick_device(how.device)
    if study.kind != "cost":
        on_gpu = device.type == "cuda"
        cohorts = plan(study, root, memory or memory_budget(device), on_gpu)
        begin(study, root, cohorts, options)
        unfinished = [cohort for cohort in cohorts if cohort.done() < len(cohort.runs)]
        with stop or StopRequest() as stop:
            if engine == "ray":
                from pac4sac.studies.cluster import run_on_ray

                complete = run_on_ray(unfinished, address, stop, watcher)
            else:
                at_once = parallel or side_by_side(len(unfinished))
                complete = run_local(unfinished, at_once, stop, watcher, on_gpu)
        if not complete:
            return False
        name_the_same(study.runs(), cohorts)
    else:
        begin(study, root, [], options)
    if study.kind in WITH_COST and not (root / "cost.json").exists():
        measure_cost(study, root, how)
    return True


def name_the_same(runs: Sequence[Run], cohorts: Sequence[PlannedCohort]) -> None:
    """Give a run that a study lists under several names a folder under each; it was trained once."""
    trained = {run.identity: (cohort.folder / "runs" / run.id, run) for cohort in cohorts for run in cohort.runs}
    for run in runs:
        folder, original = trained[run.identity]
        copy = folder.parent / run.id
        if run.label == original.label or copy.exists():
            continue
        shutil.copytree(folder, copy)
        about = json.loads((copy / "run.json").read_bytes())
        about |= {"run": run.id, "label": run.label, "same_as": original.id}
        write_whole(copy / "run.json", json.dumps(about, indent=1).encode())


def comparison(
    task: str, algos: Sequence[str], seeds: Sequence[int], steps: int | None, settings: dict[str, Any]
) -> Study:
    """The study behind `compare`: several algorithms on one task. A setting goes to those algorithms that have it."""
    from dataclasses import fields, replace

    from pac4sac.agents import get_algorithm

    if len(set(algos)) < len(algos):
        raise UserError("An algorithm is named twice.")
    chosen = get_task(task)
    if steps is not None:
        chosen = replace(chosen, steps=steps)
    variants, used = [], set()
    for algo in algos:
        known = {field.name for field in fields(get_algorithm(algo).agent.Config)}
        own = {name: value for name, value in settings.items() if name in known}
        used |= set(own)
        variants.append(Variant(algo, algo, settings=own))
    if unknown := sorted(set(settings) - used):
        raise UserError(f"None of {', '.join(algos)} has a setting {', '.join(unknown)}.")
    title = f"{', '.join(algos)} on {chosen.name}"
    name = f"compare-{chosen.name}".replace("/", "-").replace(":", "-").lower()
    return Study(name, title, "comparison", (chosen,), tuple(variants), tuple(seeds), baseline=algos[0])
