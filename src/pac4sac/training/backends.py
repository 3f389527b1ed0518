"""Backends for the operations of a learner. `eager` is the reference, `compiled` runs a whole
operation with gradients as one program, and `graph` captures that program as a CUDA graph.

A faster backend is compared with eager on the real cohort before it is used.
"""

import contextlib
import os
import re
import shutil
import timeit
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pac4sac.agents.base import Agent
from pac4sac.base.cores import cores
from pac4sac.base.errors import UserError
from pac4sac.base.memory import keep_freed_memory
from pac4sac.training.learner import Learner, Operation, Prepare, Tensors, eager

Operations = dict[str, Callable[[], None]]

# Updates of all runs together. With fewer, compilation takes longer than it saves; the break-even
# was measured at 3,400 to 7,500, depending on networks and runs.
COMPILING_PAYS = 5_000
TOLERANCE = 1e-3  # largest relative difference of gradients after one update, in norm
# number of multiplications per pass below which threads cost more than they save
PER_THREAD = 4_000_000
WEIGHT_TOLERANCE = 0.1  # relative to the norm of the change of the weights
STEPS_REHEARSED = 1000  # largest number of steps of a rehearsal
# On the CPU, C++ calls the kernels. On a GPU a captured graph calls them, and independent kernels
# are fused. The empty options are for operations that cannot be fused, such as sorting.
COMPILER_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "cpu": [{"cpp_wrapper": True}],
    "cuda": [{"combo_kernels": True, "combo_kernel_allow_mixed_sizes": 2}, {}],
}
REHEARSALS = 3  # a backend must agree with eager in one of them
ROUNDING = 1e-5  # relative to the norm of the weights, for steps near float32 resolution


def pick_device(name: str) -> torch.device:
    """Return the device with this name; "auto" is a GPU if there is one.

    Raises:
        UserError: If this machine lacks the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"Unknown device {name!r}; use cpu, cuda or auto.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"The device {name!r} is not supported; use cpu, cuda or auto.")
    if device.type == "cuda":
        _check_cuda_device(device.index or 0, name)
    return device


def _check_cuda_device(index: int, name: str) -> None:
    """Refuse a GPU that this machine lacks."""
    if not torch.cuda.is_available():
        raise UserError("No CUDA device is available here; use --device cpu.")
    count = torch.cuda.device_count()
    if index >= count:
        raise UserError(f"Unknown device {name!r}: this machine has {count} CUDA device(s).")


def free_bytes(device: torch.device) -> int:
    """Return the number of free bytes; without /proc/meminfo, all memory of the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def choose_backend(name: str, device: torch.device, updates: int) -> str:
    """Return the backend to use; "auto" depends on the device and the number of updates.

    Args:
        name: Name of the backend, or "auto".
        device: Where it computes.
        updates: Number of updates of all runs together.

    Raises:
        UserError: If there is no such backend, or the device cannot run it.
    """
    if name == "auto":
        return _fastest_backend(device, updates)
    if name not in PREPARE:
        raise UserError(f"Unknown backend {name!r}; use {', '.join(PREPARE)} or auto.")
    if name == "graph" and device.type != "cuda":
        raise UserError("The backend graph needs a CUDA device; use compiled or eager on the CPU.")
    return name


def number_of_updates(agent: Agent, steps: int) -> int:
    """Return the number of updates of all runs together, which begin after the warm-up."""
    return agent.runs * agent.updates_per_step * max(0, steps - min(agent.learning_starts()))


def _fastest_backend(device: torch.device, updates: int) -> str:
    """Return the backend with the shortest expected time for this number of updates.

    The choice follows a rule instead of a measurement, and does not depend on what earlier
    trainings compiled, because the backend changes the last bits of a result.
    """
    if device.type == "cuda":
        return "graph"
    return "compiled" if updates >= COMPILING_PAYS and shutil.which("g++") else "eager"


def set_precision(name: str) -> None:
    """Set the precision of matrix products on a GPU, in this process."""
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")


def trace(operation: Operation, tensors: Tensors) -> Callable[..., Any]:
    """Trace an operation, with its backward passes, as one graph of basic operations."""
    # Imported here because it takes a second.
    from torch.fx.experimental.proxy_tensor import make_fx

    def flat(*arguments: torch.Tensor) -> list[torch.Tensor]:
        operation(dict(zip(tensors, arguments, strict=True)))
        return []

    return make_fx(flat, tracing_mode="fake")(*tensors.values())


def compiled(operation: Operation, tensors: Tensors) -> Callable[[], None]:
    """Trace an operation and compile the trace."""
    # imported here, because they take a second to import
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    values: list[Any] = list(tensors.values())
    traced: Any = trace(operation, tensors)
    # torch.compile is not used, because it checks in every call whether anything other than the
    # numbers has changed. With the context, the compiler finds programs of earlier processes in its
    # cache.
    context = TracingContext(
        FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)
    )
    *others, last = COMPILER_OPTIONS[values[0].device.type]
    with tracing(context):
        for options in others:
            with contextlib.suppress(Exception):
                program: Any = torch._inductor.compile(traced, values, options=options)
                break
        else:
            program = torch._inductor.compile(traced, values, options=last)

    def run() -> None:
        with torch.no_grad():
            program(*values)

    return run


