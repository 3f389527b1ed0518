"""Do several seeds per trial pay? Searches with five seeds per trial in cohorts, beside searches
with one seed per trial in the ordinary way, with as many environment steps and the same sampler.

`python benchmarks/tuning.py seeds --out DIR` runs five searches of each kind on Pendulum-v1, of 12
million run-steps in all. DIR/seeds.json then has for each search the chosen settings, their returns
on fresh seeds and the wall-clock time. `python benchmarks/tuning.py search --out DIR` searches on
Pendulum-v1 and on cartpole-swingup with about 200 trainings each. Both continue if they are called
again."""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna

import pac4sac
from pac4sac.base.files import read_json, write_json
from pac4sac.runs.metrics import last_evaluations
from pac4sac.studies.tuning.sampling import make_sampler
from pac4sac.studies.tuning.space import make_space

SPACE = {
    "lr": "1e-4:1e-2:log",
    "tau": "0.001:0.1:log",
    "gamma": "0.9:0.999",
    "n_step": "1:5",
    "batch": [64, 128, 256],
}
SETTINGS = {"width": 64, "warmup": 1000}
STEPS, TRAININGS, SEEDS, SEARCHES = 10_000, 120, 5, 5
FRESH = range(3000, 3010)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("seeds", "search"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--trainings", type=int, default=TRAININGS)
    parser.add_argument("--searches", type=int, default=SEARCHES)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.part == "seeds":
        compare_kinds(asked)
    else:
        search_two_tasks(asked)


def compare_kinds(asked: argparse.Namespace) -> None:
    """Run all searches of both kinds; what has ended is kept."""
    for number in range(asked.searches):
        for kind, run in (("cohorts", in_cohorts), ("ordinary", in_the_ordinary_way)):
            file = asked.out / f"{kind}-{number}.json"
            if not file.exists():
                began = time.monotonic()
                found = run(asked, number)
                write_json(file, {**found, "seconds": time.monotonic() - began})
    rows = [read_json(file) for file in sorted(asked.out.glob("*-[0-9]*.json"))]
    write_json(asked.out / "seeds.json", {"rows": rows, "steps": asked.steps})
    for row in rows:
        print(f"{row['kind']}: {fmean(row['fresh']):.1f} on fresh seeds, {row['seconds']:.0f} s")


def in_cohorts(asked: argparse.Namespace, number: int) -> dict[str, Any]:
    """Search with several seeds per trial, without pruning, so that all steps are spent."""
    seeds = range(1000 + 10 * number, 1000 + 10 * number + SEEDS)
    found = pac4sac.tune(
        "Pendulum-v1",
        "sac",
        space=SPACE,
        settings=SETTINGS,
        trials=asked.trainings // SEEDS,
        seeds=seeds,
        fresh_seeds=FRESH,
        steps=asked.steps,
        pruner="none",
        rungs=(),
        sampler_seed=number,
        out=asked.out / f"cohorts-{number}",
        device=asked.device,
    )
    fresh = found.summary["fresh"]["Pendulum-v1"]
    return {"kind": "cohorts", "search": number, "settings": found.settings, "fresh": fresh}


def in_the_ordinary_way(asked: argparse.Namespace, number: int) -> dict[str, Any]:
    """Search with one training after another, each with one seed."""
    space, root = make_space("sac", SPACE), asked.out / f"ordinary-{number}"
    root.mkdir(exist_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(root / "optuna.log"))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="ordinary",
        direction="maximize",
        load_if_exists=True,
    )
    distributions = {each.name: each.distribution() for each in space}
    done = (optuna.trial.TrialState.COMPLETE,)
    while (count := len(study.get_trials(states=done))) < asked.trainings:
        study.sampler = make_sampler("TPE", space, 100_003 * number + len(study.trials))
        trial = study.ask(distributions)
        (value,) = returns(asked, dict(trial.params), [2000 + number], root / f"{trial.number:04d}")
        study.tell(trial, value)
        print(f"ordinary search {number}: {count + 1} of {asked.trainings} trainings", flush=True)
    best = dict(study.best_trial.params)
    fresh = returns(asked, best, FRESH, root / "confirm")
    return {"kind": "ordinary", "search": number, "settings": best, "fresh": fresh}


def returns(asked: argparse.Namespace, chosen: Any, seeds: Any, folder: Path) -> list[float]:
    """Return the last evaluation of each seed."""
    if (folder / "experiment.json").exists():
        result = pac4sac.resume(folder)
    else:
        result = pac4sac.train(
            "Pendulum-v1",
            "sac",
            seeds=seeds,
            settings={**SETTINGS, **chosen},
            steps=asked.steps,
            out=folder,
            device=asked.device,
        )
    return [last_evaluations(run)["deterministic"] for run in result.runs]


def search_two_tasks(asked: argparse.Namespace) -> None:
    """Search with about 200 trainings on each of two tasks."""
    for task, steps in (("Pendulum-v1", asked.steps), ("cartpole-swingup", None)):
        found = pac4sac.tune(
            task,
            "sac",
            space=SPACE,
            settings=SETTINGS,
            trials=40,
            seeds=range(1000, 1005),
            fresh_seeds=FRESH,
            steps=steps,
            out=asked.out / task,
            device=asked.device,
        )
        print(found)
        write_json(asked.out / f"{task}.json", json.loads(json.dumps(found.summary)))


if __name__ == "__main__":
    main()
