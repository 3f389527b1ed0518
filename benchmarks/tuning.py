"""Do several seeds per trial pay? Searches with five seeds per trial in cohorts, compared with
searches with one seed per trial in the ordinary way.

Both kinds have the same number of environment steps, the same sampler, and the default settings as
first trial. `python benchmarks/tuning.py seeds --out DIR` runs five searches of each kind on
Pendulum-v1, of 12 million run-steps in all. DIR/seeds.json then has for each search the chosen
settings, their returns on fresh seeds, and the time of the search; DIR also keeps all trials and
runs. Two calls with --only 0,2,4 and --only 1,3 share the work.
`python benchmarks/tuning.py search --out DIR` searches on Pendulum-v1 and on cartpole-swingup with
about 200 trainings each. Both continue if they are called again; the time of a search that was
interrupted is not counted. A trial of the script: --steps 400 --trainings 10 --only 0,1."""

import argparse
import json
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna

import pac4sac
from pac4sac.agents import make_config
from pac4sac.base.files import read_json, write_json
from pac4sac.runs.metrics import last_evaluations
from pac4sac.runs.statistics import summarise, welch
from pac4sac.runs.status import BROKEN_OFF
from pac4sac.studies.tuning.sampling import make_sampler
from pac4sac.studies.tuning.space import make_space
from pac4sac.studies.tuning.storage import open_storage

