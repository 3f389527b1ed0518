"""Settings, which are dataclass fields with a range and a meaning, per run or shared by a
cohort."""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pac4sac.agents.coloured_noise import COLOURS
from pac4sac.agents.schedule import SCHEDULES
from pac4sac.base.errors import UserError
from pac4sac.base.known_names import LINEAR, linear_schedule
from pac4sac.base.ranges import ANY as ANY  # re-exported for custom agents
from pac4sac.base.ranges import AT_LEAST_ONE as AT_LEAST_ONE
from pac4sac.base.ranges import BELOW_ONE as BELOW_ONE
from pac4sac.base.ranges import NON_NEGATIVE as NON_NEGATIVE
from pac4sac.base.ranges import OPEN_UNIT as OPEN_UNIT
from pac4sac.base.ranges import POSITIVE as POSITIVE
from pac4sac.base.ranges import UNIT as UNIT
from pac4sac.base.ranges import Allowed, check_value
from pac4sac.base.ranges import Interval as Interval

T = TypeVar("T")

# Settings that all algorithms share in the studies of the PAC4SAC paper: networks, optimiser and
# replay buffer.
REPRODUCTION: Mapping[str, Any] = {
    **{"lr": 1e-3, "warmup": 1_000, "batch": 32, "capacity": 25_000},
    **{"depth": 3, "norm": True, "activation": "silu"},
}
# The paper states α for PAC4SAC only; agents with SAC's actor use the same α. In the first preset,
# α is learned if the algorithm's own publication learns it.
REPRODUCTION_AUTO: Mapping[str, Any] = {**REPRODUCTION, "alpha": 0.2, "log_std_max": 1.0}
REPRODUCTION_SAC: Mapping[str, Any] = {**REPRODUCTION_AUTO, "learn_alpha": False}
# Settings of SAC, REDQ and DroQ in the published curves with which reports compare them.
PUBLISHED_CURVES: Mapping[str, Any] = {"lr": 1e-3, "warmup": 5_000, "alpha_loss": "plain"}


def per_run(default: T, allowed: Allowed, help: str) -> T:
    """Declare a setting that may differ between the runs of a cohort.

    The agent reads the setting as a tensor of shape [R]. A choice is read as its index among the
    allowed values.

    Args:
        default: Default value.
        allowed: Interval of a number, or the allowed words; None for a boolean.
        help: Meaning of the setting, for `pac4sac list settings`.

    Returns:
        A dataclass field.

    Example:
        >>> from dataclasses import dataclass
        >>> from pac4sac.agents.api import NON_NEGATIVE, AgentConfig, per_run
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyConfig(AgentConfig):
        ...     noise: float = per_run(0.1, NON_NEGATIVE, "std of the exploration noise")
        >>> MyConfig().noise
        0.1
    """
    return field(default=default, metadata={"per_run": True, "allowed": allowed, "help": help})


def structural(default: T, allowed: Allowed, help: str) -> T:
    """Declare a setting that all runs of a cohort share, because it decides shapes or code.

    Args:
        default: Default value.
        allowed: Interval of a number, or the allowed words; None for a boolean.
        help: Meaning of the setting, for `pac4sac list settings`.

    Returns:
        A dataclass field.

    Example:
        >>> from dataclasses import dataclass
        >>> from pac4sac.agents.api import AT_LEAST_ONE, AgentConfig, structural
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyConfig(AgentConfig):
        ...     critics: int = structural(2, AT_LEAST_ONE, "number of critics")
        >>> MyConfig(critics=5).critics
        5
    """
    return field(default=default, metadata={"per_run": False, "allowed": allowed, "help": help})


