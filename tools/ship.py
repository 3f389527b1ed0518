"""Makes what ships with the package, in src/pac4sac/shipped.

    python tools/ship.py curves results        the reference curves, from the archive
    python tools/ship.py agents FOLDER...      of each experiment folder, one agent

The same runs give the same bytes. Of the runs of an experiment, the one with the highest last
evaluation ships, that with shooting where the agent was trained with it; this evaluation is written
into its file. Its networks are rounded to half precision, which halves the file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pac4sac.runs.reading import RunRecord

SHIPPED = Path(__file__).parents[1] / "src" / "pac4sac" / "shipped"
# Labels of each study whose curves ship, in the order of their lines.
CURVES = {
    "table-1": ("pac4sac", "sac", "ddpg", "oac"),
    "controls": ("sac-auto", "sac+shooting"),
    "exploration": ("pac4sac-explore", "sac-auto", "sac+shooting"),
}
KEPT = (
    "version",
    "run",
    "label",
    "task",
    "algo",
    "preset",
    "revision",
    "seed",
    "status",
    "status_detail",
    "computed",
    "code",
    "simulators",
)
DIGITS = 1  # of a return


def write_curves(archive: Path, out: Path = SHIPPED) -> list["RunRecord"]:
    """The archived runs that were taken."""
    from pac4sac.runs.archive import read_study_file
    from pac4sac.runs.logs import episode_columns
    from pac4sac.runs.reading import read_runs

    order = [(study, label) for study, labels in CURVES.items() for label in labels]
    asked: dict[str, int] = {}  # the place in that order, by identity
    for place, (study, label) in enumerate(order):
        rows = read_study_file(archive / "studies" / f"{study}.json")["expected_runs"]
        asked |= {row["identity"]: place for row in rows if row["label"] == label}
    lines: dict[str, list[str]] = {}
    runs = [run for run in read_runs(archive) if run.identity in asked]
    for run in sorted(runs, key=lambda run: (asked[run.identity], run.seed)):
        study, label = order[asked[run.identity]]
        about = {name: run.about[name] for name in KEPT if name in run.about}
        about |= {"run": f"{label}-seed{run.seed}", "label": label, "source": study}
        about |= {"config": run.config, "given": run.given}
        about["episodes"] = episode_columns(
            [row | {"return": round(row["return"], DIGITS)} for row in run.episodes]
        )
        lines.setdefault(run.task["name"], []).append(
            json.dumps(about, separators=(",", ":")) + "\n"
        )
    (out / "runs").mkdir(parents=True, exist_ok=True)
    for task, of_task in lines.items():
        (out / "runs" / f"{task}.jsonl").write_text("".join(of_task), encoding="utf-8")
    return runs


def write_agents(folders: list[Path], out: Path = SHIPPED) -> None:
    from pac4sac.training.agent_file import choose_agent

    (out / "agents").mkdir(parents=True, exist_ok=True)
    for path in map(choose_agent, folders):
        name, mean, content = smaller_agent(path)
        (out / "agents" / f"{name}.safetensors").write_bytes(content)
        print(
            f"{path.parent}: {name}, mean return {mean:.1f}, {len(content) / 1e6:.2f} MB",
            flush=True,
        )


def smaller_agent(path: Path) -> tuple[str, float, bytes]:
    """The name under which the agent of a run ships, its mean return by its last evaluation, and
    its file."""
    import torch

    from pac4sac.runs.logs import POLICIES
    from pac4sac.runs.reading import read_run
    from pac4sac.training.agent_file import agent_bytes, read_agent_file
    from pac4sac.training.trained_agent import load

    about, tensors = read_agent_file(path)
    trained, last = load(path), read_run(path.parent).evaluations[-1]
    tensors |= {name: tensors[name].to(torch.float16) for name in trained.agent.nets}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    run, mean = trained.run, round(last["mean"], DIGITS)
    about["evaluation"] = {
        "episodes": len(last["returns"]),
        "policy": POLICIES[last["policy"]],
        "mean": mean,
    }
    name = run.task.name if run.algo == "pac4sac" else f"{run.task.name}-{run.algo}"
    return name, mean, agent_bytes(about, tensors)


def main(what: str, *folders: str) -> None:
    if what == "curves":
        write_curves(*map(Path, folders))
    elif what == "agents":
        write_agents([Path(folder) for folder in folders])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
