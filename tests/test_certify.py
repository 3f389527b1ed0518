"""`pac4sac certify` from a trained run to its page."""

import dataclasses
import itertools
import json
import re
import shutil

import numpy as np
import pytest
import safetensors.torch
import tiny_experiments
import torch
from figure_layout import layout_faults
from PIL import Image
from rich.console import Console
from small_cohorts import value_errors

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.certificates import stored_replay
from pac4sac.certificates.picture import certificate_figure
from pac4sac.certificates.returns import RewardRange, certify_returns
from pac4sac.cli.certificate_page import show
from pac4sac.cli.main import main
from pac4sac.runs.reading import sealed
from pac4sac.runs.statistics import Estimate
from pac4sac.training.checkpoint import Checkpoint
from pac4sac.training.trained_agent import load

EPISODES = 8
QUICK = {"gamma": 0.8}  # short memory, short episodes


@pytest.fixture(scope="module")
def experiments(tmp_path_factory):
    root = tmp_path_factory.mktemp("certify")
    for algo in ("pac4sac", "sac", "ddpg"):
        tiny_experiments.train(root / algo, algo, settings=QUICK, seeds=(0, 1), evaluate_every=0)
    return root


@pytest.fixture(scope="module")
def certificate(experiments):
    return pac4sac.certify(experiments / "pac4sac" / "runs" / "pac4sac-seed1", episodes=EPISODES)


def page(certificate, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show(certificate, console)
    return console.export_text()


def test_the_page_shows_measurements_bounds_and_failing_assumptions(certificate) -> None:
    text = page(certificate)
    for expected in (
        "pac4sac-seed1 on drift",
        "Is the critic biased?",
        "How wide is a valid interval?",
        "What return is guaranteed?",
        "m_p − G",
        "along the episode",
        "McAllester, as printed",
        "the paper's final bound",
        "Theorem 1 needs N > 2 R_max² ‖Γ‖²",
        "PAC-Bayes-kl",
        "test set, by episodes",
        "vacuous",
        "certificate",
        "Assumptions that fail",
        "not independent",
        "Calibration: does m_p ± 2 √v_p cover G?",
        "after random actions",
        "empirical Bernstein",
    ):
        assert expected in " ".join(text.split()), expected
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text  # nothing is cut on a terminal of 80 characters


def test_the_summary_answers_in_words_and_full_shows_the_rest(certificate) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show(certificate, console, full=False)
    text = console.export_text()
    assert page(certificate).startswith(text.rstrip())
    assert "McAllester, as printed" not in text
    assert not set(text) & set("δγπαμεκ‖√₀²Γ")
    assert not re.search(r"m_p|v_p|\bKL\b|\bQ\b|\bG\b|rms", text)
    assert len(text.splitlines()) <= 40


def test_the_bias_is_shown_by_third_of_the_episode(certificate) -> None:
    steps = [(phase.first_step, phase.last_step) for phase in certificate.phases]
    assert [phase.name for phase in certificate.phases] == ["early", "middle", "late"]
    assert steps[0][0] == 1
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(steps))
    estimates = [Estimate(45.0, 20.0, 70.0), Estimate(1.0, -5.0, 7.0), Estimate(-4.0, -5.0, -3.0)]
    phases = [
        dataclasses.replace(phase, bias=bias)
        for phase, bias in zip(certificate.phases, estimates, strict=True)
    ]
    whole = dataclasses.replace(certificate.bias["policy"], bias=0.7, low=-1.0, high=2.4)
    hidden = dataclasses.replace(certificate, phases=phases, bias={"policy": whole})
    text = " ".join(page(hidden).split())
    assert "overestimates early in the episode and underestimates late" in text
    assert "+45 (20 to 70) overestimates" in text
    assert "-4 (-5 to -3) underestimates" in text
    assert "+0.7 (-1 to 2.4) no bias found" in text
    told = hidden.to_json()["phases"]
    assert [phase["verdict"] for phase in told] == ["overestimates", "undecided", "underestimates"]


def test_the_summary_shows_how_many_episodes_make_the_return_bound_useful(certificate) -> None:
    returns = [-150.0, -120.0, -300.0, -5.0] * 4
    few = certify_returns(returns, (-3255.0, 0.0), policy="deterministic policy")
    assert few.enough_episodes is not None
    assert few.enough_episodes > few.episodes
    enough = certify_returns(returns * few.enough_episodes, (-3255.0, 0.0))
    assert enough.betting is not None
    assert enough.betting > few.useful > few.betting
    shown = page(dataclasses.replace(certificate, returns=[few], bias={}))
    assert f"--episodes {few.enough_episodes}" in shown
    assert "--episodes" not in page(dataclasses.replace(certificate, returns=[enough], bias={}))