def new_default(config: "type[AgentConfig]", name: str, default: T) -> T:
    """Declare a setting of a parent again, with another default.

    Args:
        config: Settings of the parent.
        name: Name of the setting.
        default: New default value.

    Returns:
        A dataclass field.

    Example:
        >>> from dataclasses import dataclass
        >>> from pac4sac.agents.api import AgentConfig, new_default
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyConfig(AgentConfig):
        ...     warmup: int = new_default(AgentConfig, "warmup", 25_000)
        >>> MyConfig().warmup
        25000
    """
    (setting,) = (f for f in dataclasses.fields(config) if f.name == name)
    return field(default=default, metadata=setting.metadata)


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Hold the settings that every agent has. The defaults are common in publications on MuJoCo.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import AgentConfig
        >>> AgentConfig(batch=64).batch
        64
    """

    gamma: float = per_run(0.99, BELOW_ONE, "discount factor")
    tau: float = per_run(
        0.005,
        Interval(0, 1, low_open=True),
        "τ: fraction of the distance to the online networks that each update moves the target "
        "networks",
    )
    lr: float = per_run(
        3e-4, POSITIVE, "Adam's learning rate for all networks that have no separate rate"
    )
    actor_lr: float = per_run(
        0.0, NON_NEGATIVE, "Adam's learning rate for the actor; 0 means the same as `lr`"
    )
    critic_lr: float = per_run(
        0.0, NON_NEGATIVE, "Adam's learning rate for the critic; 0 means the same as `lr`"
    )
    lr_schedule: str = structural(
        "constant", SCHEDULES, "learning-rate schedule over the updates of each network"
    )
    lr_steps: int = per_run(
        1_000_000, AT_LEAST_ONE, "number of environment steps until the learning-rate schedule ends"
    )
    warmup: int = per_run(
        10_000, NON_NEGATIVE, "number of steps with uniformly random actions before learning starts"
    )
    batch: int = structural(256, AT_LEAST_ONE, "number of transitions in a minibatch")
    capacity: int = structural(
        1_000_000, AT_LEAST_ONE, "capacity of the replay buffer in transitions"
    )
    updates_per_step: int = per_run(
        1, AT_LEAST_ONE, "number of updates after each environment step"
    )
    n_step: int = per_run(
        1, Interval(1, 1000), "n: number of rewards that a target sums before it bootstraps"
    )
    width: int = structural(256, AT_LEAST_ONE, "number of units per hidden layer")
    depth: int = structural(2, Interval(1, 100), "number of hidden layers")
    critic_width: int = structural(
        0, NON_NEGATIVE, "number of units per hidden layer of a critic; 0 means the same as `width`"
    )
    critic_depth: int = structural(
        0, Interval(0, 100), "number of hidden layers of a critic; 0 means the same as `depth`"
    )
    normalise_observations: bool = structural(
        False, None, "standardise observations with their running mean and standard deviation"
    )
    normalise_rewards: bool = structural(
        False, None, "divide rewards by the running standard deviation of the discounted return"
    )
    norm: bool = structural(False, None, "layer normalisation after each hidden linear layer")
    activation: str = structural(
        "relu", ("silu", "relu"), "activation function of the hidden layers"
    )
    noise_colour: str = structural(
        "white", COLOURS, "correlation of the exploration noise over time"
    )

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            check_value(f.name, getattr(self, f.name), type(f.default), f.metadata["allowed"])
            # 1 and 1.0 must be equal in file names and checksums too
            if type(f.default) is float:
                object.__setattr__(self, f.name, float(getattr(self, f.name)))
        if self.batch > self.capacity:
            raise UserError(
                f"batch must be at most the replay capacity ({self.capacity}), not {self.batch}."
            )

    @classmethod
    def per_run_names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in dataclasses.fields(cls) if f.metadata["per_run"])

    def number(self, name: str) -> float:
        """Return a per-run setting as the number in the agent's tensors."""
        value = getattr(self, name)
        return float(self.choices(name).index(value) if isinstance(value, str) else value)

    @classmethod
    def choices(cls, name: str) -> tuple[str, ...]:
        return next(tuple(f.metadata["allowed"]) for f in dataclasses.fields(cls) if f.name == name)

    def structure(self) -> dict[str, Any]:
        """Return the settings that all runs of a cohort must share."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if not f.metadata["per_run"]
        }


def check_declared(config: Any, agent: str) -> None:
    """Raise an error if the settings of a custom agent are not declared correctly."""
    if not (isinstance(config, type) and issubclass(config, AgentConfig)):
        raise UserError(
            f"The Config of {agent} must be a subclass of AgentConfig, or of the Config of its "
            "parent class."
        )
    for each in config.__mro__:
        if (
            issubclass(each, AgentConfig)
            and inspect.get_annotations(each)
            and "__dataclass_fields__" not in vars(each)
        ):
            raise UserError(
                f"{each.__name__} is not a dataclass; put @dataclass(frozen=True, kw_only=True) "
                "above the class."
            )
    if plain := [f.name for f in dataclasses.fields(config) if "allowed" not in f.metadata]:
        raise UserError(
            f"{config.__name__} has {', '.join(plain)} without allowed values and a help text; "
            "declare each setting as "
            f'{plain[0]}: float = per_run(0.1, NON_NEGATIVE, "what it is"), or with structural(…).'
        )


def convert_value(f: "dataclasses.Field[Any]", text: str) -> Any:
    """Convert a value given as text to the type of its default."""
    try:
        if type(f.default) is bool:
            return {"true": True, "false": False}[text.lower()]
        if type(f.default) is int:
            return int(text)
        return float(text) if type(f.default) is float else text
    except (ValueError, KeyError):
        if text.startswith(LINEAR):
            raise linear_schedule(f.name, text) from None
        return text  # check_value then reports the expected value
