"""Resources that the jobs of a study request from Slurm: checks, and the form for submitit.

A study file may come from another person, and a file must not choose which code runs. It may
therefore use only the options of sbatch that choose where and when a job runs."""

import math
import re
from collections.abc import Mapping
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean, file_name

# by key: the form of its value, and the form in words
KNOWN = {
    "cluster": (r"slurm|local", "slurm or local"),
    "gpus": (r"([A-Za-z][\w.-]*:)?[01]", "0, 1, or 1 with its type such as a100:1"),
    "cpus": (r"[1-9]\d{0,3}", "a whole number above 0"),
    "mem": (r"[1-9]\d*[KMGT]?", "a size such as 16G; a number alone is in MB"),
    "time": (
        r"(\d+-\d+(:\d+){0,2}|\d+(:\d+){0,2})",
        "a number of minutes, or a time such as 4:00:00 or 1-12:00:00",
    ),
}
# Other allowed options of sbatch, which checks their values itself.
SBATCH = (
    "account", "comment", "constraint", "exclude", "exclusive", "gres", "licenses", "mail-type",
    "nice", "nodelist", "partition", "prefer", "qos", "reservation", "tmp",
)  # fmt: skip
Request = Mapping[str, Any]


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with the names that sbatch uses and known values as text.

    Raises:
        UserError: If a value has the wrong form, or an option is one that the engine sets.
    """
    return dict(_checked(name.replace("_", "-"), value) for name, value in given.items())


def _checked(name: str, value: Any) -> tuple[str, Any]:
    """Return a name and its value."""
    if name not in KNOWN and name not in SBATCH:
        instead = did_you_mean(name, [*KNOWN, *SBATCH])
        raise UserError(f"Unknown slurm option {name}; {instead}")
    if value is True and name in SBATCH:
        return name, value
    # A line break would end the line of the option in the script of the job.
    form, in_words = KNOWN.get(name, (r"[^\x00-\x1f\x7f]+", "text on a single line"))
    text = str(value)
    if re.fullmatch(form, text) is None or (name == "time" and minutes(text) == 0):
        raise UserError(f"The slurm option {name} must be {in_words}, not {text!r}.")
    return name, text


def minutes(text: str) -> int:
    """Return the minutes of a time limit as Slurm writes it: minutes, minutes:seconds,
    hours:minutes:seconds, days-hours, days-hours:minutes or days-hours:minutes:seconds."""
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if not dash and len(parts) < 3:  # the first part is minutes
        parts.insert(0, 0)
    hours, whole, seconds = (*parts, 0, 0)[:3]
    return (int(days or 0) * 24 + hours) * 60 + whole + math.ceil(seconds / 60)


def wants_gpu(request: Request, device: str) -> bool:
    """Return whether jobs get a GPU, for a device of the training options.

    Raises:
        UserError: If jobs would get a GPU that training does not use.
    """
    if "gpus" not in request:
        return device.startswith("cuda")
    has_gpu = not str(request["gpus"]).endswith("0")
    if has_gpu and device == "cpu":
        raise UserError(
            f"The jobs request gpus={request['gpus']}, but the study trains on the CPU; omit "
            "gpus, or train on a GPU with --device cuda."
        )
    return has_gpu


def submitit_parameters(study: str, request: Request, parallel: int | None) -> dict[str, Any]:
    """Return a complete request as the parameters of submitit.

    Args:
        study: Name of the study.
        request: What each of them requests.
        parallel: Number of jobs that may run at the same time; None for all.
    """
    sbatch = {key.replace("-", "_"): value for key, value in request.items() if key not in KNOWN}
    count = int(request["gpus"][-1])
    if ":" in request["gpus"]:  # submitit takes no type
        sbatch["gpus_per_node"] = request["gpus"]
    parameters = {
        "name": file_name(f"pac4sac-{study}"),
        "timeout_min": minutes(request["time"]),
        "cpus_per_task": int(request["cpus"]),
        "gpus_per_node": count or None,
        "slurm_additional_parameters": {"requeue": True, "mem": request["mem"], **sbatch},
        "slurm_signal_delay_s": 120,  # before the end of the time: to write a checkpoint
        # Since Slurm 22.05 srun does not take it from sbatch.
        "slurm_srun_args": ["--cpus-per-task", request["cpus"]],
        "slurm_array_parallelism": parallel,
    }
    return {key: value for key, value in parameters.items() if value is not None}
