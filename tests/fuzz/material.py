"""Small and whole files of every kind that the commands read: an experiment, a study, an archive,
definitions."""

import json
import shutil
from pathlib import Path

import pac4sac
from pac4sac import Task
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.reading import sealed
from pac4sac.training.run import Run

PENDULUM = Task("Pendulum-v1", "Pendulum-v1", 10, -50.0)
SETTINGS = {"width": 4, "depth": 1, "batch": 4, "warmup": 10, "capacity": 50}
HOW = {"device": "cpu", "backend": "eager", "workers": 0, "threads": 1}
MEASURED = {"log_every": 10, "checkpoint_every": 20, "evaluate_every": 20, "evaluation_episodes": 1}
MEASURED |= {"bias_every": 20, "bias_episodes": 2, "coverage_every": 20}

TRAIN_TOML = """task = "Pendulum-v1"
algo = "sac"
seeds = "0:2"
steps = 20
device = "cpu"
backend = "eager"
workers = 0
threads = 1
evaluation-episodes = 0
stop-when-solved = true

[set]
width = 4
depth = 1
batch = 4
warmup = [10, 15]

[set-task]
horizon = 10
env_kwargs = { g = 9.8 }
"""

STUDY_TOML = """title = "A tiny study"
question = "Is it so?"
kind = "comparison"
baseline = "sac"
tasks = ["Pendulum-v1"]
seeds = "0:2"

[options]
device = "cpu"
backend = "eager"
workers = 0
threads = 1
evaluation_episodes = 0

[task.Pendulum-v1]
steps = 60
horizon = 10
r_limit = -50.0

[set]
width = 4
depth = 1
batch = 4
warmup = 10
capacity = 50

[[variant]]
algo = "sac"

[[variant]]
name = "slow"
algo = "sac"
sweep = { lr = [0.01, 0.1] }
"""

# Whoever imports it has run code because data named it.
PAYLOAD = """import os
open(os.environ["PAC4SAC_FUZZ_OUTSIDE"] + "/imported", "w").close()
from pac4sac.agents.sac import Sac
class Agent(Sac): pass
"""

COST = {
    "version": 2,
    "date": "2026-01-01",
    "device": "cpu",
    "machine": {"system": "Linux", "cores": 2, "gpu": None},
}
COST |= {
    "versions": {"torch": "2"},
    "rows": [{"algo": "sac", "label": "sac", "seconds_per_1000_steps": [1.0, 2.0]}],
}


def make_material(folder: Path) -> None:
    """work/ is where commands run, outside/ what none of them may touch."""
    work = folder / "work"
    for part in (work, folder / "outside" / "runs"):
        part.mkdir(parents=True)
    (folder / "outside" / "notes.md").write_text("mine\n")
    (folder / "outside" / "runs" / "table.csv").write_text("mine\n")
    result = pac4sac.train(
        PENDULUM,
        "sac",
        seeds=(0, 1),
        settings=SETTINGS,
        steps=60,
        out=work / "x",
        **HOW,
        **MEASURED,
    )
    (work / "x" / "learning-curves.png").unlink(missing_ok=True)
    expected = [
        {"run": run.run, "task": "Pendulum-v1", "algo": "sac", "label": run.label, "seed": run.seed}
        | {"identity": run.identity}
        for run in result.runs
    ]
    expected.append(expected[0] | {"seed": 7, "run": "sac-seed7", "identity": "0" * 64})
    about = {
        "version": 1,
        "study": "tiny",
        "title": "A tiny study",
        "question": "Is it so?",
        "definition": "tiny.toml",
    }
    about |= {"kind": "comparison", "baseline": "sac", "expected_runs": expected}
    shutil.copytree(work / "x", work / "study" / "experiments" / "one")
    (work / "study" / "study.json").write_text(json.dumps(about, indent=1))
    (work / "study" / "cost.json").write_text(json.dumps(sealed(COST), indent=1))
    add_to_archive([work / "study"], work / "archive")
    (work / "tiny.toml").write_text(STUDY_TOML)
    (work / "train.toml").write_text(TRAIN_TOML)
    (work / "payload.py").write_text(PAYLOAD)
    (work / "x" / "payload.py").write_text(PAYLOAD)
    (work / "x" / "__init__.py").write_text("")
    agent = work / "x" / "runs" / result.runs[0].run / "agent.safetensors"
    shutil.copy(agent, work / "agent.safetensors")
    assert Run.from_description(result.runs[0].about | {"config": result.runs[0].config})


