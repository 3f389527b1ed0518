"""The identity of a run: a checksum of facts that were stored when it was trained."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import Kinds, check_if_there, check_kinds

LARGEST_SEED = 2**64 - 1  # largest seed that a checkpoint can store
DESCRIBED = {"task": dict, "algo": str, "preset": str, "seed": int, "config": dict, "label": str}
# Runs that agree in these facts give the same result; names and machine do not count.
FACTS = ("task", "algo", "revision", "seed", "config")
# Facts that are stored only if the run has them.
FURTHER_KINDS: Kinds = {
    "given": dict,
    "given_task": dict,
    "revision": int | None,
    "started_from": str | None,
    "code": dict,
    "simulators": dict,
    "earlier_code": list,
}
FURTHER_FACTS = ("started_from", "code", "simulators", "earlier_code")


def identity(about: Mapping[str, Any]) -> str:
    """Return a checksum of all stored facts that determine the result of a run.

    Current defaults are never used, so adding, changing or removing settings does not affect stored
    runs.
    """
    facts = {name: about.get(name) for name in FACTS}
    facts |= {name: about[name] for name in FURTHER_FACTS if about.get(name)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def checkpoint_facts(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a description that the tensors of a checkpoint depend on.

    A run can be continued with more steps or, on request, by another version of the code.
    """
    task = {name: value for name, value in about["task"].items() if name != "steps"}
    facts = {name: about[name] for name in ("run", "algo", "seed", "config")}
    return facts | {"task": task, "started_from": about.get("started_from")}


def check_description(about: Any, what: str) -> dict[str, Any]:
    """Return the description of a run after a check that it is complete.

    Raises:
        UserError: If an entry is missing or has the wrong type.
    """
    check_kinds(about, DESCRIBED, what)
    check_if_there(about, FURTHER_KINDS, what)
    check_kinds(about["task"], {"name": str, "env_id": str}, f"{what}: its task")
    if not 0 <= about["seed"] <= LARGEST_SEED:
        raise UserError(f"{what} has an invalid seed: {about['seed']}.")
    return dict(about)


def code_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe the differences between the code that trained a run and other code; "" if there are
    none.

    Both mappings have the entries revision, code and simulators of a run's description.
    """
    changes = [_revision_change(before, after), _source_change(before, after)]
    changes += _simulator_changes(before, after)
    return "; ".join(filter(None, changes))


def _revision_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe a change of the algorithm's revision; "" without a change."""
    old, new = str(before.get("revision", 1)), str(after.get("revision", 1))
    return "" if old == new else _change("the algorithm", "revision", old, new)


def _source_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe the modules with another checksum; "" if there are none."""
    old, new = before.get("code") or {}, after.get("code") or {}
    edited = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return f"the source of {' and '.join(edited)} was edited" if edited else ""


def _simulator_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describe each simulator with another version, unless one side did not record it."""
    old, new = before.get("simulators") or {}, after.get("simulators") or {}
    if not old or not new:
        return []
    versions = {name: (old.get(name, "none"), new.get(name, "none")) for name in {*old, *new}}
    changed = sorted((name, *pair) for name, pair in versions.items() if pair[0] != pair[1])
    return [_change(name, "version", was, now) for name, was, now in changed]


def _change(what: str, number: str, before: str, after: str) -> str:
    """Describe a change of a revision or a version."""
    return f"{what} had {number} {before} and now has {after}"
