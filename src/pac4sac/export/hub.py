"""Export of a trained agent as a folder for the Hugging Face Hub: weights, settings, a model card
with metrics, and certificate and video if they exist."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError, import_extra
from pac4sac.base.files import as_bytes, write_whole
from pac4sac.report.commands import train_command
from pac4sac.report.tables import in_digits
from pac4sac.runs.metrics import last_evaluations
from pac4sac.runs.reading import RunRecord, read_run, read_runs
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import mean_interval
from pac4sac.runs.status import Status
from pac4sac.training.agent_file import AGENT, choose_agent, read_agent_file

CARD, CONFIG = "README.md", "config.json"
CERTIFICATE, PICTURE = "certificate.json", "certificate.png"
VIDEOS = ("episode.mp4", "episode.gif")
POLICIES = {"deterministic": "deterministic policy", "shooting": "shooting"}
SEPARATOR = "---"


def export_hub(path: str | Path, out: Path) -> list[Path]:
    """Write the Hub folder of a trained agent.

    Args:
        path: Run folder, or an experiment or study folder, whose best run is used.
        out: Folder to write; it must be new or empty.

    Returns:
        The files of the folder.

    Raises:
        UserError: If the run is not finished or has no evaluation, or the folder is not empty.

    Example:
        >>> from pathlib import Path
        >>> from pac4sac.export.hub import export_hub
        >>> export_hub("experiments/sac", Path("sac-pendulum"))  # doctest: +SKIP
    """
    agent, out = choose_agent(path), Path(out)
    record = _finished_run(agent.parent)
    about, _ = read_agent_file(agent)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"{out} exists and is not empty; choose another folder with --out.")
    siblings = _same_variant(record, agent.parent)
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in (AGENT, CERTIFICATE, PICTURE, *VIDEOS):
        if (record.folder / name).is_file():
            shutil.copyfile(record.folder / name, part / name)
    write_whole(part / CONFIG, as_bytes(json.dumps(about["run"], indent=1, sort_keys=True)))
    write_whole(part / CARD, model_card(record, siblings, {file.name for file in part.iterdir()}))
    if out.is_dir():
        out.rmdir()
    part.rename(out)
    return sorted(out.iterdir())


def _finished_run(folder: Path) -> RunRecord:
    """Return the run of an agent after a check that it is finished."""
    if not (folder / "run.json").is_file():
        raise UserError(
            f"{folder} is not a run folder, and a model card needs the metrics of a run; give "
            f"the folder of a run, an experiment or a study."
        )
    record = read_run(folder)
    if record.status != Status.FINISHED:
        raise UserError(
            f"{record.run} is not finished ({record.status}), so its card would have no results; "
            "resume it first."
        )
    if not last_evaluations(record):
        raise UserError(
            f"{record.run} has no evaluation, which its card needs; train with "
            "--evaluation-episodes 1 or more."
        )
    return record


def _same_variant(record: RunRecord, folder: Path) -> list[RunRecord]:
    """Return the finished runs of the experiment that differ from a run only in their seed."""
    try:
        runs = read_runs(folder.parent.parent)
    except UserError:
        return [record]
    same = [
        run
        for run in runs
        if (run.algo, run.task, run.config) == (record.algo, record.task, record.config)
    ]
    return [run for run in same if run.status == Status.FINISHED and last_evaluations(run)]


# --- the model card


def model_card(record: RunRecord, siblings: Sequence[RunRecord], files: set[str]) -> str:
    """Return the model card of a run.

    Args:
        record: The run.
        siblings: Runs that differ from it in their seed only, including the run itself.
        files: Names of the other files in the folder.
    """
    task = record.task["name"]
    command = train_command([record], seeds_text([record.seed]))
    settings = "\n".join(f"| `{name}` | {value} |" for name, value in record.config.items())
    blocks = [
        front_matter(record),
        f"# {record.algo} on {task}",
        f"A `{record.algo}` agent, trained by pac4sac on `{task}` for "
        f"{record.task['steps']:,} environment steps with seed {record.seed}.",
        *(f"![An episode](./{name})" for name in VIDEOS if name in files),
        "## Results",
        _results_table(record, siblings),
        "Intervals are Student's 95% CIs: over the episodes of this run's last evaluation, and "
        "over the seeds of its experiment.",
        *_certificate_blocks(record, files),
        "## Use",
        f'```python\nimport pac4sac\n\nagent = pac4sac.load("{AGENT}")\n'
        "action = agent.act(observation)\n```",
        "## Repeat",
        f"```sh\n{command}\n```",
        _code_of(record),
        "## Settings",
        f"| setting | value |\n|---|---|\n{settings}",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def front_matter(record: RunRecord) -> str:
    """Return the YAML front matter of a model card, from which the Hub reads metrics and tags.

    It is written as JSON, which is valid YAML, so strings need no further quoting.
    """
    returns = last_evaluations(record)
    metrics = [
        {"type": "mean_reward", "name": f"mean return, {POLICIES[policy]}", "value": mean}
        for policy, mean in returns.items()
    ]
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    dataset = {"name": record.task["name"], "type": record.task.get("env_id", "")}
    result = {"task": task, "dataset": dataset, "metrics": metrics}
    head: Mapping[str, Any] = {
        "library_name": "pac4sac",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "pac4sac", record.algo, record.task["name"]],
        "model-index": [{"name": record.run, "results": [result]}],
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in head.items()]
    return "\n".join([SEPARATOR, *lines, SEPARATOR])


def _results_table(record: RunRecord, siblings: Sequence[RunRecord]) -> str:
    rows = ["| policy | this run | all seeds |", "|---|---:|---:|"]
    for policy in last_evaluations(record):
        last = [row for row in record.evaluations if _policy(row) == policy][-1]
        episodes = last["returns"] or [last["mean"]]
        means = [last_evaluations(run).get(policy) for run in siblings]
        known = [mean for mean in means if mean is not None]
        own = f"{in_digits(mean_interval(episodes))} ({len(episodes)} episodes)"
        seeds = f"{in_digits(mean_interval(known))} ({len(known)} seeds)" if known else "—"
        rows.append(f"| {POLICIES[policy]} | {own} | {seeds} |")
    return "\n".join(rows)


def _policy(row: Mapping[str, Any]) -> str:
    return "deterministic" if row["policy"] == "greedy" else str(row["policy"])


def _certificate_blocks(record: RunRecord, files: set[str]) -> list[str]:
    """Return the blocks of the card on the critic's certificate, if there is one."""
    if CERTIFICATE not in files:
        return []
    blocks = [
        "## Certificate",
        f"[`{CERTIFICATE}`](./{CERTIFICATE}) has measured errors of the critic, bounds on them "
        f"with their assumptions, and lower confidence bounds on the policy's expected return.",
    ]
    return blocks + [f"![Certificate](./{PICTURE})"] * (PICTURE in files)


