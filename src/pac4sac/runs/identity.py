"""The identity of a run: a checksum of facts that were stored when it was trained."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds

LARGEST_SEED = 2**64 - 1  # that a checkpoint can store
DESCRIBED = {"task": dict, "algo": str, "preset": str, "seed": int, "config": dict, "label": str}
# Two runs that agree in these give the same result; their names and their machine do not count.
FACTS = ("task", "algo", "revision", "seed", "config")
# Runs without one of these do not store it.
FURTHER_FACTS = ("started_from", "code", "simulators", "earlier_code")


def identity(about: Mapping[str, Any]) -> str:
    """Return a checksum of all that decides the result of a run, from its stored description.

    Today's defaults are never consulted, so settings can be added, changed and removed without
    an effect on runs that were stored before.
    """
    facts = {name: about.get(name) for name in FACTS}
    facts |= {name: about[name] for name in FURTHER_FACTS if about.get(name)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def checkpoint_facts(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a description that the tensors of a checkpoint depend on.

    A run may be continued with more steps, or by other code if the user wants that.
    """
    task = {name: value for name, value in about["task"].items() if name != "steps"}
    facts = {name: about[name] for name in ("run", "algo", "seed", "config")}
    return facts | {"task": task, "started_from": about.get("started_from")}


def check_description(about: Any, what: str) -> dict[str, Any]:
    """Return the description of a run if it is whole.

    Raises:
        UserError: If a part is missing or of the wrong kind.
    """
    check_kinds(about, DESCRIBED, what)
    check_kinds(about["task"], {"name": str, "env_id": str}, f"{what}: its task")
    if not 0 <= about["seed"] <= LARGEST_SEED:
        raise UserError(f"{what} has an invalid seed: {about['seed']}.")
    return dict(about)


def code_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe how the code that trained a run differs from other code, or return nothing.

    Both have the entries revision, code and simulators of a run's description.
    """
    changes = [_revision_change(before, after), _source_change(before, after)]
    changes += _simulator_changes(before, after)
    return "; ".join(filter(None, changes))


def _revision_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe a change of the algorithm's revision, or return nothing."""
    old, new = str(before.get("revision", 1)), str(after.get("revision", 1))
    return "" if old == new else _change("the algorithm", "revision", old, new)


def _source_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe which modules have another checksum, or return nothing."""
    old, new = before.get("code") or {}, after.get("code") or {}
    edited = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return f"the source of {' and '.join(edited)} was edited" if edited else ""


def _simulator_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describe each simulator that has another version, unless one side has recorded none."""
    old, new = before.get("simulators") or {}, after.get("simulators") or {}
    if not old or not new:
        return []
    versions = {name: (old.get(name, "none"), new.get(name, "none")) for name in {*old, *new}}
    changed = sorted((name, *pair) for name, pair in versions.items() if pair[0] != pair[1])
    return [_change(name, "version", was, now) for name, was, now in changed]


def _change(what: str, number: str, before: str, after: str) -> str:
    """Describe a change of a revision or a version."""
    return f"{what} had {number} {before} and now has {after}"
