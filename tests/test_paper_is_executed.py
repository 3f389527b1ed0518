"""`--algo pac4sac` executes agents/pac4sac.py: every method of that file has an effect on what the
agent learns or does."""

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from small_cohorts import make_learner, train
from torch import Tensor

from pac4sac.agents import ALGORITHMS, Agent, pac4sac
from pac4sac.agents.nets import Critic
from pac4sac.agents.sac import Sac
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError

METHODS = [
    (owner, name)
    for owner in vars(pac4sac).values()
    if inspect.isclass(owner) and owner.__module__ == pac4sac.__name__ and issubclass(owner, Agent)
    for name, member in vars(owner).items()
    if inspect.isfunction(member)
]
NOT_LEARNED = ("metrics", "hyper")  # logs and settings


def changed(result: Any) -> Any:
    """Return what a method returned, scaled, or changed otherwise if it is not a number."""
    if isinstance(result, Tensor):
        return 1.5 * result
    if isinstance(result, Stream):
        return dataclasses.replace(result, uniform=not result.uniform)
    if isinstance(result, Critic):
        parameters = {
            name: dataclasses.replace(p, bound=1.5 * p.bound, centre=1.5 * p.centre)
            for name, p in result.parameters.items()
        }
        result.lay_out(parameters)
        return result
    if isinstance(result, dict):
        return {name: changed(value) for name, value in result.items()}
    if isinstance(result, tuple) and isinstance(result[0], str):
        return result[:-1]
    if isinstance(result, tuple):
        each = map(changed, result)
        return type(result)(*each) if hasattr(result, "_fields") else tuple(each)
    raise AssertionError(f"The test does not know how to change {result!r}.")


def outcome() -> dict[str, Tensor] | None:
    """Return the state after some steps, and the transitions with the actions in them; nothing if
    the agent reports an error."""
    try:
        learner = train(make_learner("pac4sac", {}, {"xi": 0.3}, shots=3), 12)
    except UserError:
        return None
    kept = {k: x for k, x in learner.state.items() if k.split("/")[0] not in NOT_LEARNED}
    return kept | {"replay": learner.buffers["replay"]}


def test_the_name_is_the_class_of_the_papers_file() -> None:
    agent = ALGORITHMS["pac4sac"].agent
    assert agent is pac4sac.Pac4Sac
    ours = [each for each in agent.__mro__ if each.__module__.startswith("pac4sac.")]
    assert set(ours) == {Agent, Sac, pac4sac.PacBayesCritic, pac4sac.Pac4Sac}
    assert len(dataclasses.fields(agent.Config)) <= 32


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=lambda x: getattr(x, "__name__", x))
def test_every_method_of_the_papers_file_has_an_effect(
    owner: type[Agent], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, original, calls = outcome(), vars(owner)[name], []

    def altered(self: Agent, *arguments: Any, **named: Any) -> Any:
        calls.append(name)
        result = original(self, *arguments, **named)
        if not isinstance(result, dict):
            return changed(result)
        inherited = getattr(super(owner, self), name)(*arguments, **named)
        own = {key: value for key, value in result.items() if key not in inherited}
        return result | changed(own)

    monkeypatch.setattr(owner, name, altered)
    after = outcome()
    assert calls, f"{owner.__name__}.{name} is never called"
    assert before is not None
    assert after is None or any(not torch.equal(before[key], after[key]) for key in before)
