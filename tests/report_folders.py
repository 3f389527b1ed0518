"""Run folders made up of smooth curves and noise, for tests of reports."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pac4sac.agents import ALGORITHMS, make_config
from pac4sac.tasks import TASKS, Task
from pac4sac.tasks.registry import given_task

# Plateau as a multiple of r_limit, and the part of the budget after which half of it is reached.
SKILL = {"pac4sac": (1.2, 0.25), "sac": (1.15, 0.35), "ddpg": (1.05, 0.5), "oac": (0.6, 0.5)}


USUAL = "reproduction"  # the preset of the settings that all algorithms share


def usual_settings(algo: str, preset: str = USUAL) -> dict[str, Any]:
    """Return the settings of a preset; nothing for a custom algorithm."""
    return dataclasses.asdict(make_config(algo, preset)) if algo in ALGORITHMS else {}


def task(name: str, **changes: Any) -> dict[str, Any]:
    return dataclasses.asdict(TASKS[name]) | changes


def own_task(name: str = "Pendulum-v1", **changes: Any) -> dict[str, Any]:
    usual = {
        "name": name,
        "env_id": name,
        "horizon": 200,
        "r_limit": None,
        "steps": 4000,
        "updates_per_step": 1,
    }
    return usual | {"env_kwargs": {}} | changes


def curve(about: dict[str, Any], skill: tuple[float, float], seed: int) -> list[float]:
    """A logistic learning curve of as many episodes as the task's budget has."""
    episodes = about["steps"] // about["horizon"]
    top = skill[0] * (about["r_limit"] or 100.0)
    generator = np.random.default_rng([seed, episodes])
    middle = episodes * skill[1] * generator.uniform(0.85, 1.15)
    x = (np.arange(episodes) - middle) / (0.06 * episodes)
    noise = generator.normal(0, 0.03 * abs(top), episodes)
    return [float(value) for value in top / (1 + np.exp(-x)) + noise]


