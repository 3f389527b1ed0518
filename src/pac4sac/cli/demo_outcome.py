"""The results of `pac4sac demo`: videos, a figure with archived runs, and sentences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from pac4sac.cli.shared import say
from pac4sac.cli.sparkline import sparkline
from pac4sac.export.video import record_video
from pac4sac.runs.metrics import STREAK, longest_streak, solved_at
from pac4sac.runs.reading import RunRecord, read_below
from pac4sac.runs.reference import reference_runs
from pac4sac.training.agent_file import read_agent_file

SHOWN, TRAINED = "half-cheetah", "cartpole-swingup"
PICTURES = {SHOWN: 60, TRAINED: 100}  # frames of a video: three and five seconds
ABOUT = (
    "PAC4SAC is a soft actor-critic. Its critic is trained with a PAC-Bayes bound and predicts a "
    "mean and a standard deviation for each value. The agent draws 500 actions from its policy "
    "and takes the one with the highest value."
)


def show_shipped_agent(console: Console, agent: Path) -> None:
    """Print the return of an agent that ships with the package."""
    about, _ = read_agent_file(agent)
    evaluation, limit = about["evaluation"], about["run"]["task"]["r_limit"]
    say(
        console,
        f"   PAC4SAC on Half Cheetah has a mean return of {evaluation['mean']:,.0f} over "
        f"{evaluation['episodes']} episodes. The solve threshold of the task is {limit:,.0f}.",
    )


def record(console: Console, agent: Path, task: str, folder: Path) -> None:
    """Write a video of an agent, and print its path."""
    with console.status("recording …") as status:

        def progress(done: int, of: int) -> None:
            status.update(f"recording: {done} of {of} frames …")

        out = record_video(agent, folder / f"{task}.gif", progress=progress, most=PICTURES[task])
    say(console, f"   Video: {out}")


def show_outcome(console: Console, folder: Path) -> None:
    """Print the result of the training, write its picture and video, and suggest next commands."""
    # matplotlib takes a second to import
    from pac4sac.report.reference_picture import draw_over_reference

    say(console, "\n3. The result.")
    runs, _ = read_below(folder / "training")
    if not runs or not runs[0].episodes:
        say(console, "   Training stopped before the first episode ended. Try again: pac4sac demo")
        return
    run = runs[0]
    limit, returns = run.task["r_limit"], run.returns.tolist()
    curve = sparkline(returns, 60, min(returns), max(returns), limit)
    console.print("   ", curve, f" last return {returns[-1]:,.0f}", sep="", highlight=False)
    label = f"this run: PAC4SAC, seed {run.seed}, {run.config['updates_per_step']} updates per step"
    draw_over_reference(folder / "returns.png", run, label)
    say(console, f"   Picture: {folder / 'returns.png'}")
    if (run.folder / "agent.safetensors").is_file():
        record(console, run.folder, TRAINED, folder)
    archived = reference_runs(TRAINED)
    compared = comparison(
        {name: archived[TRAINED, algo] for name, algo in (("PAC4SAC", "pac4sac"), ("SAC", "sac"))}
    )
    console.print("", outcome(returns, limit), compared, ABOUT, "", sep="\n", highlight=False)
    say(console, "Next:")
    for command, what in next_commands(run, folder).items():
        say(console, f"   {command}\n      {what}")


def next_commands(run: RunRecord, folder: Path) -> dict[str, str]:
    """Return commands with their descriptions."""
    if run.status == "finished":
        further = {"pac4sac demo --full": "run the demo with the paper's settings (ten minutes)"}
    else:
        further = {f"pac4sac resume {folder / 'training'}": "continue the training of this demo"}
    compare = f"pac4sac compare {TRAINED} --algos pac4sac,sac --seeds 0:5"
    return {
        f"pac4sac watch {SHOWN}": "record a whole episode of the shipped agent",
        **further,
        compare: "train five seeds of each, and report intervals",
    }


def outcome(returns: Sequence[float], limit: float) -> str:
    """Describe the result of a run in a sentence."""
    above = [place for place, value in enumerate(returns) if value > limit]
    if (solved := solved_at(returns, limit)) is not None:
        return (
            f"It has solved the task: from episode {solved + 1} on, {STREAK} consecutive episodes "
            f"had returns above {limit:g}."
        )
    if not above:
        best = int(np.argmax(returns))
        return (
            f"It is still learning: the best of {len(returns)} episodes so far, number "
            f"{best + 1}, has a return of {returns[best]:,.0f}. With a return above {limit:g}, the "
            "pole is up nearly all the time."
        )
    since, first = len(returns) - above[0], above[0] + 1
    begun = (
        "has balanced in most episodes since"
        if 2 * len(above) > since
        else "has balanced in some episodes since"
    )
    streak = longest_streak(returns, limit)
    return (
        f"It {begun} episode {first}: {len(above)} of these {since} episodes were above "
        f"{limit:g}. The paper's criterion of {STREAK} such episodes in a row was not met. The "
        f"longest streak was {streak}."
    )


def comparison(archived: dict[str, Sequence[RunRecord]]) -> str:
    """Describe the number of episodes that archived runs of each algorithm needed."""
    parts = []
    for name, runs in archived.items():
        solved = [solved_at(run.returns, run.task["r_limit"]) for run in runs]
        after = [episodes for episodes in solved if episodes is not None]
        part = f"{len(after)} of {len(runs)} archived runs of {name} solved the task"
        if after:
            part += f" after {min(after)} to {max(after)} episodes, {np.mean(after):.0f} on average"
        parts.append(part)
    return f"For comparison, {'; '.join(parts)}. These runs used 4 updates per step."
