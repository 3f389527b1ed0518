"""Training options: each with its default, its allowed values and its help text."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

from pac4sac.base.errors import UserError
from pac4sac.base.known_names import SETTINGS, answer_on_option
from pac4sac.base.ranges import AT_LEAST_ONE, EPISODES, NON_NEGATIVE, Allowed, Interval, check_value
from pac4sac.base.stopping import STEP_SECONDS
from pac4sac.base.text import did_you_mean

AUTO = "auto"
BACKENDS = (AUTO, "eager", "compiled", "graph")
PRECISIONS = ("float32", "tf32")


def _option(default: Any, allowed: Allowed, help: str, metavar: str | None = None) -> Any:
    return field(default=default, metadata={"allowed": allowed, "help": help, "metavar": metavar})


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, as opposed to what.

    On the same kind of device the options do not change what a run learns, except `precision`,
    `start_from` and `stop_when_solved`.
    """

    steps: int = _option(MISSING, AT_LEAST_ONE, "Environment steps of each run.")
    device: str = _option(AUTO, None, "Device to train on: cpu, cuda, cuda:1 or auto.", "DEVICE")
    backend: str = _option(
        AUTO, BACKENDS, "How to compute: as written (eager), compiled, or as a CUDA graph."
    )
    precision: str = _option("float32", PRECISIONS, "Precision of matrix products on a GPU.")
    workers: int | Literal["auto"] = _option(
        AUTO, NON_NEGATIVE, "Processes for the simulators; 0 keeps them in the process that learns."
    )
    step_seconds: int = _option(
        STEP_SECONDS,
        AT_LEAST_ONE,
        "Seconds that a step or a reset of an environment may take before it counts as hanging.",
    )
    threads: int | Literal["auto"] = _option(
        AUTO,
        Interval(1, 1024),
        "Threads for the networks; auto gives large networks and cohorts more of them, by a rule.",
    )
    log_every: int = _option(1000, AT_LEAST_ONE, "Steps between lines of metrics.jsonl.")
    checkpoint_every: int = _option(20_000, AT_LEAST_ONE, "Steps between checkpoints.")
    evaluate_every: int = _option(
        0,
        NON_NEGATIVE,
        "Steps between evaluations, of which the best weights are kept; 0 evaluates at the "
        "end only.",
    )
    evaluation_episodes: int = _option(
        5, Interval(0, EPISODES.high), "Episodes of each evaluation."
    )
    bias_every: int = _option(
        0,
        NON_NEGATIVE,
        "Steps between measurements of how far the critic over- or underestimates; 0 makes none.",
    )
    bias_episodes: int = _option(3, EPISODES, "Episodes of each such measurement.")
    coverage_every: int = _option(
        0,
        NON_NEGATIVE,
        "Steps between measurements of how widely the visited states are spread; 0 makes none.",
    )
    stop_when_solved: bool = _option(
        False, None, "End a run once it is solved: five episodes in a row above the task's limit."
    )
    start_from: str | None = _option(
        None,
        None,
        "Trained agent to start from: a run folder or an agent.safetensors. Runs are named "
        "after it.",
        "AGENT",
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value, allowed = getattr(self, option.name), option.metadata["allowed"]
            if value is not None or option.default is not None:
                other = AUTO if option.default == AUTO else ""
                check_value(option.name, value, _kind(option), allowed, other)
        if self.start_from == "":
            raise UserError(
                "start_from names no agent; give a run folder or an agent.safetensors, or "
                "leave it out."
            )


def _kind(option: "Field[Any]") -> type:
    """Return the type of an option's values, apart from "auto"."""
    if isinstance(option.metadata["allowed"], Interval):
        return int
    return bool if option.default is False else str


def _instead(name: str, known: Iterable[str]) -> str:
    """Return the end of the message about an unknown option: what to use instead."""
    if advice := answer_on_option(name):
        return f"{advice}."
    from pac4sac.agents import ALGORITHMS, setting_names  # torch takes a second to import

    if name in SETTINGS or any(name in setting_names(algo) for algo in ALGORITHMS):
        return f"it is a setting of algorithms: settings={{{name!r}: ...}}."
    return did_you_mean(name, sorted(known))


def make_options(steps: int, given: Mapping[str, Any]) -> Options:
    """Return options for a number of steps; refuse names that are not options."""
    known = {option.name for option in fields(Options)} - {"steps"}
    for name in given:
        if name not in known:
            raise UserError(f"There is no option {name}; {_instead(name, known)}")
    return Options(steps=steps, **given)
