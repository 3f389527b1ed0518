"""Names of settings and options in Stable-Baselines3 (SB3), RL Zoo and CleanRL, with our names.

Names with exactly the same meaning are accepted. For other names, an error gives advice.
"""

import functools
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean

P = ParamSpec("P")
T = TypeVar("T")

SB3, CLEANRL, ZOO = "SB3", "CleanRL", "RL Zoo"
BOTH = f"{SB3}, {CLEANRL}"
LINEAR = "lin_"  # RL Zoo's prefix of a learning rate that decreases to 0


@dataclass(frozen=True)
class KnownName:
    """Hold a name from another library.

    Attributes:
        where: Libraries that have it.
        ours: Our name, if it means exactly the same.
        answer: Advice on what to use instead, otherwise.
    """

    where: str
    ours: str = ""
    answer: str = ""


NETWORKS = "set width and depth, critic_width and critic_depth, and activation"
TARGETS = "every update also updates the target networks; set tau to change their speed"
FIXED_ALPHA = (
    "ent_coef=0.1 is alpha=0.1 with learn_alpha=false, and ent_coef='auto' is learn_alpha=true"
)
SEEDS = "each run has one simulator; runs with different seeds train in parallel, as with seeds 0:5"

SETTINGS: Mapping[str, KnownName] = {
    "learning_rate": KnownName(BOTH, "lr"),
    "policy_lr": KnownName(CLEANRL, "actor_lr"),
    "q_lr": KnownName(CLEANRL, answer="set critic_lr and alpha_lr (CleanRL's q_lr sets both)"),
    "buffer_size": KnownName(BOTH, "capacity"),
    "learning_starts": KnownName(BOTH, "warmup"),
    "batch_size": KnownName(BOTH, "batch"),
    "gradient_steps": KnownName(SB3, "updates_per_step"),
    "train_freq": KnownName(
        SB3, answer="set updates_per_step, the number of updates after each step"
    ),
    "n_steps": KnownName(SB3, "n_step"),
    "ent_coef": KnownName(SB3, answer=FIXED_ALPHA),
    "autotune": KnownName(CLEANRL, "learn_alpha"),
    "policy_frequency": KnownName(CLEANRL, "policy_delay"),
    "target_update_interval": KnownName(SB3, answer=TARGETS),
    "target_network_frequency": KnownName(CLEANRL, answer=TARGETS),
    "target_policy_noise": KnownName(SB3, "smoothing"),
    "policy_noise": KnownName(CLEANRL, "smoothing"),
    "target_noise_clip": KnownName(SB3, "smoothing_limit"),
    "noise_clip": KnownName(CLEANRL, "smoothing_limit"),
    "exploration_noise": KnownName(CLEANRL, "noise"),
    "action_noise": KnownName(
        SB3, answer="set noise, and set noise_colour to correlate it over time"
    ),
    "use_sde": KnownName(SB3, answer="set noise_colour to correlate exploration over time"),
    "n_critics": KnownName(SB3, "critics"),
    "n_quantiles": KnownName(SB3, "quantiles"),
    "top_quantiles_to_drop_per_net": KnownName(SB3, "dropped"),
    "net_arch": KnownName(SB3, answer=NETWORKS),
    "activation_fn": KnownName(SB3, answer="set activation to relu or silu"),
    "policy_kwargs": KnownName(SB3, answer=NETWORKS),
    "normalize": KnownName(ZOO, answer="set normalise_observations and normalise_rewards"),
    "norm_obs": KnownName(SB3, answer="set normalise_observations"),
    "norm_reward": KnownName(SB3, answer="set normalise_rewards"),
}
OPTIONS: Mapping[str, KnownName] = {
    "total_timesteps": KnownName(BOTH, "steps"),
    "n_timesteps": KnownName(ZOO, "steps"),
    "env": KnownName(f"{SB3}, {ZOO}", "task"),
    "env_id": KnownName(CLEANRL, "task"),
    "seed": KnownName(BOTH, "seeds"),
    "eval_freq": KnownName(SB3, "evaluate_every"),
    "n_eval_episodes": KnownName(SB3, "evaluation_episodes"),
    "eval_episodes": KnownName(ZOO, "evaluation_episodes"),
    "save_freq": KnownName(SB3, "checkpoint_every"),
    "n_envs": KnownName(SB3, answer=SEEDS),
    "num_envs": KnownName(CLEANRL, answer=SEEDS),
    "env_wrapper": KnownName(ZOO, answer="use wrappers, or --wrapper on the command line"),
    "policy": KnownName(SB3, answer=NETWORKS),
    "log_interval": KnownName(SB3, answer="use log_every, which counts steps instead of episodes"),
    "tensorboard_log": KnownName(SB3, answer="use --track tensorboard on the command line"),
    "cuda": KnownName(CLEANRL, answer="set device; the default uses a GPU if there is one"),
    "exp_name": KnownName(CLEANRL, answer="set the folder with out"),
    "capture_video": KnownName(
        CLEANRL, answer="record a video of a trained agent with pac4sac watch"
    ),
    "save_model": KnownName(CLEANRL, answer="agents are always saved"),
    "verbose": KnownName(SB3, answer="commands show progress; Python functions print nothing"),
    "progress_bar": KnownName(SB3, answer="commands show progress; Python functions print nothing"),
}