class CudaGraph:
    """Run a compiled operation as one CUDA graph."""

    def __init__(self, operation: Operation, tensors: Tensors) -> None:
        self.program = compiled(operation, tensors)
        self.capture()

    def capture(self) -> None:
        """Capture the operation in the current precision.

        Capturing executes the operation, so call this inside a `Rehearsal`, which restores the
        tensors.
        """
        # Matrix products have one workspace per stream. Graphs that run at the same time must not
        # share it.
        stream = torch.cuda.current_stream()
        if stream == torch.cuda.default_stream():  # which cannot be captured
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # no lazy initialisation may happen during capture
                self.program()
        torch.cuda.current_stream().wait_stream(stream)
        self.captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.captured, stream=stream):
            self.program()

    def __call__(self) -> None:
        self.captured.replay()


PREPARE: dict[str, Prepare] = {"eager": eager, "compiled": compiled, "graph": CudaGraph}


def put_back(tensors: Tensors, before: Tensors) -> None:
    """Copy earlier values back into tensors."""
    for name, tensor in tensors.items():
        tensor.copy_(before[name])


def median_seconds(function: Callable[[], None], repetitions: int) -> float:
    """Return the median time of a call."""
    return float(np.median(timeit.repeat(function, repeat=repetitions, number=1)))


