"""Training options with their defaults, allowed values and help texts."""

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
    """Hold the training options, which `train` and `compare` accept as keyword arguments.

    On the same kind of device, only the options `precision`, `start_from` and `stop_when_solved`
    change the results of a run.
    """

    steps: int = _option(MISSING, AT_LEAST_ONE, "Train each run for N environment steps.")
    device: str = _option(AUTO, None, "Train on this device: cpu, cuda, cuda:1 or auto.", "DEVICE")
    backend: str = _option(
        AUTO, BACKENDS, "Compute updates as written (eager), compiled, or as a CUDA graph."
    )
    precision: str = _option(
        "float32", PRECISIONS, "Multiply matrices on a GPU with this precision."
    )
    workers: int | Literal["auto"] = _option(
        AUTO, NON_NEGATIVE, "Simulate in N worker processes; 0 simulates in the learning process."
    )
    step_seconds: int = _option(
        STEP_SECONDS,
        AT_LEAST_ONE,
        "Treat an environment as hung if a step or reset takes more than N seconds.",
    )
    threads: int | Literal["auto"] = _option(
        AUTO,
        Interval(1, 1024),
        "Compute networks with N threads; auto uses more threads for large networks and cohorts.",
    )
    log_every: int = _option(1000, AT_LEAST_ONE, "Write a line of metrics.jsonl every N steps.")
    checkpoint_every: int = _option(20_000, AT_LEAST_ONE, "Write a checkpoint every N steps.")
    evaluate_every: int = _option(
        0,
        NON_NEGATIVE,
        "Evaluate every N steps and keep the best weights; 0 evaluates only at the end.",
    )
    evaluation_episodes: int = _option(
        5, Interval(0, EPISODES.high), "Play N episodes in each evaluation."
    )
    bias_every: int = _option(
        0, NON_NEGATIVE, "Measure the bias of the critic every N steps; 0 never measures it."
    )
    bias_episodes: int = _option(3, EPISODES, "Play N episodes in each measurement of the bias.")
    coverage_every: int = _option(
        0,
        NON_NEGATIVE,
        "Measure the spread of the visited states every N steps; 0 never measures it.",
    )
    stop_when_solved: bool = _option(
        False,
        None,
        "Stop a run when it solves the task, with five consecutive episodes above the threshold.",
    )
    start_from: str | None = _option(
        None,
        None,
        "Start from this trained agent: a run folder or an agent.safetensors file.",
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
                "start_from is empty; give a run folder or an agent.safetensors file, or omit the "
                "option."
            )


def _kind(option: "Field[Any]") -> type:
    """Return the type of an option's values, apart from "auto"."""
    if isinstance(option.metadata["allowed"], Interval):
        return int
    return bool if option.default is False else str


def _instead(name: str, known: Iterable[str]) -> str:
    """Return the end of the message on an unknown option: what to use instead."""
    if advice := answer_on_option(name):
        return f"{advice}."
    from pac4sac.agents import ALGORITHMS, setting_names  # torch takes a second to import

    if name in SETTINGS or any(name in setting_names(algo) for algo in ALGORITHMS):
        return f"it is a setting of algorithms: settings={{{name!r}: ...}}."
    return did_you_mean(name, sorted(known))


def make_options(steps: int, given: Mapping[str, Any]) -> Options:
    """Return options for a number of steps; refuse unknown names."""
    known = {option.name for option in fields(Options)} - {"steps"}
    for name in given:
        if name not in known:
            raise UserError(f"Unknown option {name}; {_instead(name, known)}")
    return Options(steps=steps, **given)