def our_setting(name: str, known: Container[str]) -> str:
    """Return our name of a setting, if an algorithm with these settings has it."""
    ours = SETTINGS[name].ours if name in SETTINGS else ""
    return ours if name not in known and ours in known else name


def our_settings(settings: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """Rename settings to our names.

    Raises:
        UserError: If a setting is given under two names.
    """
    return _renamed(settings, {name: our_setting(name, known) for name in settings})


def our_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Rename training options to our names, if they mean exactly the same.

    Raises:
        UserError: If an option is given under two names.
    """
    ours = {name: OPTIONS[name].ours for name in given if name in OPTIONS}
    return _renamed(given, {name: ours.get(name) or name for name in given})


def takes_known_names(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that it accepts options under the names of other libraries."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        return function(*arguments, **our_options(named))

    return call


def _renamed(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in given.items():
        if names[name] in renamed:
            same = " and ".join(other for other in given if names[other] == names[name])
            raise UserError(f"{same} are the same option; give only one of them.")
        renamed[names[name]] = value
    return renamed


def linear_schedule(name: str, value: str) -> UserError:
    """Return the error about a learning rate that decreases to 0, in the notation of RL Zoo."""
    first = value.removeprefix(LINEAR)
    return UserError(
        f"{name} must be a number, not {value!r} as in {ZOO}; set {name}={first}, "
        "lr_schedule=linear and lr_steps to the number of training steps."
    )


def no_such_setting(owner: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error about a setting that one or several algorithms lack.

    Args:
        owner: The algorithm with its verb, such as "sac has no".
        name: The setting.
        known: The existing settings.
    """
    if name in SETTINGS:
        there = SETTINGS[name]
        advice = there.answer or f"its name here is {there.ours}, and only some algorithms have it"
        return UserError(f"{owner} setting {name!r}: {advice}.")
    ours = [*known]
    names = [*ours, *(other for other, there in SETTINGS.items() if there.ours in ours)]
    suggestion = did_you_mean(name, names, "it has", cutoff=0.4)
    return UserError(f"{owner} setting {name!r}; {suggestion}")


def answer_on_option(name: str) -> str:
    """Return what to use instead of an option of another library; "" if it is unknown."""
    there = OPTIONS.get(name)
    if there is None:
        return ""
    return there.answer or f"it is called {there.ours} here"


def answer_on_setting(name: str, value: str) -> str:
    """Return the flag that sets a setting, for a setting that was given as an option.

    Args:
        name: Name of the setting, here or in another library.
        value: The value that was given, or nothing.
    """
    there = SETTINGS.get(name)
    if there is not None and there.answer:
        return there.answer
    ours = there.ours if there is not None else name
    return f"it is a setting: --set {ours}={value or 'VALUE'}"