def _code_of(record: RunRecord) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in record.versions.items() if v)
    return f"Versions: {versions}." if versions else ""


# --- upload


def about_upload(files: Sequence[Path], repository: str) -> str:
    """Describe the upload in a sentence."""
    sizes = ", ".join(f"{file.name} ({file.stat().st_size / 1e3:.1f} kB)" for file in files)
    return f"Files for huggingface.co/{repository}: {sizes}."


def push(folder: Path, repository: str) -> str:
    """Upload a folder to the Hub, and return the address of the repository.

    Args:
        folder: Folder that `export_hub` wrote.
        repository: Name of the repository as USER/NAME; it is created if it does not exist.

    Raises:
        UserError: If huggingface_hub is not installed, or the Hub refuses the upload.
    """
    hub = client()
    try:
        api = hub.HfApi()
        address = api.create_repo(repository, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=str(folder), commit_message="Upload a trained agent"
        )
    except Exception as error:  # errors of the network, the Hub or a missing login
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"The upload to {repository} failed ({reason[0]}); the files in {folder} are "
            "complete. Log in with hf auth login, or upload the folder yourself."
        ) from error
    return str(address)


def client() -> Any:
    """Return the client module of the Hub.

    Raises:
        UserError: If huggingface_hub is not installed.
    """
    return import_extra("hub", "An upload needs huggingface_hub", "huggingface_hub")
