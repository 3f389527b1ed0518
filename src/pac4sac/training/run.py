"""Make runs from settings and seeds, describe them, and group them into cohorts."""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pac4sac.agents import (
    Agent,
    completed,
    get_algorithm,
    make_config,
    removed_settings,
    setting_names,
    stored_config,
)
from pac4sac.agents.settings import AgentConfig
from pac4sac.base.errors import UserError, WrongType
from pac4sac.base.files import as_json
from pac4sac.base.known_names import our_settings
from pac4sac.base.objects import check_trusted, script_checksums, short_name
from pac4sac.base.sources import ENGINE, simulator_versions, source_checksums
from pac4sac.base.text import file_name, setting_text
from pac4sac.runs.identity import LARGEST_SEED, check_description, code_changes, identity
from pac4sac.tasks import Task
from pac4sac.tasks.catalogue import portable
from pac4sac.tasks.registry import environment_modules, given_task


@dataclass(frozen=True)
class Run:
    """Hold the definition of a run: one training of one agent."""

    task: Task
    algo: str
    preset: str
    seed: int
    config: AgentConfig
    label: str  # algorithm and swept settings
    # Checksum of the agent file with the initial weights, if any.
    started_from: str | None = None
    # The code that trains the run: revision of the algorithm, checksums of modules, versions of
    # simulators.
    revision: int = 1
    code: Mapping[str, str] = field(default_factory=dict)
    simulators: Mapping[str, str] = field(default_factory=dict)
    # Code that trained the run up to some step, if another version of the code continued it.
    earlier_code: tuple[Mapping[str, Any], ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)  # settings that override the preset

    @property
    def id(self) -> str:
        """Return the name of the run and its folder."""
        return f"{file_name(self.label, ' ,')}-seed{self.seed}"

    @property
    def code_names(self) -> list[str]:
        """Return the names of algorithm, environment and wrappers."""
        return [self.algo, *self.task.code_names]

    @property
    def trained_by(self) -> dict[str, Any]:
        """Return the facts about the code that `code_changes` compares."""
        code, simulators = dict(self.code), dict(self.simulators)
        return {"revision": self.revision, "code": code, "simulators": simulators}

    def starting_from(self, agent: str) -> "Run":
        """Return the run with the weights of an agent as initial weights."""
        return dataclasses.replace(self, started_from=agent, label=f"{self.label}-from-{agent}")

    def extended(self, steps: int) -> "Run":
        """Return the run with a larger number of steps."""
        return dataclasses.replace(self, task=dataclasses.replace(self.task, steps=steps))

    def continued(self, step: int) -> "Run":
        """Return the run as continued by the current code from a step on."""
        today = code_today(self.algo, self.task)
        earlier = [{"until_step": step, **self.trained_by}] if step else []
        return dataclasses.replace(self, earlier_code=(*self.earlier_code, *earlier), **today)

    def describe(self) -> dict[str, Any]:
        """Return the stored description of the run, from which `identity` is computed."""
        about: dict[str, Any] = {"run": self.id, "label": self.label, "task": portable(self.task)}
        about |= {"algo": self.algo, "preset": self.preset, "revision": self.revision}
        about |= {"seed": self.seed, "config": dataclasses.asdict(self.config)}
        further = {
            "given": dict(self.given),
            "given_task": given_task(self.task),
            "started_from": self.started_from,
            "code": dict(self.code),
            "simulators": dict(self.simulators),
            "earlier_code": list(self.earlier_code),
        }
        return about | {name: value for name, value in further.items() if value}

    @property
    def identity(self) -> str:
        """Return the checksum that identifies the run in studies and archives."""
        return identity(self.describe())

    @staticmethod
    def from_description(about: Any) -> "Run":
        """Make a run from the result of `describe`.

        Its algorithm and environment must be trusted.

        Raises:
            UserError: If the description is damaged, or the algorithm no longer has one of its
                settings.
        """
        check_description(about, "The description of a run")
        task = Task(**about["task"])
        check_trusted(about["algo"], task.code_names)
        return Run(
            task=task,
            algo=about["algo"],
            preset=about["preset"],
            seed=about["seed"],
            config=stored_config(about["algo"], about["config"]),
            label=about["label"],
            started_from=about.get("started_from"),
            revision=about.get("revision", 1),
            code=dict(about.get("code", {})),
            simulators=dict(about.get("simulators", {})),
            earlier_code=tuple(about.get("earlier_code", ())),
            given=dict(about.get("given", {})),
        )

    def matches(self, about: Mapping[str, Any]) -> bool:
        """Return whether a stored run is the same except for the code that trained it.

        Settings that only one version of the code has are not compared.
        """
        now = self.describe()
        facts = ("task", "algo", "seed", "started_from")
        config, stored = now["config"], completed(about["config"])
        shared = config.keys() & stored.keys()
        return all(now.get(name) == about.get(name) for name in facts) and all(
            config[name] == stored[name] for name in shared
        )

    def edited(self) -> str:
        """Describe the differences between the current code and the code that trained the run.

        Code that was not recorded, as in older files, counts as equal.
        """
        today = code_today(self.algo, self.task)
        return code_changes(self.trained_by, today if self.code else today | {"code": {}})


def settings_changed(about: Mapping[str, Any]) -> str:
    """Describe the settings that the algorithm of a stored run has lost or gained since the
    training."""
    names = {f.name for f in dataclasses.fields(get_algorithm(about["algo"]).agent.Config)}
    changes = []
    if removed := removed_settings(about["algo"], about["config"]):
        changes.append(f"its algorithm no longer has the settings {', '.join(removed)}")
    if added := sorted(names - about["config"].keys()):
        changes.append(f"its algorithm has gained the settings {', '.join(added)}")
    return "; ".join(changes)