TASK, ALGO = "Pendulum-v1", "sac"
SPACE = {
    "lr": "1e-4:1e-2:log",
    "tau": "0.001:0.1:log",
    "gamma": "0.9:0.999",
    "n_step": "1:5",
    "batch": [64, 128, 256],
}
WIDTH, WARMUP = 64, 1000
STEPS, TRAININGS, SEEDS, SEARCHES = 10_000, 120, 5, 5
FRESH = range(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("seeds", "search"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--trainings", type=int, default=TRAININGS)
    parser.add_argument("--only", default=",".join(map(str, range(SEARCHES))), help="searches")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    asked.settings = {"width": WIDTH, "warmup": min(WARMUP, asked.steps // 10)}
    asked.options = {"device": asked.device, "backend": asked.backend, "threads": asked.threads}
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.part == "seeds":
        compare_kinds(asked)
    else:
        search_two_tasks(asked)


def compare_kinds(asked: argparse.Namespace) -> None:
    """Run all searches of both kinds; those that have ended are kept."""
    for number in map(int, asked.only.split(",")):
        for kind, run in (("cohorts", in_cohorts), ("ordinary", in_the_ordinary_way)):
            file, root = asked.out / f"{kind}-{number}.json", asked.out / f"{kind}-{number}"
            if not file.exists():
                is_new, before = not root.exists(), cpu_seconds()
                found = run(asked, number, root)
                times = {
                    "seconds": search_seconds(root) if is_new else None,
                    "cpu_seconds_with_fresh": cpu_seconds() - before if is_new else None,
                }
                write_json(file, {"kind": kind, "search": number, **times, **found})
    files = sorted(asked.out.glob("cohorts-*.json")) + sorted(asked.out.glob("ordinary-*.json"))
    rows = [read_json(file) for file in files]
    options = {"steps": asked.steps, "trainings": asked.trainings, "seeds": SEEDS}
    write_json(asked.out / "seeds.json", {**options, "fresh_seeds": [*FRESH], "rows": rows})
    print("\n".join(about(rows)))


def about(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the results in sentences; the value of a search is the mean over its fresh seeds."""
    sentences, means = [], {}
    for kind in ("cohorts", "ordinary"):
        own = [row for row in rows if row["kind"] == kind]
        means[kind] = summarise([fmean(row["fresh"]) for row in own if row["fresh"]])
        times = [row["seconds"] for row in own if row["seconds"] is not None]
        time = f"{fmean(times):.0f} s per search" if times else "time not known"
        values = ", ".join(f"{fmean(row['fresh']):.1f}" for row in own if row["fresh"])
        sentences.append(f"{kind}: return on fresh seeds {values}; {time}")
    difference = welch(means["cohorts"], means["ordinary"])
    low, high = (
        "unknown" if end is None else f"{end:.1f}" for end in (difference.low, difference.high)
    )
    sentences.append(
        f"cohorts minus ordinary: {difference.value:.1f}, 95% CI [{low}, {high}], "
        f"n = {means['cohorts'].n} vs {means['ordinary'].n} searches"
    )
    return sentences


def cpu_seconds() -> float:
    """Return the time that this process and its children that have ended spent on CPUs."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def search_seconds(root: Path) -> float:
    """Return the time from the start of the first trial of a search to the end of the last one."""
    storage = open_storage(str(root / "optuna.log"))
    (study,) = storage.get_all_studies()
    trials = storage.get_all_trials(study._study_id, deepcopy=False)
    starts = [trial.datetime_start for trial in trials if trial.datetime_start]
    ends = [trial.datetime_complete for trial in trials if trial.datetime_complete]
    return float((max(ends) - min(starts)).total_seconds())


def in_cohorts(asked: argparse.Namespace, number: int, root: Path) -> dict[str, Any]:
    """Search with several seeds per trial, without pruning, so all steps are taken."""
    seeds = range(1000 + 10 * number, 1000 + 10 * number + SEEDS)
    found = pac4sac.tune(
        TASK,
        ALGO,
        space=SPACE,
        settings=asked.settings,
        trials=asked.trainings // SEEDS,
        seeds=seeds,
        fresh_seeds=FRESH,
        steps=asked.steps,
        pruner="none",
        rungs=(),
        sampler_seed=number,
        out=root,
        **asked.options,
    )
    return {"settings": found.settings, "fresh": found.summary.get("fresh", {}).get(TASK, [])}


def in_the_ordinary_way(asked: argparse.Namespace, number: int, root: Path) -> dict[str, Any]:
    """Search with one training after another, each with one seed."""
    root.mkdir(exist_ok=True)
    space = make_space(ALGO, SPACE)
    study = optuna.create_study(
        storage=open_storage(str(root / "optuna.log")),
        study_name="ordinary",
        direction="maximize",
        load_if_exists=True,
    )
    if not study.trials:
        defaults = make_config(ALGO, "default", asked.settings)
        study.enqueue_trial({each.name: getattr(defaults, each.name) for each in space})
    distributions = {each.name: each.distribution() for each in space}
    states = optuna.trial.TrialState
    ended = (states.COMPLETE, states.PRUNED)
    while (count := len(study.get_trials(states=ended))) < asked.trainings:
        study.sampler = make_sampler("TPE", space, 100_003 * number + len(study.trials))
        trial = study.ask(distributions)
        values = returns(asked, dict(trial.params), [2000 + number], root / f"{trial.number:04d}")
        if values:
            study.tell(trial, values[0])
        else:
            study.tell(trial, state=states.PRUNED)
        print(f"ordinary search {number}: {count + 1} of {asked.trainings} trainings", flush=True)
    best = dict(study.best_trial.params)
    return {"settings": best, "fresh": returns(asked, best, FRESH, root / "confirm")}


def returns(
    asked: argparse.Namespace, chosen: Mapping[str, Any], seeds: Sequence[int], folder: Path
) -> list[float]:
    """Return the last evaluation of each seed; nothing if a run diverged or failed."""
    if (folder / "experiment.json").exists():
        result = pac4sac.resume(folder)
    else:
        result = pac4sac.train(
            TASK,
            ALGO,
            seeds=seeds,
            settings={**asked.settings, **chosen},
            steps=asked.steps,
            out=folder,
            **asked.options,
        )
    if any(run.status in BROKEN_OFF for run in result.runs):
        return []
    return [last_evaluations(run)["deterministic"] for run in result.runs]


def search_two_tasks(asked: argparse.Namespace) -> None:
    """Search with about 200 trainings on each of two tasks."""
    for task, steps in ((TASK, asked.steps), ("cartpole-swingup", None)):
        found = pac4sac.tune(
            task,
            ALGO,
            space=SPACE,
            settings=asked.settings,
            trials=40,
            seeds=range(1000, 1005),
            fresh_seeds=FRESH,
            steps=steps,
            out=asked.out / task,
            **asked.options,
        )
        print(found)
        write_json(asked.out / f"{task}.json", json.loads(json.dumps(found.summary)))


if __name__ == "__main__":
    main()
