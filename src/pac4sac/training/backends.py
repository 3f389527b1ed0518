"""How the operations of a learner are executed: `eager` (the reference), `compiled` (the whole
operation as one program, gradients included) or `graph` (the same captured once as a CUDA graph and
replayed).

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
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from pac4sac.agents.base import Agent
from pac4sac.base.cores import cores
from pac4sac.base.errors import UserError
from pac4sac.training.learner import Learner, Operation, Prepare, Tensors, eager

Operations = dict[str, Callable[[], None]]

COMPILING_PAYS = (
    20_000  # updates: below this the wait for the compiler is longer than what it saves
)
TOLERANCE = 1e-3  # relative, in the norm, of gradients after one update
PER_THREAD = (
    4_000_000  # products in a pass: with fewer, threads wait for each other longer than they save
)
WEIGHT_TOLERANCE = 0.1  # of the length of the weights' step
STEPS_REHEARSED = 1000  # at most, that a rehearsal goes on
# On the CPU kernels are called from C++. On a GPU a captured graph calls them, and those that need
# nothing of each other are joined, but for programs in which the compiler cannot do that, such as
# those that sort.
COMPILER_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "cpu": [{"cpp_wrapper": True}],
    "cuda": [{"combo_kernels": True, "combo_kernel_allow_mixed_sizes": 2}, {}],
}
REHEARSALS = 3  # in which a backend may agree with eager
ROUNDING = 1e-5  # of the weights' own length, for steps so short that float32 hardly holds them


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"There is no device {name!r}; use cpu, cuda or auto.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"The device {name!r} is not supported; use cpu, cuda or auto.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("No CUDA device is available here; use --device cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"There is no device {name!r}: this machine has {torch.cuda.device_count()} CUDA "
            "device(s)."
        )
    return device


def free_bytes(device: torch.device) -> int:
    """Memory that nobody uses."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        # where nobody tells what is free, all there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def choose_backend(name: str, device: torch.device, updates: int) -> str:
    if name == "auto":
        on_cpu = "compiled" if updates >= COMPILING_PAYS and shutil.which("g++") else "eager"
        return "graph" if device.type == "cuda" else on_cpu
    if name not in PREPARE:
        raise UserError(f"There is no backend {name!r}; use {', '.join(PREPARE)} or auto.")
    if name == "graph" and device.type != "cuda":
        raise UserError("The backend graph needs a CUDA device; use compiled or eager on the CPU.")
    return name


def set_precision(name: str) -> None:
    """Set the precision of matrix products on a GPU, in this process."""
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")


def trace(operation: Operation, tensors: Tensors) -> Callable[..., Any]:
    """The operation, its backward passes included, as one graph of basic operations on the values
    of the tensors."""

    def flat(*arguments: torch.Tensor) -> list[torch.Tensor]:
        operation(dict(zip(tensors, arguments, strict=True)))
        return []

    return make_fx(flat, tracing_mode="fake")(*tensors.values())


def compiled(operation: Operation, tensors: Tensors) -> Callable[[], None]:
    """Trace the operation and compile that."""
    values: list[Any] = list(tensors.values())
    traced: Any = trace(operation, tensors)
    # Not torch.compile, which would check in every call whether anything but the numbers has
    # changed. The context lets the compiler find programs of earlier processes in its cache.
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
    """A compiled operation as one launch."""

    def __init__(self, operation: Operation, tensors: Tensors) -> None:
        self.program = compiled(operation, tensors)
        self.capture()

    def capture(self) -> None:
        """In the precision that is set now. The operation is carried out for that; a `Rehearsal`
        puts all back."""
        # Products keep their workspace by the stream of the capture; graphs that run side by side
        # must not share one.
        stream = torch.cuda.current_stream()
        if stream == torch.cuda.default_stream():  # which cannot be captured
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # lazy initialisation must not happen during capture
                self.program()
        torch.cuda.current_stream().wait_stream(stream)
        self.captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.captured, stream=stream):
            self.program()

    def __call__(self) -> None:
        self.captured.replay()


PREPARE: dict[str, Prepare] = {"eager": eager, "compiled": compiled, "graph": CudaGraph}


def put_back(tensors: Tensors, before: Tensors) -> None:
    for name, tensor in tensors.items():
        tensor.copy_(before[name])


def median_seconds(function: Callable[[], None], repetitions: int) -> float:
    return float(np.median(timeit.repeat(function, repeat=repetitions, number=1)))


