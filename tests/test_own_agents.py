"""Agents of one's own: what `pac4sac check` finds, and that training tells the same in
sentences."""

import re
from pathlib import Path

import pytest
import tiny_experiments as tiny

import pac4sac
from pac4sac.agents import api
from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.training.checks import examine

PLACE = r"In \w+, line \d+ of wrong_agents.py: "
MISTAKES = {
    "ForgottenConfig": PLACE + "The agent has no per-run setting 'beta'; declare it with per_run",
    "NoStream": PLACE
    + "Unknown random stream 'smoothing'; declared streams: replay, target, actor",
    "OneLossForAll": r"In OneLossForAll, the loss of the actor has the shape \[\], but it must have the shape \[\d\], with one number per run",
    "LogsTheBatch": r"In LogsTheBatch, what it logs as entropy has the shape \[\d, \d\], but it must have the shape \[\d\]",
    "LogsNothing": r"logged\(\) of LogsNothing includes surprise, but no loss reports it",
    "LogsUnnamed": r"A loss of LogsUnnamed reports surprise, but logged\(\) does not include",
    "StuckActor": "The actor does not change in an update",
    "RootOfZero": "The loss of the critic or its gradient is not finite",
    "DrawsByItself": r"Learning gave different numbers the second time: draw random numbers from a stream that update",
    "ActsByChance": r"Acting gave different numbers the second time: .* from a stream that behaviour_streams",
    "NormalisesOverRuns": "A run learned differently alone than in a cohort of three .*must not include the first axis",
    "ReadsTheFirstRun": r"read as Hyper\(state\).name, not self.config.name",
    "Branches": PLACE + r".*torch.where instead of `if` on values, and do not call \.item\(\)",
    "Forgets": "An agent loaded from its file acts differently",
    "TooFar": r"behaviour returns actions outside \[-1, 1\]",
    "Flat": r"deterministic_action returns the shape \[3, 8\], but must return \[R, B, da\], here \[3, 4, 2\]",
    "NoTargetNetwork": r"with_target refers to policy, but networks\(\) returns critic, actor",
    "DelayedByNobody": r"delayed refers to the setting patience, which must be declared with per_run",
}
TOLD_IN_TRAINING = ("ForgottenConfig", "NoStream", "OneLossForAll", "LogsTheBatch", "LogsNothing")


@pytest.fixture(autouse=True)
def consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAC4SAC_TRUST", "wrong_agents")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_with_a_fix(name: str) -> None:
    first = next(
        filter(None, (examination.problem for examination in examine(f"wrong_agents:{name}")))
    )
    assert re.search(MISTAKES[name], first)


def test_an_agent_without_a_mistake_passes() -> None:
    examinations = list(examine("pac4sac"))
    assert not [examination for examination in examinations if examination.problem]
    assert len(examinations) == 8


def test_check_names_the_problem_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAC4SAC_TRUST")  # naming it is consent
    assert main(["check", "wrong_agents:Noisy"]) == 0
    said = capsys.readouterr().out
    assert "spread (per run)" in said
    assert "wrong_agents:Noisy can be trained." in said
    assert main(["check", "wrong_agents:TooFar"]) == 1
    said = capsys.readouterr().out
    assert "ok    networks" in said
    assert "FAIL  acting" in said
    assert "wrong_agents:TooFar cannot be trained yet" in said


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "BareSetting",
            "BareConfig has beta without allowed values and a help text; declare each setting as beta: ",
        ),
        (
            "Undecorated",
            "UndecoratedConfig is not a dataclass; put @dataclass(frozen=True, kw_only=True) "
            "above the class.",
        ),
        ("Absent", "could not be imported"),
    ],
)
def test_an_invalid_agent_exits_with_2(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"wrong_agents:{name}"]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", TOLD_IN_TRAINING)
def test_training_reports_the_same_mistake_in_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=MISTAKES[name].removeprefix(PLACE)):
        tiny.train(
            tmp_path / "x", f"wrong_agents:{name}", seeds=(0,), settings={"warmup": 9}, steps=12
        )


def test_all_imports_of_agents_are_in_agents_api() -> None:
    assert {
        "Agent",
        "AgentConfig",
        "per_run",
        "structural",
        "Hyper",
        "Stream",
        "Critic",
        "Sac",
    } <= set(api.__all__)
    assert all(hasattr(api, name) for name in api.__all__)
    assert api.Agent is pac4sac.Agent
