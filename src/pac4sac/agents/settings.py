"""Settings: dataclass fields that know their range, their meaning, and whether runs of a cohort may
differ in them."""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pac4sac.base.errors import UserError
from pac4sac.base.ranges import ANY as ANY  # agents of a user's own take these from here
from pac4sac.base.ranges import AT_LEAST_ONE as AT_LEAST_ONE
from pac4sac.base.ranges import BELOW_ONE as BELOW_ONE
from pac4sac.base.ranges import NON_NEGATIVE as NON_NEGATIVE
from pac4sac.base.ranges import OPEN_UNIT as OPEN_UNIT
from pac4sac.base.ranges import POSITIVE as POSITIVE
from pac4sac.base.ranges import UNIT as UNIT
from pac4sac.base.ranges import Allowed, check_value
from pac4sac.base.ranges import Interval as Interval

T = TypeVar("T")

# What publications with results on MuJoCo have in common, from which each has its own exceptions:
# the presets `mujoco`.
MUJOCO: Mapping[str, Any] = {
    **{"batch": 256, "capacity": 1_000_000, "lr": 3e-4, "warmup": 5_000},
    **{"depth": 2, "norm": False, "activation": "relu"},
}
MUJOCO_SAC: Mapping[str, Any] = {**MUJOCO, "learn_alpha": True, "alpha": 1.0}


def per_run(default: T, allowed: Allowed, help: str) -> T:
    """A setting in which the runs of one cohort may differ; the agent sees it as a tensor of shape
    [R], a choice by its place among those allowed."""
    return field(default=default, metadata={"per_run": True, "allowed": allowed, "help": help})


def structural(default: T, allowed: Allowed, help: str) -> T:
    """A setting that all runs of a cohort share, since it decides shapes or code."""
    return field(default=default, metadata={"per_run": False, "allowed": allowed, "help": help})


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What every agent can be told. Defaults are the paper's, or our reading of it where it is
    silent."""

    gamma: float = per_run(0.99, BELOW_ONE, "discount factor")
    tau: float = per_run(
        0.005, Interval(0, 1, low_open=True), "step of the target networks towards the online ones"
    )
    lr: float = per_run(
        1e-3, POSITIVE, "Adam's learning rate, for every network without one of its own"
    )
    actor_lr: float = per_run(
        0.0, NON_NEGATIVE, "Adam's learning rate for the actor; 0 for that of lr"
    )
    critic_lr: float = per_run(
        0.0, NON_NEGATIVE, "Adam's learning rate for the critic; 0 for that of lr"
    )
    warmup: int = per_run(
        1000, NON_NEGATIVE, "steps of uniform random actions before learning starts"
    )
    batch: int = structural(32, AT_LEAST_ONE, "transitions per update")
    capacity: int = structural(25_000, AT_LEAST_ONE, "transitions the replay buffer holds")
    updates_per_step: int = per_run(1, AT_LEAST_ONE, "updates after each environment step")
    n_step: int = per_run(
        1, Interval(1, 1000), "n: rewards that a target sums before it bootstraps"
    )
    width: int = structural(256, AT_LEAST_ONE, "units of a hidden layer")
    depth: int = structural(3, Interval(1, 100), "hidden layers")
    critic_width: int = structural(
        0, NON_NEGATIVE, "units of a hidden layer of a critic; 0 for as many as width"
    )
    critic_depth: int = structural(
        0, Interval(0, 100), "hidden layers of a critic; 0 for as many as depth"
    )
    normalise_observations: bool = structural(
        False, None, "networks see observations less their running mean, by their running deviation"
    )
    normalise_rewards: bool = structural(
        False,
        None,
        "critics learn rewards divided by the running deviation of the discounted return",
    )
    norm: bool = structural(True, None, "layer normalisation after each hidden linear layer")
    activation: str = structural("silu", ("silu", "relu"), "activation of the hidden layers")

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            check_value(f.name, getattr(self, f.name), type(f.default), f.metadata["allowed"])
            # 1 and 1.0 are the same setting, also in a file name or a checksum
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
        """A per-run setting as the agent sees it."""
        value = getattr(self, name)
        return float(self.choices(name).index(value) if isinstance(value, str) else value)

    @classmethod
    def choices(cls, name: str) -> tuple[str, ...]:
        return next(tuple(f.metadata["allowed"]) for f in dataclasses.fields(cls) if f.name == name)

    def structure(self) -> dict[str, Any]:
        """The settings that all runs of a cohort must share."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if not f.metadata["per_run"]
        }


def check_declared(config: Any, agent: str) -> None:
    """Tell in a sentence what the settings of an agent of the user's own lack."""
    if not (isinstance(config, type) and issubclass(config, AgentConfig)):
        raise UserError(
            f"The Config of {agent} must be a subclass of AgentConfig, or of the Config of "
            "its parent."
        )
    for each in config.__mro__:
        if (
            issubclass(each, AgentConfig)
            and inspect.get_annotations(each)
            and "__dataclass_fields__" not in vars(each)
        ):
            raise UserError(
                f"{each.__name__} lacks the line @dataclass(frozen=True, kw_only=True) above "
                "its class."
            )
    if plain := [f.name for f in dataclasses.fields(config) if "allowed" not in f.metadata]:
        raise UserError(
            f"{config.__name__} has {', '.join(plain)} without a range and a meaning; declare "
            "each setting as "
            f'{plain[0]}: float = per_run(0.1, NON_NEGATIVE, "what it is"), or by structural(…).'
        )


def convert_value(f: "dataclasses.Field[Any]", text: str) -> Any:
    """Read a value given as text, on the command line say, by the type of its default."""
    try:
        if type(f.default) is bool:
            return {"true": True, "false": False}[text.lower()]
        return (
            int(text)
            if type(f.default) is int
            else float(text)
            if type(f.default) is float
            else text
        )
    except (ValueError, KeyError):
        return text  # check_value then says what was expected
