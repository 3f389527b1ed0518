"""Runs, and their grouping into cohorts that train in lockstep."""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pac4sac.agents import Agent, get_algorithm, make_config
from pac4sac.agents.settings import AgentConfig
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds, plain
from pac4sac.base.text import file_name, setting_text
from pac4sac.base.trust import trusted_module
from pac4sac.base.version import own_sources
from pac4sac.runs.identity import identity
from pac4sac.tasks import Task
from pac4sac.tasks.registry import environment_modules, portable

LARGEST_SEED = 2**64 - 1  # that a checkpoint holds
DESCRIBED = {"task": dict, "algo": str, "preset": str, "seed": int, "config": dict, "label": str}


@dataclass(frozen=True)
class Run:
    """One training of one agent."""

    task: Task
    algo: str
    preset: str
    seed: int
    config: AgentConfig
    label: str  # algorithm, and the settings in which it differs from its neighbours
    started_from: str | None = (
        None  # the agent whose weights it began with, by the checksum of its file
    )
    # The code that trains it: the revision of its algorithm, and checksums of the user's own
    # modules by name.
    revision: int = 1
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name of its folder, whatever its label is made of."""
        return f"{file_name(self.label, ' ,')}-seed{self.seed}"

    def starting_from(self, agent: str) -> "Run":
        return dataclasses.replace(self, started_from=agent, label=f"{self.label}-from-{agent}")

    def describe(self) -> dict[str, Any]:
        about: dict[str, Any] = {"run": self.id, "label": self.label, "task": portable(self.task)}
        about |= {
            "algo": self.algo,
            "preset": self.preset,
            "revision": self.revision,
            "seed": self.seed,
        }
        about |= {"config": dataclasses.asdict(self.config)}
        # Neither is named where there is none: so were runs described that are known by their
        # checksums.
        further = {"started_from": self.started_from, "code": dict(self.code)}
        return about | {name: value for name, value in further.items() if value}

    @property
    def identity(self) -> str:
        """What a run is, apart from what it is called: two runs of one identity give the same
        result."""
        return identity(self.describe())

    @staticmethod
    def from_description(about: Any) -> "Run":
        """Of a file: what is not as `describe` writes it is a mistake of the user, and its
        algorithm and environment must be such as the user allows."""
        check_description(about, "The description of a run")
        config = get_algorithm(about["algo"]).agent.Config(**about["config"])
        trusted_module(about["task"]["env_id"])
        what = (
            Task(**about["task"]),
            about["algo"],
            about["preset"],
            about["seed"],
            config,
            about["label"],
        )
        return Run(
            *what, about.get("started_from"), about.get("revision", 1), dict(about.get("code", {}))
        )

    def edited(self) -> str:
        """In words, which of the code that trained it has changed since; nothing where that is not
        recorded."""
        today, parts = revision_of(self.algo), list[str]()
        if self.revision != today:
            parts.append(f"{self.algo} had revision {self.revision} and now has {today}")
        sources = code_of(self.algo, self.task) if self.code else {}
        if changed := [
            name
            for name in sorted({*self.code, *sources})
            if self.code.get(name) != sources.get(name)
        ]:
            parts.append(f"the source of {' and '.join(changed)} was edited")
        return "; ".join(parts)


def check_description(about: Any, what: str) -> dict[str, Any]:
    check_kinds(
        check_kinds(about, DESCRIBED, what)["task"],
        {"name": str, "env_id": str},
        f"{what}: its task",
    )
    if not 0 <= about["seed"] <= LARGEST_SEED:
        raise UserError(f"{what} has the seed {about['seed']}, which is none.")
    return dict(about)


def revision_of(algo: str) -> int:
    return get_algorithm(algo).agent.revision


def code_of(algo: str, task: Task) -> dict[str, str]:
    """The source, as it is now, of an algorithm and an environment of the user's own."""
    return own_sources(
        {home.__module__ for home in get_algorithm(algo).agent.__mro__} | environment_modules(task)
    )


def check_code(runs: Sequence[Run]) -> None:
    """A training goes on exactly or not at all."""
    for run in runs:
        if edited := run.edited():
            raise UserError(
                f"{run.id} cannot go on as if it had never stopped: {edited}. Put back what "
                "it was, or train again "
                "into another folder."
            )


def settings_grid(settings: Mapping[str, Any] | None) -> dict[str, Sequence[Any]]:
    """The values of each setting, where one may stand alone, as plain numbers where they are
    NumPy's."""
    given = plain(dict(settings or {}))
    grid: dict[str, Sequence[Any]] = {
        name: value if isinstance(value, list) else [value] for name, value in given.items()
    }
    if empty := [name for name, values in grid.items() if not values]:
        raise UserError(f"The sweep over {empty[0]} has no values.")
    return grid


def make_runs(
    task: Task, algo: str, preset: str, seeds: Sequence[int], settings: Mapping[str, Sequence[Any]]
) -> list[Run]:
    """All combinations of the settings, each given as a list of values, with all seeds."""
    if not seeds:
        raise UserError("At least one seed is needed, such as --seeds 0:5.")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        raise UserError(f"Seeds must be different whole numbers from 0 to {LARGEST_SEED}.")
    # The paper leaves the number of updates per step open; our reading fixes it for each task.
    times = get_algorithm(algo).agent.updates_of_task.get(preset)
    updates = {"updates_per_step": times * task.updates_per_step} if times else {}
    code = (revision_of(algo), code_of(algo, task))
    runs = []
    for values in itertools.product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        config = make_config(algo, preset, updates | chosen)
        swept = [
            f"{name}={setting_text(getattr(config, name))}"
            for name in chosen
            if len(settings[name]) > 1
        ]
        label = "-".join([algo.replace(":", "."), *([preset] if preset != "paper" else []), *swept])
        runs += [Run(task, algo, preset, seed, config, label, None, *code) for seed in seeds]
    if len({run.id for run in runs}) < len(runs):
        raise UserError("A setting is given the same value twice.")
    return runs


def plan_cohorts(runs: Sequence[Run], on_gpu: bool = False) -> list[list[Run]]:
    """Runs that can train in lockstep: same task and same structure. A cohort pays for its largest
    number of shots and of updates per step: runs that differ more than twofold in the first or at
    all in the second are kept apart, but not on a GPU, where small kernels cost what large ones do
    and one cohort is cheaper than two."""
    cohorts_by_structure: dict[str, list[list[Run]]] = {}
    for run in sorted(runs, key=_shots):
        agent = get_algorithm(run.algo).agent  # by class: sac and sac-auto differ per run only
        updates = None if on_gpu else run.config.updates_per_step
        structure = [portable(run.task), str(agent), run.config.structure(), updates]
        cohorts = cohorts_by_structure.setdefault(json.dumps(structure, sort_keys=True), [])
        if cohorts and (on_gpu or _shots(run) <= 2 * _shots(cohorts[-1][0])):
            cohorts[-1].append(run)
        else:
            cohorts.append([run])
    order = {run.id: place for place, run in enumerate(runs)}
    planned = [
        sorted(c, key=lambda run: order[run.id])
        for alike in cohorts_by_structure.values()
        for c in alike
    ]
    return sorted(planned, key=lambda cohort: order[cohort[0].id])


def _shots(run: Run) -> int:
    return int(getattr(run.config, "shots", 1))


def make_agent(runs: Sequence[Run], ds: int, da: int) -> Agent:
    return get_algorithm(runs[0].algo).agent([run.config for run in runs], ds, da)