def test_the_picture_has_no_clipped_or_overlapping_text(certificate) -> None:
    assert layout_faults(certificate_figure(certificate)) == []


def test_large_numbers_are_not_cut(certificate) -> None:
    rows = [
        dataclasses.replace(row, n=538_712, kl=12_346.0, risk=234_567.0, value=345_678.0)
        for row in certificate.rows
    ]
    error = {
        "bias": -456_789.0,
        "low": -567_891.0,
        "high": -345_679.0,
        "rms": 678_912.0,
        "mean_return": -789_123.0,
    }
    bias = {
        name: dataclasses.replace(one, **error, steps=891_234)
        for name, one in certificate.bias.items()
    }
    text = page(dataclasses.replace(certificate, rows=rows, bias=bias))
    for shown in (
        "538,712",
        "12,346",
        "234,567",
        "345,678",
        "-456,789",
        "678,912",
        "-789,123",
        "891,234",
    ):
        assert shown in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_bounds_on_the_replay_buffer_use_the_transitions_of_the_checkpoint(
    certificate, experiments
) -> None:
    on_replay = [row for row in certificate.rows if row.data == "replay"]
    assert {row.n for row in on_replay} == {tiny_experiments.STEPS} == {certificate.replay_tuples}
    trained = load(experiments / "pac4sac" / "runs" / "pac4sac-seed1")
    kl = trained.agent.divergence(
        trained.state, trained.agent.params(trained.state, "critic")
    ).sum()
    assert all(row.kl == pytest.approx(float(kl)) for row in on_replay)
    assert all(row.fails for row in on_replay)
    other = stored_replay.stored_replay(
        experiments / "pac4sac" / "runs" / "pac4sac-seed0" / "agent.safetensors", trained
    )
    newest = checkpointed(tiny_experiments.newest(experiments / "pac4sac"))
    # of the run, wherever its file lies
    np.testing.assert_array_equal(other.batch.s[0], newest["replay"][1, :, :3])


def checkpointed(folder):
    return safetensors.torch.load_file(folder / "learner.safetensors")


def test_json_and_picture_agree(certificate, tmp_path) -> None:
    written = certificate.write(tmp_path / "new")
    about = json.loads(written[0].read_text())
    assert about["format"] == "pac4sac certificate"
    assert len(about["bounds"]) == len(certificate.rows)
    for row, told in zip(certificate.rows, about["bounds"], strict=True):
        assert (told["name"], told["says"], told["respected"]) == (
            row.name,
            row.says,
            row.respected,
        )
        assert told["delta"] == 0.05
        assert set(told["fails"]) <= set(about["assumptions_that_fail"])
    # of Theorem 1; JSON has no such number
    assert "infinite" in {told["value"] for told in about["bounds"]}
    assert about["bias"]["policy"]["verdict"] == certificate.bias["policy"].verdict
    with Image.open(written[1]) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20


def test_the_seed_determines_the_certificate(certificate, experiments) -> None:
    folder = experiments / "pac4sac" / "runs" / "pac4sac-seed1"
    assert pac4sac.certify(folder, episodes=EPISODES).to_json() == certificate.to_json()
    assert pac4sac.certify(folder, episodes=EPISODES, seed=1).bias != certificate.bias


def test_an_agent_file_alone_is_certified_without_the_bounds_on_its_replay(
    experiments, tmp_path
) -> None:
    shutil.copy(experiments / "pac4sac" / "runs" / "pac4sac-seed0" / "agent.safetensors", tmp_path)
    alone = pac4sac.certify(tmp_path / "agent.safetensors", episodes=EPISODES)
    assert {row.data for row in alone.rows} == {"fresh"}
    assert "omitted: the agent file is not in an experiment folder" in page(alone, width=200)