FILES = {  # every kind of file that is read, by a pattern, with its format
    "experiment": ("x/experiment.json", "json"),
    "run": ("x/runs/*/run.json", "json"),
    "episodes": ("x/runs/*/episodes.jsonl", "jsonl"),
    "metrics": ("x/runs/*/metrics.jsonl", "jsonl"),
    "evaluations": ("x/runs/*/evaluations.jsonl", "jsonl"),
    "bias": ("x/runs/*/bias.jsonl", "jsonl"),
    "coverage": ("x/runs/*/coverage.jsonl", "jsonl"),
    "times": ("x/cohorts/*/times.jsonl", "jsonl"),
    "agent": ("x/runs/*/agent.safetensors", "safetensors"),
    "best": ("x/runs/*/best.safetensors", "safetensors"),
    "manifest": ("x/cohorts/*/step-*/manifest.json", "json"),
    "progress": ("x/cohorts/*/step-*/progress.json", "json"),
    "learner": ("x/cohorts/*/step-*/learner.safetensors", "safetensors"),
    "pool": ("x/cohorts/*/step-*/pool.safetensors", "safetensors"),
    "study": ("study/study.json", "json"),
    "study's experiment": ("study/experiments/one/experiment.json", "json"),
    "study's run": ("study/experiments/one/runs/*/run.json", "json"),
    "cost": ("study/cost.json", "json"),
    "archived runs": ("archive/runs/*.jsonl", "jsonl"),
    "archived study": ("archive/studies/*.json", "json"),
    "archived cost": ("archive/costs/*.json", "json"),
    "definition": ("tiny.toml", "toml"),
    "config": ("train.toml", "toml"),
}

OF_EXPERIMENT = (
    "resume x",
    "resume x --steps 70",
    "report x --out out",
    "evaluate x --episodes 1",
    "results x",
)
OF_EXPERIMENT += (
    "study collect x --into new",
    "certify x --episodes 4 --out out",
    "load x/runs/sac-seed0",
)
OF_AGENT = (
    "evaluate x --episodes 1",
    "load x/runs/sac-seed0",
    "certify x/runs/sac-seed0 --episodes 4 --out out",
)
OF_AGENT += ("watch x/runs/sac-seed0 --video v.gif", "export x/runs/sac-seed0 --onnx a.onnx")
OF_AGENT += ("train Pendulum-v1 --algo sac --from x/runs/sac-seed0 --config train.toml --out new",)
OF_CHECKPOINT = (
    "resume x",
    "resume x --steps 70",
    "certify x/runs/sac-seed0 --episodes 4 --out out",
)
OF_STUDY = (
    "study status tiny.toml --out study",
    "study plan tiny.toml --out study --no-trial",
    "results study",
)
OF_STUDY += (
    "report study --out out",
    "study collect study --into archive",
    "study collect study --into new",
)
OF_ARCHIVE = ("report archive --out out", "study collect study --into archive", "results archive")
OF_ARCHIVE += ("study collect archive --into new",)
OF_DEFINITION = ("study status tiny.toml --out study", "study plan tiny.toml --out new --no-trial")

COMMANDS = {  # every command that reads a kind of file
    **dict.fromkeys(("experiment", "run", "episodes", "metrics", "evaluations"), OF_EXPERIMENT),
    **dict.fromkeys(("bias", "coverage", "times"), OF_EXPERIMENT),
    **dict.fromkeys(("agent", "best"), OF_AGENT),
    **dict.fromkeys(("manifest", "progress", "learner", "pool"), OF_CHECKPOINT),
    **dict.fromkeys(("study", "study's experiment", "study's run", "cost"), OF_STUDY),
    **dict.fromkeys(("archived runs", "archived study", "archived cost"), OF_ARCHIVE),
    "definition": OF_DEFINITION,
    "config": ("train --config train.toml --out new",),
}
