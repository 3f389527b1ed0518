"""PAC-Bayesian Soft Actor-Critic and its baselines, trained in batched cohorts.

The names below are the public API. They are imported when first used, so that `import pac4sac` is
quick."""

import importlib
from typing import TYPE_CHECKING, Any

from pac4sac.base.cores import let_waiting_threads_sleep

if TYPE_CHECKING:
    from pac4sac.agents import Agent as Agent
    from pac4sac.agents.settings import AgentConfig as AgentConfig
    from pac4sac.agents.settings import per_run as per_run
    from pac4sac.agents.settings import structural as structural
    from pac4sac.base.errors import UserError as UserError
    from pac4sac.base.version import __version__ as __version__
    from pac4sac.certificates.certificate import certify as certify
    from pac4sac.runs.frames import results as results
    from pac4sac.runs.reference import reference as reference
    from pac4sac.studies.compare import Comparison as Comparison
    from pac4sac.studies.compare import compare as compare
    from pac4sac.studies.tuning.tune import Tuning as Tuning
    from pac4sac.studies.tuning.tune import tune as tune
    from pac4sac.tasks import Task as Task
    from pac4sac.tasks import make_env as make_env
    from pac4sac.training.agent_evaluation import Evaluation as Evaluation
    from pac4sac.training.agent_evaluation import evaluate as evaluate
    from pac4sac.training.callbacks import Callback as Callback
    from pac4sac.training.experiment import Result as Result
    from pac4sac.training.experiment import resume as resume
    from pac4sac.training.experiment import train as train
    from pac4sac.training.trained_agent import TrainedAgent as TrainedAgent
    from pac4sac.training.trained_agent import load as load

_HOMES = {
    "Agent": "agents",
    "AgentConfig": "agents.settings",
    "Callback": "training.callbacks",
    "Comparison": "studies.compare",
    "Evaluation": "training.agent_evaluation",
    "Result": "training.experiment",
    "Task": "tasks",
    "TrainedAgent": "training.trained_agent",
    "Tuning": "studies.tuning.tune",
    "UserError": "base.errors",
    "__version__": "base.version",
    "certify": "certificates.certificate",
    "compare": "studies.compare",
    "evaluate": "training.agent_evaluation",
    "load": "training.trained_agent",
    "make_env": "tasks",
    "per_run": "agents.settings",
    "reference": "runs.reference",
    "results": "runs.frames",
    "resume": "training.experiment",
    "structural": "agents.settings",
    "train": "training.experiment",
    "tune": "studies.tuning.tune",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pac4sac' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pac4sac.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


let_waiting_threads_sleep()  # must run before any module loads torch
importlib.import_module("pac4sac.tasks.registry").register_environments()