class Rehearsal:
    """Put a learner into the middle of training on synthetic data, and restore it at the end."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        # a step in which all runs learn and delayed parts are updated
        self.step, self.place = learner.agent.full_update(max(learner.agent.learning_starts()))
        # Only the beginning of a long replay buffer, because a full copy would not fit into memory.
        self.tensors = learner.tensors
        self.tensors["replay"] = self.tensors["replay"][:, : self.step + STEPS_REHEARSED]
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def __enter__(self) -> "Rehearsal":
        self.imagine(0)
        return self

    def imagine(self, seed: int) -> None:
        """Reset the weights, and generate data and random numbers from a seed."""
        put_back(self.tensors, self.before)
        generator = torch.Generator().manual_seed(seed)
        act, learn = self.learner.act_tape.streams, self.learner.learn_tape.streams
        is_uniform = {f"act:{name}": stream.uniform for name, stream in act.items()}
        is_uniform |= {f"learn:{name}": stream.uniform for name, stream in learn.items()}
        drawn = is_uniform.keys() | {"replay", "observation", "incoming"}
        for name, tensor in self.tensors.items():
            if name in drawn:
                draw = torch.rand if is_uniform.get(name) else torch.randn
                tensor.copy_(draw(tensor.shape[1:], generator=generator))
        self.tensors["replay"][..., -1] = 0
        self.tensors["step"].fill_(self.step)
        self.tensors["update"].fill_(self.place)
        self.start = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def once(self, operations: Operations | None = None) -> Tensors:
        """Return the tensors after one step from the same start."""
        put_back(self.tensors, self.start)
        for operation in (operations or self.learner.run).values():
            operation()
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def difference(self, plain: Operations, others: Operations) -> str | None:
        """Describe the difference between a step with other operations and a plain one, or return
        None.

        Long and short updates are compared in separate steps, because after both, rounding in
        Adam's first step would affect the gradients.
        """
        for left_out in ("short_update", "update") if "short_update" in plain else ("",):
            expected = self.once(_without(plain, left_out))
            found = self.once(_without(others, left_out))
            if problem := disagreement(self.start, expected, found):
                return problem
        return None

    def seconds(self, repetitions: int = 10) -> float:
        """Return the median time of one act and one update."""
        return self.seconds_of("act", repetitions) + self.seconds_of("update", repetitions)

    def seconds_of(self, operation: str, repetitions: int = 10) -> float:
        """Return the median time of an operation."""

        def once() -> None:
            self.learner.run[operation]()
            if self.learner.device.type == "cuda":
                torch.cuda.synchronize()

        return median_seconds(once, repetitions)

    def __exit__(self, *_: object) -> None:
        put_back(self.tensors, self.before)


def _without(operations: Operations, left_out: str) -> Operations:
    return {name: run for name, run in operations.items() if name != left_out}


def disagreement(start: Tensors, reference: Tensors, other: Tensors) -> str | None:
    """Describe a difference larger than rounding between two results of a step, or return None.

    Args:
        start: The tensors before the step.
        reference: The tensors after the step.
        other: The tensors after the same step with another backend.
    """
    for name, expected in reference.items():
        if not expected.is_floating_point():
            problem = "" if torch.equal(expected, other[name]) else f"{name} differs"
        elif name in ("action", "replay"):
            problem = _rows_differ(name, expected, other[name])
        else:
            problem = _moved_differently(name, start[name], expected, other[name])
        if problem:
            return problem
    return None


def _rows_differ(name: str, expected: torch.Tensor, found: torch.Tensor) -> str:
    """Describe the difference if more than a tenth of the runs differ; otherwise return "".

    A few runs may differ, because shooting can choose another of two candidates with nearly equal
    values.
    """
    same = ((found - expected).abs() <= TOLERANCE).flatten(1).all(1).double().mean()
    return "" if same >= 0.9 else f"{name} of {float(1 - same):.0%} of the runs differs"


def _moved_differently(
    name: str, start: torch.Tensor, expected: torch.Tensor, found: torch.Tensor
) -> str:
    """Describe the difference if it is large relative to the step of the tensor; otherwise return
    "".

    The tolerance is larger for weights than for gradient moments, because Adam's first steps
    amplify gradients near zero.
    """
    moved = (expected - start).double().norm() + ROUNDING * expected.double().norm()
    gap = (found - expected).double().norm() / moved.clamp_min(1e-12)
    tolerance = TOLERANCE if name.endswith(("_moment", "metrics")) else WEIGHT_TOLERANCE
    return "" if gap <= tolerance else f"{name} differs by {float(gap):.1e}"


def cause(error: Exception) -> str:
    """Return an error as one line.

    If the message contains the traceback of a compiler's process, the line is its last error.
    """
    lines = str(error).splitlines()
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): \S", line)]
    if raised:
        return raised[-1]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def prepare(learner: Learner, backend: str) -> str:
    """Switch a learner to a backend if it agrees with eager; otherwise use eager, with one warning.

    Returns:
        The backend that is used.
    """
    if backend == "eager":
        return backend
    with Rehearsal(learner) as rehearsal, warnings.catch_warnings():
        # Torch recommends TF32, which is already an option of training.
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
        precision = torch.get_float32_matmul_precision()
        try:
            # The coarse rounding of TF32 could hide a mistake or look like one.
            torch.set_float32_matmul_precision("highest")
            problem = _rehearse(learner, rehearsal, backend)
            torch.set_float32_matmul_precision(precision)
            if precision != "highest":
                _capture_again(learner)
        # a mistake in a custom agent, which eager would only find after the warm-up
        except UserError:
            raise
        except Exception as error:
            problem = cause(error)
        finally:
            torch.set_float32_matmul_precision(precision)
        if problem is None:
            return backend
        learner.use(eager)
    warnings.warn(f"The {backend} backend was replaced by eager: {problem}.", stacklevel=2)
    return "eager"


def _rehearse(learner: Learner, rehearsal: Rehearsal, backend: str) -> str | None:
    """Switch the learner to a backend and return its difference from eager, if any.

    A few runs can differ by chance if two actions have nearly the same value. A real error appears
    in every rehearsal.
    """
    reference, problem = learner.run, None
    learner.use(PREPARE[backend])
    for seed in range(REHEARSALS):
        rehearsal.imagine(seed)
        problem = rehearsal.difference(reference, learner.run)
        if problem is None:
            break
    return problem


def _capture_again(learner: Learner) -> None:
    """Capture all CUDA graphs again, in the current precision."""
    for operation in learner.run.values():
        if isinstance(operation, CudaGraph):
            operation.capture()


def make_learner(
    agent: Agent, seeds: Sequence[int], steps: int, how: Mapping[str, Any]
) -> tuple[Learner, dict[str, Any]]:
    """Make a learner on a device and a backend.

    Args:
        agent: The agent of all runs.
        seeds: Seed of each run.
        steps: Environment steps of each run.
        how: Device, backend, precision and number of threads, as in `Options`.

    Returns:
        The learner, and the placement in use.
    """
    device = pick_device(how["device"])
    precision = how.get("precision", "float32")  # missing in older checkpoints
    set_precision(precision)
    keep_freed_memory()
    learner = Learner(agent, seeds, steps, device)
    threads = learning_threads(learner) if how["threads"] == "auto" else how["threads"]
    torch.set_num_threads(threads)  # compiled code keeps this number
    updates = number_of_updates(agent, steps)
    backend = prepare(learner, choose_backend(how["backend"], device, updates))
    return learner, {
        "device": str(device),
        "backend": backend,
        "precision": precision,
        "threads": threads,
    }


def suitable_threads(agent: Agent, rows: int) -> int:
    """Return the number of CPU threads for passes of `rows` rows per run through the networks.

    The number follows a rule instead of a measurement. The last bits of a result depend on it, and
    must not depend on the load of the machine.
    """
    weights = sum(net.members * sum(net.sizes) for net in agent.nets.values())
    return max(1, min(cores(), agent.runs * rows * weights // PER_THREAD))


def learning_threads(learner: Learner) -> int:
    """Return the number of threads for act and update. With a GPU, the CPU only launches
    kernels."""
    rows = learner.agent.config.batch + max(learner.agent.shots(evaluating=False))
    return 1 if learner.device.type == "cuda" else suitable_threads(learner.agent, rows)


@contextlib.contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Use this number of torch threads inside a `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
