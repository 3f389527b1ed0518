"""How to train a cohort."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from pac4sac.agents.settings import AT_LEAST_ONE, NON_NEGATIVE, Interval
from pac4sac.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, as opposed to what. On the same kind of device a run learns the same whatever is chosen here, but
    for `precision`, for `start_from`, and for `stop_when_solved`, which ends it."""

    steps: int
    device: str = "auto"
    backend: str = "auto"
    precision: str = "float32"  # of matrix products on a GPU; tf32 rounds their factors to 10 bits
    workers: int | Literal["auto"] = "auto"
    threads: int | Literal["auto"] = "auto"
    log_every: int = 1000
    checkpoint_every: int = 20_000
    evaluate_every: int = 0  # 0: at the end only
    evaluation_episodes: int = 5
    bias_every: int = 0  # 0: never
    bias_episodes: int = 3
    coverage_every: int = 0  # 0: never
    stop_when_solved: bool = False
    start_from: str | None = None

    def __post_init__(self) -> None:
        allowed: dict[str, Interval] = {
            "steps": AT_LEAST_ONE,
            "log_every": AT_LEAST_ONE,
            "checkpoint_every": AT_LEAST_ONE,
            "evaluate_every": NON_NEGATIVE,
            "evaluation_episodes": NON_NEGATIVE,
            "bias_every": NON_NEGATIVE,
            "bias_episodes": AT_LEAST_ONE,
            "coverage_every": NON_NEGATIVE,
        }
        for name, interval in allowed.items():
            if not _is_whole(value := getattr(self, name)):
                raise UserError(f"{name} must be a whole number, not {value!r}.")
            if value not in interval:
                raise UserError(f"{name} must be {interval}, not {value}.")
        for name, kind in {"device": str, "backend": str, "start_from": str | None, "stop_when_solved": bool}.items():
            if not isinstance(value := getattr(self, name), kind):
                raise UserError(f"{name} must be {'true or false' if kind is bool else 'a text'}, not {value!r}.")
        if self.precision not in ("float32", "tf32"):
            raise UserError(f"precision must be float32 or tf32, not {self.precision!r}.")
        for name in ("workers", "threads"):
            value, interval = getattr(self, name), NON_NEGATIVE if name == "workers" else AT_LEAST_ONE
            if value != "auto" and not (_is_whole(value) and value in interval):
                raise UserError(f"{name} must be auto or a whole number {interval}, not {value!r}.")


def make_options(steps: int, given: Mapping[str, Any]) -> Options:
    known = {field.name for field in fields(Options)} - {"steps"}
    if unknown := sorted(set(given) - known):
        raise UserError(f"There is no option {', '.join(unknown)}; there are {', '.join(sorted(known))}.")
    return Options(steps=steps, **given)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
