"""Flags of other libraries. Flags with the same meaning as ours are accepted; for others, an error
gives advice."""

import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.known_names import OPTIONS, SETTINGS, answer_on_option, answer_on_setting
from pac4sac.cli.arguments import FLAG_NAMES
from pac4sac.cli.compare import Compare
from pac4sac.cli.train import Train

COMMANDS: dict[str, type[Any]] = {"train": Train, "compare": Compare}
TASK = "--task"  # flag of other libraries; here the task is positional


def with_our_flags(argv: Sequence[str]) -> list[str]:
    """Return the arguments of a command with flags of other libraries renamed to ours.

    Raises:
        UserError: If a flag is a setting, or a flag of another library without an equivalent.
    """
    if not argv or argv[0] not in COMMANDS:
        return list(argv)
    own = {FLAG_NAMES.get(f.name, f.name) for f in fields(COMMANDS[argv[0]])}
    words = list(chain(*(_in_our_words(*pair, own) for pair in pairwise([*argv, ""]))))
    if TASK in words[:-1]:
        # moved to the front, because the parser would read it as a setting after --set
        place = words.index(TASK)
        task = words[place + 1]
        del words[place : place + 2]
        words.insert(1, task)
    return words


def _in_our_words(word: str, following: str, own: set[str]) -> list[str]:
    """Return the words that replace a word of a command; a flag of another library is renamed.

    Args:
        word: A flag, perhaps with a value after "=", or another word.
        following: The word after the flag, which may be its value.
        own: Names of the flags of the command.
    """
    flag, equals, value = word.partition("=")
    name = flag.removeprefix("--").replace("-", "_")
    if not flag.startswith("--") or name.removeprefix("no_") in own - {"task"}:
        return [word]
    ours = OPTIONS[name].ours if name in OPTIONS else name
    if ours in own:
        return [f"--{ours.replace('_', '-')}", *([value] if equals else [])]
    if advice := _advice_on(name, value if equals else following):
        raise UserError(f"Unknown option {flag}; {advice}.")
    return [word]


def _advice_on(name: str, value: str) -> str:
    """Return what to use instead of a flag of another library; empty if it is not known."""
    if advice := answer_on_option(name):
        return advice
    if name in SETTINGS or name in _shipped_settings():
        return answer_on_setting(name, "" if value.startswith("--") else value)
    return ""


def _shipped_settings() -> set[str]:
    """Return the names of all settings of shipped algorithms."""
    listed = json.loads(Path(__file__).with_name("listed.json").read_text(encoding="utf-8"))
    return {
        line.split("\t")[0].rstrip("*")
        for name, lines in listed.items()
        if name.startswith("settings of ")
        for line in lines
    }