class Rehearsal:
    """A learner in the middle of learning, on made-up data; afterwards it is as it was."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        starts, period = max(learner.agent.learning_starts()), learner.agent.period
        self.step = starts + -starts % period  # all runs learn, and move all that is delayed
        # Copies of a whole replay would not fit beside it; of a long one only the beginning is read
        # and written here.
        self.tensors = learner.tensors
        self.tensors["replay"] = self.tensors["replay"][:, : self.step + STEPS_REHEARSED]
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def __enter__(self) -> "Rehearsal":
        self.imagine(0)
        return self

    def imagine(self, seed: int) -> None:
        """Start from the data and random numbers of this seed, and from the weights there were."""
        put_back(self.tensors, self.before)
        generator = torch.Generator().manual_seed(seed)
        streams = {f"act:{name}": stream for name, stream in self.learner.act_tape.streams.items()}
        streams |= {
            f"learn:{name}": stream for name, stream in self.learner.learn_tape.streams.items()
        }
        for name, tensor in self.tensors.items():
            if name in streams or name in ("replay", "observation", "incoming"):
                uniform = name in streams and streams[name].uniform
                tensor.copy_(
                    (torch.rand if uniform else torch.randn)(tensor.shape[1:], generator=generator)
                )
        self.tensors["replay"][..., -1] = 0
        self.tensors["step"].fill_(self.step)
        self.start = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def once(self, operations: Operations | None = None) -> Tensors:
        """The tensors after one step from the same start."""
        put_back(self.tensors, self.start)
        for operation in (operations or self.learner.run).values():
            operation()
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def difference(self, plain: Operations, others: Operations) -> str | None:
        """What comes out differently in the second way of computing a step, with the one update or
        the other: after both, what rounding does to Adam's first step would have reached the
        gradients."""
        for left_out in ("short_update", "update") if "short_update" in plain else ("",):
            ways = [
                {name: run for name, run in way.items() if name != left_out}
                for way in (plain, others)
            ]
            if problem := disagreement(self.start, *map(self.once, ways)):
                return problem
        return None

    def seconds(self, repetitions: int = 10) -> float:
        """Of one act and one update."""
        return self.seconds_of("act", repetitions) + self.seconds_of("update", repetitions)

    def seconds_of(self, operation: str, repetitions: int = 10) -> float:
        def once() -> None:
            self.learner.run[operation]()
            if self.learner.device.type == "cuda":
                torch.cuda.synchronize()

        return median_seconds(once, repetitions)

    def __exit__(self, *_: object) -> None:
        put_back(self.tensors, self.before)


def disagreement(start: Tensors, reference: Tensors, other: Tensors) -> str | None:
    """Where two results of the same step from the same start differ by more than rounding, or None.
    A tensor is judged by how far it moved; weights less strictly than the moments of their
    gradient, since Adam's first steps amplify the sign of gradients that are nearly zero."""
    for name, expected in reference.items():
        if not expected.is_floating_point():
            if not torch.equal(expected, other[name]):
                return f"{name} differs"
        elif name in ("action", "replay"):
            same = ((other[name] - expected).abs() <= TOLERANCE).flatten(1).all(1).double().mean()
            if not same >= 0.9:  # two candidates of nearly the same value may change places
                return f"{name} of {float(1 - same):.0%} of the runs differs"
        else:
            moved = (expected - start[name]).double().norm() + ROUNDING * expected.double().norm()
            gap = (other[name] - expected).double().norm() / moved.clamp_min(1e-12)
            if not gap <= (
                TOLERANCE if name.endswith(("_moment", "metrics")) else WEIGHT_TOLERANCE
            ):
                return f"{name} differs by {float(gap):.1e}"
    return None


def cause(error: Exception) -> str:
    """In one line. What a compiler's helper process raised stands at the end of a traceback in the
    message."""
    raised = [
        line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exception): \S", line)
    ]
    return (
        raised[-1]
        if raised
        else f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
    )


def prepare(learner: Learner, backend: str) -> str:
    """Make the learner run on a backend, after comparing it with eager; fall back to eager with
    one warning. Returns the backend that is used."""
    if backend == "eager":
        return backend
    with Rehearsal(learner) as rehearsal, warnings.catch_warnings():
        # Torch's advice to use TF32, which here is an option, and may be set already.
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
        precision = torch.get_float32_matmul_precision()
        try:
            # TF32 rounds factors so coarsely that it would hide a mistake, or look like one.
            torch.set_float32_matmul_precision("highest")
            problem = _rehearse(learner, rehearsal, backend)
            torch.set_float32_matmul_precision(precision)
            if precision != "highest":
                _capture_again(learner)
        except UserError:  # of a custom agent, which eager would tell only after the warm-up
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
    """Switch the learner to a backend and return where it differs from eager, if it does.

    The best of many actions may be two of nearly the same value, which rounding then decides, so a
    few runs can differ by chance; an error would show in every rehearsal."""
    reference, problem = learner.run, None
    learner.use(PREPARE[backend])
    for seed in range(REHEARSALS):
        rehearsal.imagine(seed)
        problem = rehearsal.difference(reference, learner.run)
        if problem is None:
            break
    return problem


def _capture_again(learner: Learner) -> None:
    for operation in learner.run.values():
        if isinstance(operation, CudaGraph):
            operation.capture()


def make_learner(
    agent: Agent, seeds: Sequence[int], steps: int, how: Mapping[str, Any]
) -> tuple[Learner, dict[str, Any]]:
    """Return a learner on the device and backend, in the precision and with the threads that are
    asked for, and the placement that was used."""
    # older checkpoints do not tell
    device, precision = (pick_device(how["device"]), how.get("precision", "float32"))
    set_precision(precision)
    learner = Learner(agent, seeds, steps, device)
    threads = learning_threads(learner) if how["threads"] == "auto" else how["threads"]
    torch.set_num_threads(threads)  # which compiled code keeps
    backend = prepare(
        learner, choose_backend(how["backend"], device, steps * agent.updates_per_step)
    )
    return learner, {
        "device": str(device),
        "backend": backend,
        "precision": precision,
        "threads": threads,
    }


def suitable_threads(agent: Agent, rows: int) -> int:
    """For passes of so many rows a run through the networks, on a CPU. A rule, not a trial: the
    last bits of a result depend on the number of threads, and must not depend on what else the
    machine did at the start."""
    weights = sum(net.members * sum(net.sizes) for net in agent.nets.values())
    return max(1, min(cores(), agent.runs * rows * weights // PER_THREAD))


def learning_threads(learner: Learner) -> int:
    """For act and update; on a GPU the CPU only launches them."""
    rows = learner.agent.config.batch + max(learner.agent.shots(evaluating=False))
    return 1 if learner.device.type == "cuda" else suitable_threads(learner.agent, rows)


@contextlib.contextmanager
def on_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