@pytest.mark.parametrize(("algo", "deviation"), [("sac", "Std_k[Q_k]"), ("ddpg", None)])
def test_critics_without_a_posterior_are_measured_and_certified_too(
    experiments, algo: str, deviation
) -> None:
    found = pac4sac.certify(experiments / algo / "runs" / f"{algo}-seed0", episodes=EPISODES)
    assert {row.data for row in found.rows} == {"fresh"}
    assert found.kl is None
    assert any("do not apply" in remark for remark in found.remarks)
    assert {one.deviation for one in found.calibration} == ({deviation} if deviation else set())
    assert any(row.says == "certificate" for row in found.rows)
    assert "shooting" not in found.bias
    assert "certificate" in page(found)
    found.write(experiments / algo)


def test_without_a_reward_range_observed_rewards_set_the_scale_and_returns_are_not_certified(
    certificate, experiments
) -> None:
    assert "range of this task's rewards is not known" in certificate.remarks[0]
    assert all(one.betting is None for one in certificate.returns)
    folder = experiments / "ddpg" / "runs" / "ddpg-seed0"
    given = pac4sac.certify(
        folder, episodes=EPISODES, reward_range=(-20, 1), return_range=(-500, 30)
    )
    assert (given.rewards.low, given.rewards.high) == (-20, 1)
    assert all(-500 < one.betting < one.mean.value for one in given.returns)
    assert given.epsilon == 21
    assert given.epsilon_value == pytest.approx(21 / 0.2 / 10)


@pytest.mark.parametrize(
    ("algo", "critics", "fault"),
    [
        ("pac4sac-thompson", 1, None),
        ("pac4sac-moving-prior", 1, "prior"),
        ("pac4sac-full-covariance", 1, "prior"),
        ("pac4sac", 2, "minimum"),
    ],
)
def test_other_posteriors_and_priors_are_certified_with_their_failing_assumptions(
    tmp_path, algo, critics, fault
) -> None:
    settings = QUICK | {"critics": critics}
    tiny_experiments.train(tmp_path / "a", algo, settings=settings, seeds=(0,), steps=135)
    found = pac4sac.certify(tmp_path / "a", episodes=EPISODES)
    assert found.kl > 0
    for row in found.rows:
        if row.data == "replay":
            assert {"prior", "minimum"} & set(row.fails) == ({fault} if fault else set())
    assert found.calibration[0].deviation == "√v_p"
    trained = load(tmp_path / "a")  # which has the first prior
    first = trained.agent.divergence(
        trained.state, trained.agent.params(trained.state, "critic")
    ).sum()
    assert (found.kl == pytest.approx(float(first))) == (fault != "prior")


@pytest.mark.parametrize(
    ("algo", "fault"), [("pac4sac-mixture", {"mixture"}), ("pac4sac-index", set())]
)
def test_the_uncertainty_of_a_mixture_is_certified_as_a_whole(
    tmp_path, algo: str, fault: set[str]
) -> None:
    settings = QUICK | {"shots": 2, "critics": 2}
    tiny_experiments.train(tmp_path / "a", algo, settings=settings, seeds=(0,), steps=135)
    found = pac4sac.certify(tmp_path / "a", episodes=EPISODES)
    trained = load(tmp_path / "a")
    assert found.kl == pytest.approx(
        float(
            trained.agent.divergence(
                trained.state, trained.agent.params(trained.state, "critic")
            ).mean()
        )
    )
    assert all(
        {"minimum", "mixture"} & set(row.fails) == fault
        for row in found.rows
        if row.data == "replay"
    )
    home = found.calibration[0]
    assert home.deviation == "√v"
    assert -1 <= home.rank_correlation <= 1
    assert "rank" in page(found)


def test_a_critic_with_a_wrong_value_is_detected(experiments, tmp_path, monkeypatch) -> None:
    trained = load(experiments / "ddpg" / "runs" / "ddpg-seed0")
    trained.agent.params(trained.state, "critic")["head.bias"].add_(1000.0)
    monkeypatch.setattr("pac4sac.certificates.certificate.load", lambda file: trained)
    found = pac4sac.certify(experiments / "ddpg" / "runs" / "ddpg-seed0", episodes=EPISODES)
    assert found.bias["policy"].verdict == "overestimates"
    assert found.bias["policy"].bias == pytest.approx(1000, rel=0.05)
    values = {row.quantity: row for row in found.rows if row.name == "test set, by episodes"}
    assert values["bounded value error"].value > 0.9
    assert "overestimates" in page(found)


