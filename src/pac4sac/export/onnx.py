"""Export of the deterministic policy as an ONNX model, from observations to actions in the units of
the environment."""

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from pac4sac.base.errors import UserError, import_extra
from pac4sac.base.files import write_whole
from pac4sac.tasks.catalogue import Task
from pac4sac.tasks.registry import make_env
from pac4sac.training.agent_file import choose_agent
from pac4sac.training.trained_agent import TrainedAgent, load

Vectors = NDArray[np.float32]
OBSERVATIONS = 256  # number of observations on which model and agent are compared
TOLERANCE = 1e-4  # largest difference, relative to half the range of an action


def export_onnx(path: str | Path, out: Path) -> str:
    """Write the policy of a trained agent, and return a sentence with the model's largest error.

    Args:
        path: Agent file, run, or experiment, whose best run is used.
        out: File to write.

    Raises:
        UserError: If the model differs from the agent; nothing is written then.
    """
    out = Path(out)
    if out.is_dir():
        raise UserError(f"{out} is a folder; give a file to write, such as {out / 'policy.onnx'}.")
    onnx = import_extra(
        "onnx", "The export needs onnx and onnxscript", "onnxscript", "onnx.helper", "onnx"
    )
    agent = load(choose_agent(path))
    low, high = action_bounds(agent.run.task)
    model = trace(agent, low, high)
    about = {
        "task": agent.run.task.name,
        "env_id": agent.run.task.env_id,
        "algo": agent.run.algo,
        "run": agent.run.id,
    }
    onnx.helper.set_model_props(model, about)
    evaluate, judge = evaluator(model)
    gap = largest_difference(agent, evaluate)
    if not gap <= TOLERANCE * float((high - low).max() / 2):
        raise UserError(
            f"The actions of the exported policy differ from those of the agent {agent.run.id} by "
            f"{gap:.1e}, so nothing was written."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, model.SerializeToString())
    return (
        f"The policy of {agent.run.id} was written to {out}; on {OBSERVATIONS} random "
        f"observations, its actions in {judge} differ from the agent's by at most {gap:.1e}."
    )


def action_bounds(task: Task) -> tuple[Vectors, Vectors]:
    """Return the lowest and the highest action of a task."""
    with contextlib.closing(make_env(task)) as env:
        own = env.action_space
        assert isinstance(own, spaces.Box)
        return own.low.astype(np.float32).ravel(), own.high.astype(np.float32).ravel()


class PolicyModule(nn.Module):
    """Wrap the agent of one run as a module for torch's exporter."""

    def __init__(self, agent: TrainedAgent, low: Vectors, high: Vectors) -> None:
        super().__init__()
        self.agent, self.names = agent.agent, list(agent.state)
        for index, tensor in enumerate(agent.state.values()):
            self.register_buffer(f"state_{index}", tensor)
        self.low: Tensor
        self.high: Tensor
        self.register_buffer("low", torch.from_numpy(low))
        self.register_buffer("high", torch.from_numpy(high))

    def forward(self, observation: Tensor) -> Tensor:
        state = {name: getattr(self, f"state_{index}") for index, name in enumerate(self.names)}
        # [batch, da]
        unit = self.agent.deterministic_action(state, observation.unsqueeze(0)).squeeze(0)
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return torch.clamp(middle + half * unit, self.low, self.high)


def trace(agent: TrainedAgent, low: Vectors, high: Vectors) -> Any:
    """Return the ONNX model of the deterministic policy."""
    policy, example = PolicyModule(agent, low, high).eval(), torch.zeros(2, agent.agent.ds)
    how: dict[str, Any] = {
        "input_names": ["observation"],
        "output_names": ["action"],
        "dynamo": True,
        "verbose": False,
    }
    how["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)  # of any batch size
    logged = logging.root.manager.disable
    # The exporter prints its progress, and warns of packages that are not used here, such as
    # torchvision.
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stdout(io.StringIO()),
            torch.no_grad(),
        ):
            program = torch.onnx.export(policy, (example,), **how)
    finally:
        logging.disable(logged)
    assert program is not None
    return program.model_proto


def evaluator(model: Any) -> tuple[Callable[[Vectors], Vectors], str]:
    """Return the model as a function, with the name of the library that runs it.

    The library is onnxruntime if it is installed.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
        session = runtime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        name = f"onnxruntime {runtime.__version__}"
    except ImportError:
        session = importlib.import_module("onnx.reference").ReferenceEvaluator(model)
        name = "onnx's reference evaluator"
    return lambda observation: session.run(None, {"observation": observation})[0], name


def largest_difference(agent: TrainedAgent, evaluate: Callable[[Vectors], Vectors]) -> float:
    """Return the largest difference between actions of model and agent on random observations."""
    observations = 2 * np.random.default_rng(0).standard_normal(
        (OBSERVATIONS, agent.agent.ds), np.float32
    )
    expected = np.stack(
        [agent.act(observation, shooting=False).ravel() for observation in observations]
    )
    together, alone = evaluate(observations), evaluate(observations[:1])
    if together.shape != expected.shape or alone.shape != expected[:1].shape:
        return float("inf")
    return float(max(np.abs(together - expected).max(), np.abs(alone - expected[:1]).max()))