def write_run(
    experiment: Path,
    about_task: dict[str, Any],
    algo: str = "pac4sac",
    seed: int = 0,
    returns: Sequence[float] | None = None,
    label: str | None = None,
    settings: dict[str, Any] | None = None,
    lengths: Sequence[int] | None = None,
    **changes: Any,
) -> Path:
    """Write a run folder; `changes` are further facts of the run, such as its preset."""
    label = label or algo
    folder = experiment / "runs" / f"{label}-seed{seed}"
    folder.mkdir(parents=True)
    preset = changes.get("preset", "reproduction")
    known = preset if algo in ALGORITHMS and preset in ALGORITHMS[algo].agent.presets else USUAL
    usual = {**usual_settings(algo, known), "updates_per_step": about_task["updates_per_step"]}
    config = usual | (settings or {})
    about = {
        "version": 1,
        "run": folder.name,
        "label": label,
        "task": about_task,
        "algo": algo,
        "preset": preset,
        "revision": 1,
        "seed": seed,
        "config": config,
        "given": settings or {},
        "given_task": given_task(Task(**about_task)),
        "status": "finished",
        "status_detail": None,
        "versions": {"python": "3.11.9", "pac4sac": "0.1.0", "torch": "2.13.0"},
        "machine": {"system": "Linux", "processor": "x86_64", "cores": 2, "gpu": None},
    }
    (folder / "run.json").write_text(json.dumps(about | changes))
    if returns is None:
        returns = curve(about_task, SKILL.get(algo, (1.1, 0.4)), seed)
    lengths = lengths or [about_task["horizon"]] * len(returns)
    steps = np.cumsum(lengths).tolist()
    rows = [
        {"episode": k, "step": step, "return": r, "length": n}
        for k, (step, r, n) in enumerate(zip(steps, returns, lengths, strict=True))
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if returns:
        final = {
            "step": steps[-1],
            "policy": "deterministic",
            "mean": float(np.mean(returns[-3:])),
            "returns": [],
        }
        (folder / "evaluations.jsonl").write_text(json.dumps(final) + "\n")
    return folder


def write_study(
    folder: Path, name: str, kind: str, baseline: str | None, expected: list[dict[str, Any]]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "version": 1,
        "study": name,
        "title": f"The study {name}",
        "question": "Is it so?",
        "kind": kind,
    }
    (folder / "study.json").write_text(
        json.dumps(about | {"baseline": baseline, "expected_runs": expected})
    )


def write_table_1(
    folder: Path, tasks: Sequence[str] = ("cartpole-swingup", "half-cheetah"), seeds: int = 5
) -> None:
    expected = []
    for name in tasks:
        for algo in SKILL:
            for seed in range(seeds):
                write_run(folder / "experiments" / name, task(name), algo, seed)
                expected.append({"task": name, "algo": algo, "label": algo, "seed": seed})
    write_study(folder, "table-1", "table-1", "sac", expected)


def write_everything(folder: Path) -> None:
    """All the parts of a report, from a study of every kind."""
    write_table_1(folder / "table-1")
    cartpole = task("cartpole-swingup")
    terms = {
        "bellman": (0.0, 0.0),
        "bellman+conservative": (1.0, 0.0),
        "bellman+exploration": (0.0, 0.01),
    }
    for label, (conservative, xi) in terms.items():
        settings = {"conservative": conservative, "xi": xi}
        for name in ("cartpole-swingup", "half-cheetah"):
            for seed in range(5):
                returns = curve(task(name), (1.15, 0.28 + 0.1 * xi), seed + 50 * len(label))
                place = folder / "table-2" / "experiments" / name
                write_run(place, task(name), "pac4sac", seed, returns, label, settings)
    for shots in (1, 200, 1000):
        for seed in range(5):
            returns = curve(cartpole, (1.15, 0.4 - shots / 10_000), seed + shots)
            write_run(
                folder / "shooting",
                cartpole,
                "pac4sac",
                seed,
                returns,
                f"pac4sac-shots={shots}",
                {"shots": shots},
            )
    controls: dict[str, tuple[str, dict[str, Any]]] = {
        "sac+shooting": ("sac", {"shots": 500}),
        "sac-auto": ("sac-auto", {}),
        "one-plain-critic": ("sac", {"critics": 1}),
        "one-plain-critic+shooting": ("sac", {"critics": 1, "shots": 500}),
        "oac-gauss": ("oac-gauss", {}),
    }
    for name in ("cartpole-swingup", "half-cheetah"):
        for k, (label, (algo, settings)) in enumerate(controls.items()):
            for seed in range(5):
                returns = curve(task(name), (1.1, 0.22 + 0.06 * k), seed + 10 * k)
                write_run(
                    folder / "controls" / name, task(name), algo, seed, returns, label, settings
                )
    write_study(
        folder / "controls",
        "controls",
        "controls",
        "pac4sac",
        [
            {"task": "humanoid", "algo": "sac", "label": "sac+shooting", "seed": seed}
            for seed in range(5)
        ],
    )
    broken = folder / "more"
    write_run(broken, cartpole, "sac", 7, curve(cartpole, (1.1, 0.4), 7)[:12], status="diverged",
              status_detail="non-finite critic gradient at step 12345")  # fmt: skip
    running = write_run(
        broken, cartpole, "ddpg", 8, curve(cartpole, (1.1, 0.4), 8)[:9], status="running"
    )
    with (running / "episodes.jsonl").open("a") as log:
        log.write('{"episode": 9, "st')
    cost = {"version": 1, "machine": {"system": "Linux", "cores": 2}, "device": "cpu"}
    times = {"ddpg": 3.1, "sac": 5.0, "sac-nr": 6.1, "sac-fpi": 4.1, "pac4sac": 7.4}
    rows = [
        {"algo": a, "seconds_per_1000_steps": [t, t + 0.1, t - 0.1], "backend": "eager"}
        for a, t in times.items()
    ]
    write_study(folder / "cost", "cost", "cost", "sac", [])
    (folder / "cost" / "cost.json").write_text(json.dumps(cost | {"rows": rows}))