def test_errors_above_the_largest_possible_error_are_clipped_on_page_and_in_json(
    experiments, monkeypatch, tmp_path
) -> None:
    folder = experiments / "ddpg" / "runs" / "ddpg-seed0"
    trained = load(folder)
    trained.agent.params(trained.state, "critic")["head.bias"].add_(2500.0)
    monkeypatch.setattr("pac4sac.certificates.certificate.load", lambda file: trained)
    found = pac4sac.certify(folder, episodes=EPISODES, reward_range=(-99, 1), out=tmp_path)
    largest = 100 / (1 - 0.8)
    for row in json.loads((tmp_path / "certificate.json").read_text())["bounds"]:
        assert row["measured"]["value"] <= row["trivial"] + 1e-9
        assert row["says"] == "vacuous" or row["quantity"] == "squared Bellman error"
        if row["quantity"] in ("value error", "absolute value error"):
            assert row["clipped"]
            assert row["measured"]["value"] == pytest.approx(row["trivial"])
    text = " ".join(page(found).split())
    assert f"errors above {largest:g} are counted as {largest:g}" in text
    assert "squares above 250,000 are counted as 250,000" in text
    assert "mean absolute error of the critic is at most" not in text
    assert "absolute error of the critic cannot be bounded better than without any data" in text


def test_limited_errors_clip_only_squares_above_the_largest() -> None:
    luck = np.random.default_rng(0)
    m, g = luck.normal(size=(2, 5, 40)) * 3
    errors = value_errors(m, luck.exponential(4, (5, 40)), g, np.ones((5, 40), bool))
    for largest in (2.0, 9.0, 1e9):
        np.testing.assert_allclose(
            errors.limited(largest).squared, np.minimum(errors.squared, largest)
        )


@pytest.mark.parametrize("each_step", [True, False])
def test_bounds_on_a_refuted_range_are_not_certificates(
    experiments, monkeypatch, each_step: bool
) -> None:
    limits = RewardRange(-39, 0.5, "so it is told", proven=False, each_step=each_step)
    monkeypatch.setattr(RewardRange, "known", lambda task: limits)
    found = pac4sac.certify(experiments / "ddpg" / "runs" / "ddpg-seed0", episodes=EPISODES)
    for row in found.rows:
        bounded = row.quantity.startswith("bounded")  # its ε is a scale, not a limit
        assert ("rewards" in row.fails) == (not bounded)
        assert bounded or row.says != "certificate"
    text = " ".join(page(found).split())
    assert (
        "outside [-39, 0.5], the assumed range of "
        + ("each step" if each_step else "an episode's mean")
        in text
    )
    assert "some rewards were outside the assumed range" in text
    assert "lie between" not in text
    assert "if rewards stayed in their range" in text
    # a step says nothing of an episode's mean
    assert all((one.betting is None) == each_step for one in found.returns)


def test_a_range_is_valid_if_rewards_exceed_it_only_by_rounding(experiments) -> None:
    limits = RewardRange(-1.1, 1, "", proven=True)
    assert limits.farthest_outside(np.float32([-1.1, 1])) is None
    assert limits.farthest_outside([0, 1.01, -1.2, -1.3]) == -1.3
    kept = pac4sac.certify(
        experiments / "ddpg" / "runs" / "ddpg-seed0", episodes=EPISODES, reward_range=(-99, 1)
    )
    (row,) = (row for row in kept.rows if row.quantity == "absolute value error")
    assert (row.fails, row.says, row.clipped) == ((), "certificate", False)
    text = " ".join(page(kept).split())
    assert (
        f"mean absolute error of the critic is at most {row.value:.3g}; values are assumed to lie between "
        "-495 and 5." in text
    )
    assert "with entropy" not in text  # DDPG knows no entropy


def test_a_return_bound_at_the_lowest_possible_return_is_vacuous(certificate) -> None:
    assert (
        "set it with --return-range"
        in " ".join(page(certificate).split()).split("Measured value error")[0]
    )
    lost, fair = ([-500.0 + gain] * 8 for gain in (0, 200))
    returns = [certify_returns(x, (-500, 1e6), policy="π") for x in (fair, lost)]
    bad = dataclasses.replace(certificate, returns=returns)
    assert [told["vacuous"] for told in bad.to_json()["returns"]] == [False, True]
    text = " ".join(page(bad).split())
    assert "no better bound than the lowest possible return of -500" in text
    assert f"vacuous {returns[0].betting:.0f} " in text  # Bernstein, betting
    assert "vacuous vacuous" in text


