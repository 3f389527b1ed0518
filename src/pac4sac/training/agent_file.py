"""Files `agent.safetensors`: one small file per run with all data that acting needs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds, check_links, parse_json, write_whole
from pac4sac.runs.metrics import last_evaluations
from pac4sac.runs.reading import LAST_EPISODES, RunRecord, read_run, run_folders_below
from pac4sac.training import tensor_file
from pac4sac.training.run import Run

FORMAT, VERSION = "pac4sac agent", 1
AGENT = "agent.safetensors"
# trained agents, named after their tasks
SHIPPED = Path(__file__).parents[1] / "shipped" / "agents"


def acting_tensors(agent: Agent, state: State, run: int) -> dict[str, Tensor]:
    """Return the networks, posterior, reward scale and per-run settings of one run.

    Optimiser and target networks are omitted.
    """
    kept = (*agent.nets, "log_alpha")
    prefixes = ("hyper/", "posterior/", "rewards/")
    names = [name for name in state if name in kept or name.startswith(prefixes)]
    return {name: state[name][run : run + 1].cpu().contiguous() for name in names}


def save_agent(path: Path, run: Run, agent: Agent, state: State, index: int) -> None:
    """Write the agent of the run at `index` of a cohort."""
    tensors = acting_tensors(agent, state, index)
    about = {"run": run.describe(), "observation_size": agent.ds, "action_size": agent.da}
    write_whole(path, agent_bytes(about, tensors))


def agent_bytes(about: Mapping[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Return the content of an agent file."""
    label = {"version": VERSION, "about": about, "sha256": checksum(about, tensors)}
    # One entry only, because safetensors writes several entries in an order that varies between
    # processes.
    return safetensors.torch.save(tensors, {FORMAT: json.dumps(label, sort_keys=True)})


def checksum(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a description and its tensors."""
    content = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        content.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        content.update(np.ascontiguousarray(tensors[name].numpy()).data)
    return content.hexdigest()


def agent_file(path: str | Path) -> Path:
    """Return the agent file that a path names.

    The path can be the file itself, a run folder, an experiment with one run, or the name of a
    shipped agent.

    Raises:
        UserError: If there is no agent, or more than one agent.
    """
    path = Path(path)
    check_links(path)
    agents = _agents_at(path)
    if not agents:
        names = ", ".join(shipped_agents())
        state = "has no trained agent" if path.exists() else "does not exist"
        raise UserError(
            f"{path} {state}; give a run folder, an {AGENT} file, or a shipped agent: {names}."
        )
    if len(agents) > 1:
        raise UserError(
            f"{path} has {len(agents)} agents; give one of its runs, such as {agents[0].parent}."
        )
    return agents[0]


def _agents_at(path: Path) -> list[Path]:
    """Return the agent file of a path, or all agent files of an experiment or study."""
    for file in (path, path / AGENT):
        if file.is_file():
            return [file]
    if not path.exists() and str(path) in shipped_agents():
        return [SHIPPED / f"{path}.safetensors"]
    return agents_below(path)


def agents_below(path: Path) -> list[Path]:
    """Return the agent files of all runs of an experiment or a study."""
    return [run / AGENT for run in run_folders_below(path) if (run / AGENT).is_file()]


def shipped_agents() -> list[str]:
    """Return the names of the trained agents that ship with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def choose_agent(path: str | Path) -> Path:
    """Return the agent file of a path, or the best agent of an experiment or study.

    The best agent has the largest mean return in its last evaluation or, without one, in its last
    training episodes.

    Raises:
        UserError: If there is no agent, or the agents have different tasks.
    """
    path = Path(path)
    agents = agents_below(path)
    if len(agents) < 2:
        return agent_file(path)
    runs = [read_run(agent.parent) for agent in agents]
    if len({run.task["name"] for run in runs}) > 1:
        raise UserError(
            f"{path} has agents for several tasks; give one of its runs, such as {runs[0].folder}."
        )
    return max(runs, key=_merit).folder / AGENT


def _merit(run: RunRecord) -> tuple[bool, float]:
    """Return the rank of a run, from its last evaluation. Runs without an evaluation rank lower, by
    their last training episodes."""
    means = list(last_evaluations(run).values())
    if means:
        return True, float(means[-1])  # that of the shooting policy, if the run has one
    if not len(run.returns):
        return False, -np.inf
    return False, float(np.mean(run.returns[-LAST_EPISODES:]))


def adopt(state: State, tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy the tensors of one run to all runs of a state."""
    for name, tensor in tensors.items():
        if name not in state or (1, *state[name].shape[1:]) != tensor.shape:
            raise _other_structure(source, name)
        state[name].copy_(tensor.expand_as(state[name]))


def check_networks(agent: Agent, tensors: Mapping[str, Tensor], source: str) -> None:
    """Refuse tensors of a run whose networks differ in shape from those of an agent.

    The check allocates no memory for the networks.
    """
    for name, net in agent.nets.items():
        if name in tensors and tensors[name].shape != (1, net.members, sum(net.sizes)):
            raise _other_structure(source, name)


def _other_structure(source: str, name: str) -> UserError:
    return UserError(
        f"The agent in {source} has another structure ({name} differs); use the "
        "same algorithm and sizes."
    )


def read_agent_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and the tensors of an agent file, after a check of its checksum.

    Raises:
        UserError: If the file is damaged, or a weight is not a finite number.
    """
    try:
        arrays, texts = tensor_file.read(path)
        label = parse_json(texts[FORMAT])
    except (OSError, KeyError, ValueError) as error:
        reason = "it lacks its description" if isinstance(error, KeyError) else error
        raise UserError(
            f"{path} is not an agent file of pac4sac, or it is damaged ({reason})."
        ) from error
    tensors = tensor_file.as_tensors(arrays)
    check_kinds(label, {"about": dict, "sha256": str}, str(path), VERSION)
    if checksum(label["about"], tensors) != label["sha256"]:
        raise UserError(
            f"{path} is damaged: its content does not match its checksum. Use a copy of the file, "
            "or train again."
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise UserError(
                f"{path} is damaged: its {name} has non-finite weights. Use a copy of the file, "
                "or train again."
            )
    return label["about"], tensors
