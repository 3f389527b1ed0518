"""Histories of an experiment: stops, extensions, failures with retries, edits of the code, and other
options. At its end it is what one undisturbed training gives, or says how it differs."""

import random
import warnings
from pathlib import Path
from typing import Any

import pac4sac
from pac4sac import Task
from pac4sac.agents.sac import Sac
from pac4sac.base.errors import UserError
from pac4sac.base.trust import allow
from pac4sac.report.grouping import variants_by_task
from pac4sac.runs.collection import collect
from pac4sac.runs.reading import read_run
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.training.experiment import choose_again

SETTINGS = {"width": 4, "depth": 1, "batch": 4, "warmup": 10, "capacity": 50}
HOW: dict[str, Any] = {"device": "cpu", "backend": "eager", "workers": 0, "threads": 1}
HOW |= {"checkpoint_every": 10, "log_every": 10, "evaluation_episodes": 1}
RUN = Path("runs/sac-seed0")


class History:
    """One experiment, and what was done to it."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance, self.folder = chance, folder
        self.steps = chance.choice((30, 45, 60))
        self.edits, self.victim = 0, simulator_seed(0, "train", chance.randrange(4))
        self.marker = folder.parent / "failures"
        self.marker.write_text("0")

    def train(self, folder: Path, steps: int, **more: Any) -> None:
        pac4sac.train(
            self.task(steps), "sac", seeds=[0], settings=SETTINGS, steps=steps, out=folder,
            **HOW, **more,
        )  # fmt: skip

    def task(self, steps: int) -> Task:
        kwargs = {"fault": "raise some times", "victim": self.victim, "at": 3}
        kwargs |= {"marker": str(self.marker)}
        return Task("faulty", "pool_environments:Faulty-v0", 20, None, steps, env_kwargs=kwargs)

    # --- what may happen

    def stop(self) -> None:
        pac4sac.resume(self.folder, max_minutes=1e-9, keep_stale=bool(self.edits))

    def extend(self) -> None:
        self.steps += self.chance.choice((7, 20))
        pac4sac.resume(self.folder, steps=self.steps, keep_stale=bool(self.edits))

    def fail(self) -> None:
        self.marker.write_text(str(self.chance.choice((1, 2))))
        pac4sac.resume(self.folder, keep_stale=bool(self.edits))
        self.marker.write_text("0")

    def edit(self) -> None:
        pac4sac.resume(self.folder, keep_stale=bool(self.edits))
        Sac.revision += 1
        self.steps += 10
        assert "another version" in self.refusal(), "other code continued a run without a word"
        self.edits += 1
        pac4sac.resume(self.folder, steps=self.steps, keep_stale=True)

    def refusal(self) -> str:
        """What a resume by the code of now says, if it is refused."""
        try:
            pac4sac.resume(self.folder, steps=self.steps)
        except UserError as error:
            return str(error)
        return ""

    def change_options(self) -> None:
        given = {"evaluation_episodes": self.chance.choice((1, 2, 3)), "log_every": 10}
        kept = choose_again(self.folder, given)
        assert bool(kept) == (given["evaluation_episodes"] != 1), kept

    # --- what must hold

    def check(self) -> None:
        pac4sac.resume(self.folder, keep_stale=bool(self.edits))
        run = read_run(self.folder / RUN)
        assert run.status == "finished", run.status_detail
        assert not run.damage
        assert run.task["steps"] == self.steps
        assert len(run.about.get("earlier_code", ())) == self.edits
        whole = self.folder.parent / "whole"
        self.train(whole, self.steps)
        for name in ("episodes.jsonl", "metrics.jsonl", "evaluations.jsonl", "agent.safetensors"):
            if self.edits and name == "agent.safetensors":
                continue  # it describes the code
            pair = [(folder / RUN / name).read_bytes() for folder in (self.folder, whole)]
            same = pair[0] == pair[1] or (name == "evaluations.jsonl" and pair[1] in pair[0])
            assert same, f"{name} differs from that of one training"
        variants = [
            v
            for each in variants_by_task(collect([self.folder, whole]).runs).values()
            for v in each
        ]
        assert len(variants) == (2 if self.edits else 1), [v.label for v in variants]


def run(seed: int) -> int:
    """A history by chance, in the working directory; raises an error where it ends wrong."""
    chance = random.Random(f"history {seed}")
    warnings.simplefilter("ignore")
    allow("pool_environments")
    history = History(chance, Path("h").absolute())
    if chance.random() < 0.5:
        history.marker.write_text(str(chance.choice((1, 2, 3))))
    stops = {"max_minutes": 1e-9} if chance.random() < 0.4 else {}
    history.train(history.folder, history.steps, **stops)
    history.marker.write_text("0")
    for _ in range(chance.randrange(1, 5)):
        chance.choice(
            (history.stop, history.extend, history.fail, history.edit, history.change_options)
        )()
    history.check()
    return 0