def test_steps_too_close_to_the_time_limit_are_not_judged(
    certificate, experiments, monkeypatch
) -> None:
    assert certificate.unjudged_steps == 0  # short episodes are played on until all can be judged
    assert "Not judged" not in page(certificate)
    folder = experiments / "ddpg" / "runs" / "ddpg-seed0"
    trained = load(folder)
    trained.state["hyper/gamma"].fill_(0.5)
    monkeypatch.setattr("pac4sac.certificates.certificate.load", lambda file: trained)
    found = pac4sac.certify(folder, episodes=16)
    assert found.unjudged_steps > 0
    # γ^6 > 0.01 > γ^7, in each episode that the time limit ended
    assert found.unjudged_steps % 6 == 0
    total = found.unjudged_steps + found.bias["policy"].steps
    assert f"Not judged: {found.unjudged_steps} of the policy's {total} steps" in " ".join(
        page(found).split()
    )


def test_an_agent_of_an_unfinished_training_is_certified_and_an_unsaved_agent_is_refused(
    certificate, experiments, tmp_path
) -> None:
    assert not any("unfinished" in remark for remark in certificate.remarks)
    root = tiny_experiments.copy(experiments / "ddpg", tmp_path / "cut")
    folder = root / "runs" / "ddpg-seed0"
    about = tiny_experiments.about(root, "ddpg-seed0") | {
        "status": "interrupted",
        "status_detail": "the time is up",
    }
    (folder / "run.json").write_text(json.dumps(sealed(about)))
    found = pac4sac.certify(folder, episodes=EPISODES)
    assert (
        "The training of this agent is unfinished (interrupted: the time is up)." in found.remarks
    )
    for file in root.rglob("agent*.safetensors"):
        file.unlink()
    for path in (root, folder):
        with pytest.raises(
            UserError, match=rf"unfinished and has not saved an agent.*`pac4sac resume {root}`"
        ):
            pac4sac.certify(path)


def test_a_run_that_ended_early_counts_only_its_own_transitions(tmp_path) -> None:
    episodes = [
        {"episode": k, "step": step, "return": 0.0, "length": 25} for k, step in enumerate((30, 55))
    ]
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in episodes))

    def saved(detail: str | None) -> Checkpoint:
        return Checkpoint(
            {"step": torch.tensor(100)},
            {},
            {"status": ["finished", "running"], "details": [detail, None]},
        )

    rows = stored_replay._own_rows(tmp_path, saved("solved at step 55"), 0, filled=60)
    # a ring of 60 whose step 100 has overwritten the first 40
    assert rows.tolist() == [w % 60 for w in range(40, 55)]
    assert len(stored_replay._own_rows(tmp_path, saved(None), 0, filled=60)) == 60
    assert len(stored_replay._own_rows(tmp_path, saved(None), 1, filled=60)) == 60


def test_the_command_prints_the_page_or_json_and_writes_both(experiments, tmp_path, capsys) -> None:
    folder = str(experiments / "sac" / "runs" / "sac-seed1")
    assert main(["certify", folder, "--episodes", "4", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "How far can the critic and the policy of" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"certificate.json", "certificate.png"}
    assert main(["certify", folder, "--episodes", "4", "--json", "--reward-range=-9,1"]) == 0
    assert json.loads(capsys.readouterr().out)["rewards"]["low"] == -9
    assert (experiments / "sac" / "runs" / "sac-seed1" / "certificate.png").is_file()


def test_certifying_a_shipped_agent_writes_nothing_into_the_package(
    experiments, tmp_path, monkeypatch
) -> None:
    package = experiments / "sac" / "runs" / "sac-seed0"
    before = {path.name for path in package.iterdir()}
    monkeypatch.setattr("pac4sac.training.agent_file.SHIPPED", package)
    monkeypatch.chdir(tmp_path)
    assert main(["certify", str(package), "--episodes", "4"]) == 0
    assert {path.name for path in package.iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"certificate.json", "certificate.png"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--episodes", "2"], "at least 4 episodes"),
        (["--delta", "1.5"], "between 0 and 1"),
        (["--seed=-1"], "seed must be 0"),
        (["--reward-range", "3"], "two numbers"),
        (["--return-range", "3,2"], "'3,2'"),
        (["--return-range=0,inf"], "two finite numbers"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(experiments, capsys, arguments, told: str) -> None:
    assert main(["certify", str(experiments / "sac" / "runs" / "sac-seed0"), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_folder_without_an_agent_is_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="no trained agent"):
        pac4sac.certify(tmp_path)
