"""Evaluation beside training, the best agent it finds, and the agent file."""

import json
import random
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_experiments import DRIFT, logs, newest, rows, train

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.training.evaluation import Episodes, evaluate
from pac4sac.training.run import Run, make_agent

ARM = "training_environments:Arm-v0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a large learning rate, so that evaluations differ."""
    options = {"evaluate_every": 40, "settings": {"lr": 0.03}, "steps": 130}
    return train(tmp_path_factory.mktemp("agents") / "x", "pac4sac", **options).folder


def test_evaluations_do_not_change_training(folder: Path, tmp_path: Path) -> None:
    undisturbed = train(
        tmp_path / "x",
        "pac4sac",
        settings={"lr": 0.03},
        steps=130,
        evaluate_every=0,
        evaluation_episodes=0,
    ).folder
    for run in ("pac4sac-seed0", "pac4sac-seed1"):
        expected = logs(undisturbed, run)
        assert set(expected) == {"episodes.jsonl", "metrics.jsonl"}
        assert {name: logs(folder, run)[name] for name in expected} == expected
        agent = Path("runs") / run / "agent.safetensors"
        assert (folder / agent).read_bytes() == (undisturbed / agent).read_bytes()
    ours, theirs = (
        load_file(newest(place) / "learner.safetensors") for place in (folder, undisturbed)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_both_policies_are_evaluated_on_schedule_and_once_at_the_end(folder: Path) -> None:
    evaluations = rows(folder, "pac4sac-seed0", "evaluations")
    assert [(row["step"], row["policy"]) for row in evaluations] == [
        (step, policy) for step in (40, 80, 120, 130) for policy in ("deterministic", "shooting")
    ]
    assert all(row["mean"] == np.mean(row["returns"]) for row in evaluations)
    assert len({tuple(row["returns"]) for row in evaluations}) == len(evaluations)


def test_an_evaluation_scheduled_at_the_end_is_made_once(tmp_path: Path) -> None:
    folder = train(tmp_path / "x", steps=90, evaluate_every=45).folder
    assert [row["step"] for row in rows(folder, "sac-seed0", "evaluations")] == [45, 90]


def test_without_a_time_limit_evaluation_episodes_are_cut_after_the_step_budget(
    tmp_path: Path,
) -> None:
    endless = pac4sac.Task("endless", "training_environments:EndlessDrift-v0")
    with pytest.warns(
        UserWarning,
        match=r"endless have no time limit and were cut after 70 steps.*max_episode_steps",
    ):
        folder = train(tmp_path / "x", task=endless, steps=70, bias_every=70).folder
    assert not (folder / "runs" / "sac-seed0" / "episodes.jsonl").exists()
    (evaluation,) = rows(folder, "sac-seed0", "evaluations")
    assert np.isfinite(evaluation["returns"]).all()


def test_only_runs_with_shooting_are_evaluated_with_shooting(tmp_path: Path) -> None:
    folder = train(tmp_path / "x", steps=50, settings={"shots": [1, 2]}, seeds=(0,)).folder
    assert [row["policy"] for row in rows(folder, "sac-shots=1-seed0", "evaluations")] == [
        "deterministic"
    ]
    assert [row["policy"] for row in rows(folder, "sac-shots=2-seed0", "evaluations")] == [
        "deterministic",
        "shooting",
    ]


def test_the_stored_best_weights_are_those_of_the_best_evaluation(folder: Path) -> None:
    for seed in (0, 1):
        run = folder / "runs" / f"pac4sac-seed{seed}"
        evaluations = [
            row for row in rows(folder, run.name, "evaluations") if row["policy"] == "shooting"
        ]
        best = max(evaluations, key=lambda row: row["mean"])
        kept = pac4sac.load(run / "best.safetensors")
        repeated = evaluate(
            Episodes(kept.agent, kept.state, DRIFT, [seed], 2, str(best["step"])), "shooting"
        )
        np.testing.assert_allclose(repeated[0], best["returns"], rtol=1e-4)
        others = [row for row in evaluations if row is not best]
        assert all(row["mean"] < best["mean"] for row in others)
    steps = [
        max(rows(folder, f"pac4sac-seed{seed}", "evaluations"), key=lambda r: r["mean"])["step"]
        for seed in (0, 1)
    ]
    assert min(steps) < 130  # else the test could not tell the best from the last


def test_an_evaluation_depends_on_the_run_and_the_occasion_alone(folder: Path) -> None:
    agents = [pac4sac.load(folder / "runs" / f"pac4sac-seed{seed}") for seed in (0, 1)]
    runs = [agent.run for agent in agents]
    cohort = make_agent(runs, 3, 1)
    state = cohort.initial_state([0, 1], torch.device("cpu"))
    for place, agent in enumerate(agents):
        for name in load_file(folder / "runs" / runs[place].id / "agent.safetensors"):
            state[name][place] = agent.state[name][0]
    for policy in ("deterministic", "shooting"):
        both = evaluate(Episodes(cohort, state, DRIFT, [0, 1], 3, "now"), policy)
        for place, agent in enumerate(agents):
            alone = evaluate(Episodes(agent.agent, agent.state, DRIFT, [place], 3, "now"), policy)
            np.testing.assert_allclose(alone[0], both[place], rtol=1e-4)
        assert (
            evaluate(Episodes(cohort, state, DRIFT, [0, 1], 3, "now", workers=2), policy) == both
        ).all()
        assert (evaluate(Episodes(cohort, state, DRIFT, [0, 1], 3, "then"), policy) != both).all()
        one = evaluate(Episodes(cohort, state, DRIFT, [0, 1], 3, "now", only=[1]), policy)
        assert np.isnan(one[0]).all()
        assert (one[1] == both[1]).all()


def test_an_evaluation_reports_progress_and_uses_one_thread_for_small_networks(
    folder: Path,
) -> None:
    agent, told = pac4sac.load(folder / "runs" / "pac4sac-seed0"), []

    def tell(step: int, longest: int) -> None:
        told.append((step, longest, torch.get_num_threads()))

    evaluate(Episodes(agent.agent, agent.state, DRIFT, [0], 3, "now", progress=tell), "shooting")
    steps = [step for step, _, _ in told]
    assert steps == list(range(1, len(steps) + 1))
    assert {(longest, threads) for _, longest, threads in told} == {(30, 1)}


# --- the agent file


def test_a_loaded_agent_acts_like_the_agent_in_training(folder: Path) -> None:
    states = load_file(newest(folder) / "learner.safetensors")
    observations = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    runs = [pac4sac.load(folder / "runs" / f"pac4sac-seed{seed}").run for seed in (0, 1)]
    agent = make_agent(runs, 3, 1)
    expected = agent.deterministic_action(states, observations.expand(2, -1, -1)).numpy()
    for seed in (0, 1):
        loaded = pac4sac.load(folder / "runs" / f"pac4sac-seed{seed}" / "agent.safetensors")
        for row, observation in enumerate(observations.numpy()):
            np.testing.assert_allclose(
                loaded.act(observation, shooting=False), expected[seed, row], atol=1e-6
            )
        assert loaded.shoots
        actions = {loaded.act(observation.tolist()).item() for _ in range(8)}
        assert len(actions) > 1  # by default it shoots
        assert all(-1 <= action <= 1 for action in actions)


def test_only_arrays_and_lists_of_the_right_length_are_observations(folder: Path) -> None:
    agent = pac4sac.load(folder / "runs" / "pac4sac-seed0")
    strided = np.arange(6, dtype=np.float32)[::-2]
    assert agent.act(strided, shooting=False) == agent.act([5.0, 3.0, 1.0], shooting=False)
    for wrong in (
        [1.0, 2.0],
        np.zeros(4),
        np.zeros((2, 4)),
        np.zeros((0, 3)),
        np.zeros((1, 2, 3)),
        [],
    ):
        with pytest.raises(
            UserError,
            match=r"observations of the shape \[3\], or a batch of the shape \[B, 3\], not \[",
        ):
            agent.act(wrong)
    with pytest.raises(UserError, match="observations must be arrays of numbers"):
        agent.act(["left", "right", "up"])


def test_several_observations_get_an_action_each(folder: Path) -> None:
    agent = pac4sac.load(folder / "runs" / "pac4sac-seed0")
    several = np.random.default_rng(0).normal(size=(5, 3))
    alone = [agent.act(observation, shooting=False) for observation in several]
    np.testing.assert_allclose(agent.act(several, shooting=False), alone, atol=1e-6)
    assert agent.act(several[:1], shooting=False).shape == (1, 1)
    shot = agent.act(np.tile(several[0], (6, 1)))
    assert shot.shape == (6, 1)
    assert len(np.unique(shot)) > 1  # candidates of their own in each row
    assert (shot != agent.act(np.tile(several[0], (6, 1)))).any()  # and in each call


def test_a_critic_returns_mean_and_std_and_samples_its_posterior(folder: Path) -> None:
    agent = pac4sac.load(folder / "runs" / "pac4sac-seed0")
    s, a = np.random.default_rng(1).normal(size=(4, 3)), np.array([[-1.0], [0.0], [0.5], [0.5]])
    m, v = agent.agent.mean_and_variance(
        agent.state, torch.from_numpy(s[None]).float(), torch.from_numpy(a[None]).float()
    )
    value = agent.value(s, a)
    np.testing.assert_allclose(value.mean, m[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(value.std, v[0].sqrt().numpy(), rtol=1e-5)
    one = agent.value(s[2], [0.5])
    assert one[:2] == pytest.approx((value.mean[2], value.std[2]), rel=1e-4)
    assert one.source == value.source == "posterior"
    draws = agent.sample_value(s, a, 4000, seed=3)
    assert draws.shape == (4000, 4)
    np.testing.assert_allclose(draws.mean(0), value.mean, atol=5 * value.std.max() / 4000**0.5)
    np.testing.assert_allclose(draws.std(0), value.std, rtol=0.1)
    np.testing.assert_array_equal(agent.sample_value(s, a, 4000, seed=3), draws)
    np.testing.assert_allclose(agent.sample_value(s[0], a[0], 7, seed=4).shape, (7,))
    same = agent.sample_value(s[[2, 2]], a[[2, 3]], 5)  # one critic for all pairs
    np.testing.assert_array_equal(same[:, 0], same[:, 1])
    for wrong, sentence in [
        (
            lambda: agent.value(s, a[:3]),
            "Each observation needs an action, but 4 observations were given with 3 actions",
        ),
        (lambda: agent.value(s[0], a), "one observation was given with 4 actions"),
        (
            lambda: agent.value(s[0], [0.0, 1.0]),
            r"actions of the shape \[1\], or a batch of the shape \[B, 1\], not \[2\]",
        ),
        (lambda: agent.sample_value(s, a, 0), "samples must be a whole number above 0, not 0"),
    ]:
        with pytest.raises(UserError, match=sentence):
            wrong()


def test_an_agent_acts_in_the_units_of_any_environment(tmp_path: Path) -> None:
    agent = pac4sac.load(
        train(tmp_path / "x", task=pac4sac.Task("arm", ARM), steps=50, seeds=(0,)).folder
    )
    plain = gymnasium.make(ARM)
    ours = pac4sac.make_env(agent.run.task)
    raw, vector = plain.reset(seed=0)[0], ours.reset(seed=0)[0]
    for _ in range(3):
        action = agent.act(raw)
        assert plain.action_space.contains(action)
        assert ours.action_space == plain.action_space
        np.testing.assert_array_equal(action, agent.act(vector))
        unit = agent.agent.deterministic_action(
            agent.state, torch.from_numpy(vector).view(1, 1, -1)
        ).view(2, 1)
        np.testing.assert_allclose(action, 3 + 2 * unit.numpy(), rtol=1e-6)
        value = agent.value(raw, action)
        q = agent.agent.critic(
            agent.agent.params(agent.state, "critic"),
            torch.from_numpy(vector).view(1, 1, -1),
            unit.view(1, 1, -1),
        )
        assert value.source == "critics"  # the standard deviation that `certify` measures
        q = q[0].double()
        expected = q.min().item(), q.std(1, correction=0).item()
        assert value[:2] == pytest.approx(expected, rel=1e-4)
        assert agent.sample_value(raw, action, 2).tolist() == pytest.approx([value.mean] * 2)
        assert agent.value(vector[None], action[None]).mean.shape == (1,)
        raw, vector = plain.step(action)[0], ours.step(action)[0]
        np.testing.assert_allclose(vector, [raw["angle"].item(), *raw["speed"]], rtol=1e-6)


@pytest.mark.parametrize("algo", ["sac", "ddpg", "oac", "sac-auto"])
def test_every_kind_of_agent_can_be_loaded_and_acts_in_both_ways(tmp_path: Path, algo: str) -> None:
    folder = train(tmp_path / "x", algo, steps=50, seeds=(0,)).folder
    agent = pac4sac.load(folder)
    value = agent.value([0.1, 0.2, 0.3], [0.0])
    assert (value.std is None, value.source) == {
        "ddpg": (True, None),
        "oac": (False, "critics"),
        "sac": (False, "critics"),
        "sac-auto": (False, "critics"),
    }[algo]
    for shooting in (False, True, None):
        action = agent.act([0.1, 0.2, 0.3], shooting=shooting)
        assert action.shape == (1,)
        assert abs(action.item()) <= 1


def test_a_damaged_agent_file_is_always_refused(folder: Path, tmp_path: Path) -> None:
    content = (folder / "runs" / "pac4sac-seed0" / "agent.safetensors").read_bytes()
    path, luck = tmp_path / "agent.safetensors", random.Random(0)
    for _ in range(150):
        broken = bytearray(content)
        broken[luck.randrange(len(content))] ^= luck.randrange(1, 256)
        path.write_bytes(broken)
        with pytest.raises(
            UserError, match=r"agent\.safetensors is (not an agent file of pac4sac|damaged)"
        ):
            pac4sac.load(path)
        path.write_bytes(content[: luck.randrange(len(content))])
        with pytest.raises(UserError, match=r"agent\.safetensors is not an agent file of pac4sac"):
            pac4sac.load(path)


def test_an_incomplete_agent_file_is_refused(folder: Path, tmp_path: Path) -> None:
    from pac4sac.training.agent_file import FORMAT, checksum, read_agent_file

    about, tensors = read_agent_file(folder / "runs" / "pac4sac-seed0" / "agent.safetensors")

    def saved(about: dict[str, object], tensors: dict[str, torch.Tensor], version: int = 1) -> Path:
        label = {"version": version, "about": about, "sha256": checksum(about, tensors)}
        save_file(tensors, tmp_path / "agent.safetensors", {FORMAT: json.dumps(label)})
        return tmp_path / "agent.safetensors"

    assert pac4sac.load(saved(about, tensors)).run.seed == 0
    without = saved(about, {name: t for name, t in tensors.items() if name != "hyper/shots"})
    # an older file
    assert pac4sac.load(without).state["hyper/shots"].item() == about["run"]["config"]["shots"]
    for part in ("actor", "log_alpha"):
        with pytest.raises(UserError, match=f"lacks {part}"):
            pac4sac.load(saved(about, {name: t for name, t in tensors.items() if name != part}))
    with pytest.raises(UserError, match="another structure"):
        pac4sac.load(saved(about | {"observation_size": 4}, tensors))
    with pytest.raises(UserError, match="has no valid observation_size"):
        pac4sac.load(saved({"run": {}}, tensors))
    with pytest.raises(UserError, match="version 2, but this version of pac4sac reads version 1"):
        pac4sac.load(saved(about, tensors, version=2))


def test_the_best_agent_of_several_runs_is_loaded_with_a_warning(
    folder: Path, tmp_path: Path
) -> None:
    means = {
        run: rows(folder, run, "evaluations")[-1]["mean"]
        for run in ("pac4sac-seed0", "pac4sac-seed1")
    }
    best = max(means, key=means.__getitem__)
    with pytest.warns(UserWarning, match=best):
        agent = pac4sac.load(folder)
    assert agent.run.id == best
    assert best in repr(agent)
    shown = repr(pac4sac.Result(folder, complete=True)).splitlines()
    assert [best in line for line in shown[1:]] == [run == best for run in means]
    assert all(len(line) < 120 for line in shown[1:])
    assert repr(pac4sac.Task("x", "y", steps=5)) == "Task('x', env_id='y', steps=5)"
    with pytest.raises(UserError, match="has no trained agent"):
        pac4sac.load(tmp_path)


def test_predict_has_the_signature_of_stable_baselines3(folder: Path) -> None:
    agent = pac4sac.load(folder / "runs" / "pac4sac-seed0")
    several = np.random.default_rng(2).normal(size=(4, 3))
    actions, state = agent.predict(several, deterministic=True)
    assert state is None
    np.testing.assert_array_equal(actions, agent.act(several, shooting=False))
    drawn = [agent.predict(several[0])[0] for _ in range(20)]  # from the policy, as SB3's default
    assert drawn[0].shape == (1,)
    assert len(np.unique(drawn)) == 20
    assert agent.predict(several, "kept", [True] * 4)[1] == "kept"


def test_evaluate_in_python_and_on_the_command_line_agree(folder: Path) -> None:
    path = folder / "runs" / "pac4sac-seed0"
    found = pac4sac.evaluate(path, episodes=3, seed=4)
    assert (found.run, found.policy, found.returns.shape) == ("pac4sac-seed0", "shooting", (3,))
    assert found.mean == found.returns.mean()
    assert found.std == found.returns.std(ddof=1)
    agent = pac4sac.load(path)
    again = pac4sac.evaluate(agent, agent.run.task, episodes=3, seed=4)
    np.testing.assert_array_equal(again.returns, found.returns)
    assert pac4sac.evaluate(agent, episodes=3, shooting=False).policy == "deterministic"
    with pytest.raises(UserError, match="Pendulum-v1 has 3 and 1"):
        pac4sac.evaluate("half-cheetah", "Pendulum-v1")


def test_a_run_reads_back_from_its_description(folder: Path) -> None:
    run = pac4sac.load(folder / "runs" / "pac4sac-seed1").run
    assert Run.from_description(json.loads(json.dumps(run.describe()))) == run


@pytest.mark.parametrize(
    ("returns", "end"),
    [
        ([1.0, 3.0], "2.0 ± 1.4 in 2 episodes)"),
        ([3.0], "policy: 3.0 in one episode)"),
        ([], "policy: failed)"),
    ],
)
def test_an_evaluation_of_one_episode_shows_no_std(returns: list[float], end: str) -> None:
    shown = repr(pac4sac.Evaluation("sac-seed0", "x", "deterministic", np.array(returns)))
    assert shown.startswith("Evaluation(sac-seed0 on x, deterministic policy: ")
    assert shown.endswith(end)
