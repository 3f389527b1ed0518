"""What `pac4sac demo` shows: films, a picture over archived runs, and in words how far a training
came."""

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

SHOWN, TRAINED = "half-cheetah", "cartpole-swingup"
PICTURES = {SHOWN: 60, TRAINED: 100}  # of the films: three seconds, which are soon drawn, and five
ABOUT = (
    "PAC4SAC is soft actor-critic whose critic learns by a PAC-Bayes bound and tells how "
    "uncertain it holds its values "
    "to be; it acts by taking, of 500 actions that its policy proposes, the one that the "
    "critic values most."
)


def film(console: Console, agent: Path, task: str, folder: Path) -> None:
    with console.status("filming …") as status:

        def progress(done: int, of: int) -> None:
            status.update(f"filming: {done} of {of} pictures …")

        out = record_video(agent, folder / f"{task}.gif", progress=progress, most=PICTURES[task])
    say(console, f"   Film: {out}")


def show_outcome(console: Console, folder: Path) -> None:
    """The picture, the film, three sentences, and three commands to go on with."""
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
    further = ("pac4sac demo --full", "the same with the paper's settings, ten minutes")
    if run.status != "finished":
        further = (f"pac4sac resume {folder / 'training'}", "goes on where this training stopped")
    say(console, "Next:")
    for command, what in (
        (f"pac4sac watch {SHOWN}", "films a whole episode of the agent that ships"),
        further,
        (
            f"pac4sac compare {TRAINED} --algos pac4sac,sac --seeds 0:5",
            "trains five seeds of each, with intervals",
        ),
    ):
        say(console, f"   {command}\n      {what}")


def outcome(returns: Sequence[float], limit: float) -> str:
    """What a run has learned, in a sentence."""
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
    """How long the archived runs of each algorithm took."""
    parts = []
    for name, runs in archived.items():
        solved = [solved_at(run.returns, run.task["r_limit"]) for run in runs]
        after = [episodes for episodes in solved if episodes is not None]
        span = (
            f" after {min(after)} to {max(after)} episodes, {np.mean(after):.0f} on average"
            if after
            else ""
        )
        parts.append(f"{len(after)} of {len(runs)} archived seeds of {name} were solved{span}")
    return f"For comparison: {'; '.join(parts)} (all with 4 updates per step)."