def code_today(algo: str, task: Task) -> dict[str, Any]:
    """Return revision, checksums and simulator versions of the current code for a run."""
    agent = get_algorithm(algo).agent
    environment = environment_modules(task)
    modules = {home.__module__ for home in agent.__mro__} | environment | {*ENGINE}
    return {
        "revision": agent.revision,
        "code": source_checksums(modules) | script_checksums([algo, *task.code_names]),
        "simulators": simulator_versions(environment),
    }


def check_code(runs: Sequence[Run]) -> None:
    """Refuse to continue runs trained by another version of the code."""
    for run in runs:
        if edited := run.edited():
            raise UserError(
                f"{run.id} was trained by another version of the code: {edited}. Restore that "
                "code, train again into another folder, or add --keep-stale to continue with the "
                "current code."
            )


def settings_grid(settings: Mapping[str, Any] | None) -> dict[str, Sequence[Any]]:
    """Return the values of each setting as a list of plain numbers or strings.

    Args:
        settings: Values by name; a single value does not need a list.
    """
    if not all(isinstance(name, str) for name in settings or {}):
        raise WrongType("settings must be a dictionary with strings as keys.")
    given = as_json(dict(settings or {}))
    grid: dict[str, Sequence[Any]] = {
        name: value if isinstance(value, list) else [value] for name, value in given.items()
    }
    if empty := [name for name, values in grid.items() if not values]:
        raise UserError(f"The sweep over {empty[0]} has no values; give at least one.")
    return grid


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of values; an empty grid has one empty combination."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def make_runs(
    task: Task, algo: str, preset: str, seeds: Sequence[int], settings: Mapping[str, Sequence[Any]]
) -> list[Run]:
    """Return runs with all combinations of the settings and all seeds.

    Args:
        task: The task.
        algo: Name of the algorithm.
        preset: Preset of the algorithm.
        seeds: The seeds.
        settings: A list of values for each given setting.

    Raises:
        UserError: If a seed or a setting is invalid.
    """
    _check_seeds(seeds)
    settings = our_settings(settings, setting_names(algo))
    updates, code, runs = _updates_per_step(task, algo, preset), code_today(algo, task), []
    for chosen in combinations(settings):
        config = make_config(algo, preset, updates | chosen)
        given = {name: getattr(config, name) for name in chosen}
        swept = {name: value for name, value in given.items() if len(settings[name]) > 1}
        label = _label(algo, preset, swept)
        runs += [
            Run(task, algo, preset, seed, config, label, given=given, **code) for seed in seeds
        ]
    if len({run.id for run in runs}) < len(runs):
        raise UserError("A setting has the same value twice; list each value once.")
    return runs


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that are missing, equal or out of range."""
    if not seeds:
        raise UserError("Training needs at least one seed, as in --seeds 0:5.")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        raise UserError(f"Seeds must be different whole numbers from 0 to {LARGEST_SEED}.")


def _updates_per_step(task: Task, algo: str, preset: str) -> dict[str, int]:
    """Return the setting `updates_per_step`, if the preset takes it from the task.

    The paper does not state its value; the reproduction fixes it for each task.
    """
    factor = get_algorithm(algo).agent.updates_of_task.get(preset)
    return {"updates_per_step": factor * task.updates_per_step} if factor else {}


def _label(algo: str, preset: str, swept: Mapping[str, Any]) -> str:
    """Return the name of a variant: algorithm, preset and swept settings."""
    parts = [short_name(algo).replace(":", ".")]
    if preset != "default":
        parts.append(preset)
    parts += [f"{name}={setting_text(value)}" for name, value in swept.items()]
    return "-".join(parts)


def plan_cohorts(runs: Sequence[Run], on_gpu: bool = False) -> list[list[Run]]:
    """Group runs into cohorts that train in lockstep: same task and same structure.

    The cost of a cohort is set by its largest numbers of shots and updates per step. On a CPU, runs
    with more than twice the shots or with other updates per step get their own cohort. On a GPU
    small kernels cost as much as large ones, so one cohort is cheaper than two.
    """
    by_structure: dict[str, list[list[Run]]] = {}
    for run in sorted(runs, key=_shots):
        cohorts = by_structure.setdefault(_structure(run, on_gpu), [])
        if cohorts and (on_gpu or _shots(run) <= 2 * _shots(cohorts[-1][0])):
            cohorts[-1].append(run)
        else:
            cohorts.append([run])
    place = {run.id: number for number, run in enumerate(runs)}
    planned = [
        sorted(cohort, key=lambda run: place[run.id])
        for cohort in itertools.chain(*by_structure.values())
    ]
    return sorted(planned, key=lambda cohort: place[cohort[0].id])


def _structure(run: Run, on_gpu: bool) -> str:
    """Return the facts that the runs of a cohort must share, as text."""
    # By class, because sac and sac-auto differ in per-run settings only.
    agent = get_algorithm(run.algo).agent
    updates = None if on_gpu else run.config.updates_per_step
    shared = [portable(run.task), str(agent), run.config.structure(), updates]
    return json.dumps(shared, sort_keys=True)


def _shots(run: Run) -> int:
    return int(getattr(run.config, "shots", 1))


def make_agent(runs: Sequence[Run], ds: int, da: int) -> Agent:
    """Return the agent of a cohort for these lengths of observations and actions."""
    return get_algorithm(runs[0].algo).agent([run.config for run in runs], ds, da)
