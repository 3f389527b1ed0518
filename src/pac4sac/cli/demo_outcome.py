"""Show the results of `pac4sac demo`: videos, a picture over archived runs, and sentences."""

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
PICTURES = {SHOWN: 60, TRAINED: 100}  # in a video: three seconds, which are drawn quickly, and five
ABOUT = (
    "PAC4SAC is soft actor-critic whose critic learns by a PAC-Bayes bound and tells how "
    "uncertain it holds its values "
    "to be; it acts by taking, of 500 actions that its policy proposes, the one that the "
    "critic values most."
)


def show_shipped_agent(console: Console, agent: Path) -> None:
    """Print the return of an agent that ships with the package."""
    about, _ = read_agent_file(agent)
    evaluation, limit = about["evaluation"], about["run"]["task"]["r_limit"]
    say(
        console,
        f"   PAC4SAC on Half Cheetah: a return of {evaluation['mean']:,.0f} on average (over "
        f"{evaluation['episodes']} episodes; above {limit:,.0f} the task counts as solved).",
    )


def film(console: Console, agent: Path, task: str, folder: Path) -> None:
    """Write a video of an agent, and print its path."""
    with console.status("filming …") as status:

        def progress(done: int, of: int) -> None:
            status.update(f"filming: {done} of {of} pictures …")

        out = record_video(agent, folder / f"{task}.gif", progress=progress, most=PICTURES[task])
    say(console, f"   Film: {out}")


def show_outcome(console: Console, folder: Path) -> None:
    """Print the result of the training, write its picture and video, and suggest next commands."""
    # matplotlib takes a second to import
    from pac4sac.report.reference_picture import draw_over_reference

    say(console, "\n3. What came of it.")
    runs, _ = read_below(folder / "training")
    if not runs or not runs[0].episodes:
        say(
            console,
            "   Training was stopped before its first episode had ended. Once more: pac4sac demo",
        )
        return
    run = runs[0]
    limit, returns = run.task["r_limit"], run.returns.tolist()
    curve = sparkline(returns, 60, min(returns), max(returns), limit)
    console.print("   ", curve, f" last return {returns[-1]:,.0f}", sep="", highlight=False)
    label = f"this run: PAC4SAC, seed {run.seed}, {run.config['updates_per_step']} updates per step"
    draw_over_reference(folder / "returns.png", run, label)
    say(console, f"   Picture: {folder / 'returns.png'}")
    if (run.folder / "agent.safetensors").is_file():
        film(console, run.folder, TRAINED, folder)
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
        further = {"pac4sac demo --full": "the same with the paper's settings, ten minutes"}
    else:
        further = {f"pac4sac resume {folder / 'training'}": "continues this training"}
    compare = f"pac4sac compare {TRAINED} --algos pac4sac,sac --seeds 0:5"
    return {
        f"pac4sac watch {SHOWN}": "films a whole episode of the agent that ships",
        **further,
        compare: "trains five seeds of each, with intervals",
    }


def outcome(returns: Sequence[float], limit: float) -> str:
    """Return in a sentence what a run has learned."""
    above = [place for place, value in enumerate(returns) if value > limit]
    if (solved := solved_at(returns, limit)) is not None:
        in_a_row = f"from episode {solved + 1} on, {STREAK} in a row were above {limit:g}"
        return f"It balances: {in_a_row}, which counts as solved."
    if not above:
        best = int(np.argmax(returns))
        return (
            f"It is still learning: the best of {len(returns)} episodes so far, number {best + 1}, "
            f"returned {returns[best]:,.0f}, and above {limit:g} the pole stands nearly all "
            "the time."
        )
    since, first = len(returns) - above[0], above[0] + 1
    begun = "balances since" if 2 * len(above) > since else "has balanced now and then since"
    streak = longest_streak(returns, limit)
    return (
        f"It {begun} episode {first}: {len(above)} of the {since} episodes from there on were "
        f"above {limit:g}; "
        f"the paper's criterion, {STREAK} in a row, was not met (at best {streak})."
    )


def comparison(archived: dict[str, Sequence[RunRecord]]) -> str:
    """Return how long the archived runs of each algorithm took to solve the task."""
    parts = []
    for name, runs in archived.items():
        solved = [solved_at(run.returns, run.task["r_limit"]) for run in runs]
        after = [episodes for episodes in solved if episodes is not None]
        part = f"{len(after)} of {len(runs)} archived seeds of {name} were solved"
        if after:
            part += f" after {min(after)} to {max(after)} episodes, {np.mean(after):.0f} on average"
        parts.append(part)
    return f"For comparison: {'; '.join(parts)} (all with 4 updates per step)."
