"""Kernels of an update by time, for cohorts of several sizes.

    python benchmarks/kernels.py --device cuda --precision tf32 --runs 1,20,80 --out kernels.json

Each cohort is compiled and captured as in training. First act, update and store are timed alone,
then the kernels of some updates are profiled. A kernel's row has how often an update launches it
and its microseconds per update, of all launches. On a CPU the rows are operations of PyTorch."""

import argparse
from collections.abc import Sequence
from typing import Any

from measuring import Report, Trial, numbers, parser, prepare
from torch.profiler import ProfilerActivity, profile

OPERATIONS = ("act", "update", "store")
# What a kernel does, by parts of its name; the first that fits counts.
KINDS = {
    "matrix products": ("gemm", "cutlass", "xmma", "splitk", "bmm", "addmm", "aten::mm"),
    "Adam and Polyak": ("addcdiv", "lerp", "adam"),
    "copies": ("memcpy", "memset", "copy_"),
}
SHORT = 100  # characters of a name


def kind_of(name: str) -> str:
    """Return what a kernel does: matrix products, Adam and Polyak, copies, or the rest.

    Triton's names list all operations that were fused. A fused kernel that starts with a product
    only prepares or finishes it.
    """
    lowered = name.lower()
    is_fused = lowered.startswith("triton_")
    for kind, parts in KINDS.items():
        if is_fused and kind == "matrix products":
            continue
        if any(part in lowered for part in parts):
            return kind
    return "the rest"


def kernels(trial: Trial, operation: str, repetitions: int) -> list[dict[str, Any]]:
    """Return a row for each kernel of an operation, the one that takes longest first."""
    on_gpu = trial.device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    trial.milliseconds(operation, repetitions)  # the first launches are slower
    with profile(activities=activities) as profiled:
        trial.milliseconds(operation, repetitions)
    wanted = "CUDA" if on_gpu else "CPU"
    rows = []
    for event in profiled.key_averages():
        total = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if str(event.device_type).endswith(wanted) and total > 0:
            rows.append(
                {
                    "launches": event.count / repetitions,
                    "µs": total / repetitions,
                    "kind": kind_of(event.key),
                    "kernel": event.key,
                }
            )
    return sorted(rows, key=lambda row: -row["µs"])


def by_kind(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the microseconds of an operation by what its kernels do."""
    kinds = [*KINDS, "the rest"]
    return {kind: sum(row["µs"] for row in rows if row["kind"] == kind) for kind in kinds}


def measure(report: Report, options: argparse.Namespace) -> None:
    sizes, summary = (options.observations, options.actions), []
    for runs in options.runs:
        report.console.print(f"preparing {options.algo} with {runs} run(s)", style="dim")
        trial = Trial(*prepare(options.algo, runs, sizes, report.device, options.backend))
        each = {f"{name} ms": trial.milliseconds(name, options.repetitions) for name in OPERATIONS}
        rows = kernels(trial, "update", options.repetitions)
        row: dict[str, Any] = {"runs": runs, "backend": trial.backend} | each
        row |= {f"{kind} µs": total for kind, total in by_kind(rows).items()}
        row["launches"] = sum(kernel["launches"] for kernel in rows)
        summary.append(row)
        title = f"update of {runs} run(s) of {options.algo}: kernels by time"
        shown = [row | {"kernel": row["kernel"][:SHORT]} for row in rows[: options.top]]
        report.table(f"kernels, {runs} runs", title, shown)
        report.content["tables"][f"kernels, {runs} runs"]["rows"] = rows
    report.table("update", "act, update and store alone; kernels of an update", summary)


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--algo", default="pac4sac")
    made.add_argument("--runs", type=numbers, default=[1, 20, 80], help="sizes of cohorts")
    made.add_argument("--backend", default="auto")
    made.add_argument("--observations", type=int, default=17)
    made.add_argument("--actions", type=int, default=6)
    made.add_argument("--repetitions", type=int, default=200, help="of an operation")
    made.add_argument("--top", type=int, default=25, help="kernels to print; the file has all")
    options = made.parse_args(arguments)
    if options.quick:
        options.backend, options.repetitions = "eager", 2
    report = Report(options)
    measure(report, options)
    report.close()


if __name__ == "__main__":
    main()
