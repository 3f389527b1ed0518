"""What a cohort does in lockstep, and what happens to the others when one of its runs goes
wrong."""

import contextlib
import dataclasses
import hashlib
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_agents
from safetensors.torch import load_file
from tiny_experiments import DRIFT, STEPS, about, contents, logs, newest, rows, same, train

import pac4sac
from pac4sac.agents.sac import Sac
from pac4sac.agents.tape import BLOCK, Stream, Tape
from pac4sac.base.errors import UserError
from pac4sac.runs.seeds import seed_list
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.training.evaluation import evaluation_seed
from pac4sac.training.run import settings_grid

FRAGILE, WILD = "training_agents:Fragile", "training_agents:Wild"
ENDLESS = dataclasses.replace(DRIFT, env_kwargs={})  # no episode ends but by the time limit


def replay(folder: Path) -> np.ndarray:
    """[R, steps, s s s a r s′ s′ s′ terminated] of the last checkpoint."""
    return load_file(newest(folder) / "learner.safetensors")["replay"].numpy()


# --- isolation of failure


@pytest.mark.parametrize(
    ("algo", "cause"),
    [(FRAGILE, "non-finite critic gradient at step 120"), (WILD, "non-finite action at step 120")],
)
def test_a_run_with_nan_is_frozen_and_does_not_affect_other_runs(
    tmp_path: Path, algo: str, cause: str
) -> None:
    bad = train(tmp_path / "bad", algo, settings={"breaks_at": [999999, 120]}, steps=170)
    good = train(tmp_path / "good", algo, settings={"breaks_at": [999999, 999998]}, steps=170)
    assert bad.complete
    name = algo.replace(":", ".")
    for seed in (0, 1):
        untouched = f"{name}-breaks_at=999999-seed{seed}"
        assert logs(bad.folder, untouched) == logs(good.folder, untouched)
        assert about(bad.folder, untouched)["status"] == "finished"
        victim = about(bad.folder, f"{name}-breaks_at=120-seed{seed}")
        assert (victim["status"], victim["status_detail"]) == ("diverged", cause)
        assert all(row["step"] <= 120 for row in rows(bad.folder, victim["run"], "episodes"))
    states = [load_file(newest(result.folder) / "learner.safetensors") for result in (bad, good)]
    for tensor_name, tensor in states[0].items():
        if tensor_name not in ("metrics", "step", "update") and not tensor_name.startswith(
            "hyper/"
        ):
            assert torch.equal(tensor[:2], states[1][tensor_name][:2]), tensor_name
    assert all(
        tensor.isfinite().all()
        for name, tensor in states[0].items()
        if name.startswith(("critic", "actor/"))
    )


def test_a_huge_learning_rate_ends_only_its_run(tmp_path: Path) -> None:
    bad = train(tmp_path / "bad", settings={"lr": [0.001, 1e30]}, seeds=(0,), steps=90)
    good = train(tmp_path / "good", settings={"lr": [0.001, 0.002]}, seeds=(0,), steps=90)
    assert logs(bad.folder, "sac-lr=0.001-seed0") == logs(good.folder, "sac-lr=0.001-seed0")
    assert about(bad.folder, "sac-lr=1e+30-seed0")["status"] == "diverged"


@pytest.mark.parametrize("steps", [100, 101])
def test_a_run_that_diverges_in_the_last_steps_is_not_called_finished(
    tmp_path: Path, steps: int
) -> None:
    options = {"log_every": 1000, "evaluate_every": 0, "task": ENDLESS, "steps": steps}
    result = train(tmp_path / "x", FRAGILE, settings={"breaks_at": steps - 1}, **options)
    assert {(run.status, run.status_detail) for run in result.runs} == {
        ("diverged", f"non-finite critic gradient at step {steps - 1}")
    }
    assert not list(result.folder.rglob("evaluations.jsonl"))


def test_an_environment_that_raises_fails_only_its_run(tmp_path: Path) -> None:
    doomed = dataclasses.replace(
        ENDLESS, env_kwargs={"victim": simulator_seed(1, "train", 2), "at": 7}
    )
    options = {"seeds": (0, 1, 2), "steps": 110, "evaluate_every": 0}
    good = train(tmp_path / "good", task=ENDLESS, **options)
    for workers in (0, 2):
        bad = train(tmp_path / f"bad{workers}", task=doomed, workers=workers, **options)
        for run in ("sac-seed0", "sac-seed2"):
            assert logs(bad.folder, run) == logs(good.folder, run)
            assert about(bad.folder, run)["status"] == "finished"
        victim = about(bad.folder, "sac-seed1")
        assert victim["status"] == "failed"
        assert (
            "ValueError in step 7 of episode 2: the robot left the world" in victim["status_detail"]
        )
        assert len(rows(bad.folder, "sac-seed1", "episodes")) == 2


def test_an_environment_that_raises_in_an_evaluation_loses_only_that_result(tmp_path: Path) -> None:
    victim = simulator_seed(evaluation_seed(1, str(STEPS), 0), "evaluate", 1)
    task = dataclasses.replace(ENDLESS, env_kwargs={"victim": victim, "at": 3})
    result = train(tmp_path / "x", task=task, evaluate_every=0)
    assert [run.status for run in result.runs] == ["finished", "finished"]
    (row,) = rows(result.folder, "sac-seed1", "evaluations")
    assert row["mean"] is None
    assert row["returns"][0] is None
    assert math.isfinite(row["returns"][1])
    (row,) = rows(result.folder, "sac-seed0", "evaluations")
    assert all(map(math.isfinite, row["returns"]))


# --- the order of a step


def test_update_t_uses_only_transitions_before_t(tmp_path: Path) -> None:
    for workers in (0, 2):
        training_agents.RecordsReplaySize.seen = []
        options = {"workers": workers, "steps": 70, "evaluate_every": 0, "evaluation_episodes": 0}
        train(
            tmp_path / str(workers),
            "training_agents:RecordsReplaySize",
            settings={"updates_per_step": 2},
            **options,
        )
        assert training_agents.RecordsReplaySize.seen == [
            (step, step) for step in range(40, 70) for _ in range(2)
        ]


def test_the_number_of_workers_does_not_change_any_byte(tmp_path: Path) -> None:
    options = {"seeds": (0, 1, 2), "steps": 110, "evaluate_every": 0}
    folders = [
        train(tmp_path / str(workers), workers=workers, **options).folder for workers in (0, 1, 2)
    ]
    assert same(folders[1], folders[0])
    assert same(folders[2], folders[0])


def test_each_run_has_its_own_warm_up(tmp_path: Path) -> None:
    options = {"log_every": 10, "steps": 100, "evaluate_every": 0}
    folder = train(tmp_path / "x", settings={"warmup": [20, 80]}, seeds=(5,), **options).folder
    assert rows(folder, "sac-warmup=20-seed5", "metrics")[0]["step"] == 30
    assert rows(folder, "sac-warmup=80-seed5", "metrics")[0]["step"] == 90
    tape = Tape([5], {"warmup": Stream((1,), uniform=True)}, torch.device("cpu"))
    blocks = []
    for position in (0, BLOCK):
        tape.seek(position)
        blocks.append(tape.blocks["warmup"][0].clone())
    uniform = (2 * torch.cat(blocks) - 1).numpy()
    actions = replay(folder)[:, :, 3:4]
    assert (actions[0, :20] == uniform[:20]).all()
    assert (actions[1, :80] == uniform[:80]).all()
    assert (actions[0, 20:80] != uniform[20:80]).all()


def test_swept_runs_equal_those_trained_alone(tmp_path: Path) -> None:
    options = {"steps": 90, "evaluate_every": 0}
    folder = train(tmp_path / "swept", settings={"alpha": [0.1, 0.5]}, **options).folder
    assert len(list((folder / "cohorts").iterdir())) == 1
    together = load_file(newest(folder) / "learner.safetensors")
    for place, alpha, seed in ((1, 0.1, 1), (2, 0.5, 0)):
        lone = train(tmp_path / f"{alpha}", settings={"alpha": alpha}, seeds=seed, **options).folder
        alone = load_file(newest(lone) / "learner.safetensors")
        for tensor in ("critic", "actor", "critic/target", "replay"):
            torch.testing.assert_close(
                together[tensor][place : place + 1], alone[tensor], rtol=1e-3, atol=1e-4
            )
        swept, single = (
            rows(folder, f"sac-alpha={alpha}-seed{seed}", "episodes"),
            rows(lone, f"sac-seed{seed}", "episodes"),
        )
        untaught = [row for row in swept if row["step"] <= 40]
        assert untaught
        assert single[: len(untaught)] == untaught
        assert [row["step"] for row in single] == [row["step"] for row in swept]


def test_across_a_time_limit_the_stored_next_observation_is_the_true_one(tmp_path: Path) -> None:
    steps = np.arange(100)
    data = replay(
        train(tmp_path / "x", task=ENDLESS, steps=len(steps), evaluation_episodes=0).folder
    )
    s, s2, terminated = data[..., :3], data[..., 5:8], data[..., 8]
    assert (s[..., 2] == steps % 30).all()
    assert (s2[..., 2] == steps % 30 + 1).all()  # 30 at the limit, never the 0 after the reset
    assert not terminated.any()
    within = steps[:-1] % 30 != 29
    assert (s2[:, :-1][:, within] == s[:, 1:][:, within]).all()


def test_terminations_are_stored_as_terminated(tmp_path: Path) -> None:
    folder = train(tmp_path / "x", steps=100, evaluation_episodes=0).folder
    for run, data in enumerate(replay(folder)):
        terminated, over_the_cliff = data[:, 8], data[:, 6] > DRIFT.env_kwargs["cliff"]
        assert (terminated == over_the_cliff).all()
        early = [
            row["step"] - 1
            for row in rows(folder, f"sac-seed{run}", "episodes")
            if row["length"] < 30
        ]
        assert early
        assert terminated[early].all()


# --- ends and beginnings


def test_runs_stop_when_solved_and_are_evaluated(tmp_path: Path) -> None:
    free = train(tmp_path / "free", task=ENDLESS, evaluate_every=0).folder
    worst = {
        seed: min(row["return"] for row in rows(free, f"sac-seed{seed}", "episodes")[:5])
        for seed in (0, 1)
    }
    first, second = sorted(worst, key=lambda seed: -worst[seed])
    task = dataclasses.replace(ENDLESS, r_limit=(worst[first] + worst[second]) / 2)
    result = train(tmp_path / "x", task=task, stop_when_solved=True, evaluate_every=0)
    solved = about(result.folder, f"sac-seed{first}")
    assert (solved["status"], solved["status_detail"]) == ("finished", "solved at step 150")
    assert len(rows(result.folder, f"sac-seed{first}", "episodes")) == 5
    updates = load_file(newest(result.folder) / "learner.safetensors")["critic/count"].tolist()
    assert updates[first] == 150 - 40 < updates[second]  # it learns no more
    going_on = rows(free, f"sac-seed{second}", "episodes")
    assert rows(result.folder, f"sac-seed{second}", "episodes") == going_on
    assert all(len(rows(result.folder, f"sac-seed{seed}", "evaluations")) == 1 for seed in (0, 1))
    before = contents(result.folder)
    assert pac4sac.resume(result.folder).complete
    assert contents(result.folder) == before


def test_when_all_are_solved_it_ends_early_with_a_final_evaluation(tmp_path: Path) -> None:
    task = dataclasses.replace(ENDLESS, r_limit=-1e9)
    result = train(tmp_path / "x", task=task, stop_when_solved=True, evaluate_every=0)
    assert result.complete
    assert newest(result.folder).name == "step-000000150"
    assert [row["step"] for row in rows(result.folder, "sac-seed1", "evaluations")] == [150]
    assert pac4sac.resume(result.folder, steps=1000).complete
    assert newest(result.folder).name == "step-000000150"


def test_training_starts_from_the_weights_of_another_agent_and_its_targets_equal_them(
    tmp_path: Path,
) -> None:
    source = train(tmp_path / "source", steps=90, seeds=(3,)).folder
    # Nothing is learnt in a first step, so that the weights can be seen.
    folder = train(tmp_path / "x", steps=1, start_from=str(source), evaluation_episodes=0).folder
    trained = load_file(source / "runs" / "sac-seed3" / "agent.safetensors")
    begun = load_file(newest(folder) / "learner.safetensors")
    for run in (0, 1):
        for name in ("critic", "actor"):
            assert torch.equal(begun[name][run], trained[name][0])
        assert torch.equal(begun["critic/target"][run], trained["critic"][0])
    assert not begun["critic/first_moment"].any()


def test_a_run_that_started_from_an_agent_is_another_run_than_one_from_scratch(
    tmp_path: Path,
) -> None:
    begin = {"steps": 1, "seeds": (3,), "evaluation_episodes": 0}
    scratch = train(tmp_path / "scratch", **begin)
    agent = scratch.folder / "runs" / "sac-seed3" / "agent.safetensors"
    sha256 = hashlib.sha256(agent.read_bytes()).hexdigest()
    moved = shutil.copy(agent, tmp_path / "elsewhere.safetensors")
    (one,), (again,) = (
        train(tmp_path / f"from-{k}", start_from=str(k), **begin).runs for k in (agent, moved)
    )
    assert one.run == f"sac-from-{sha256[:12]}-seed3"
    assert one.started_from == sha256[:12]
    # the bytes count, not the place
    assert again.identity == one.identity != scratch.runs[0].identity
    assert pac4sac.load(one.folder).run.identity == one.identity
    assert "started_from" not in about(scratch.folder, "sac-seed3")


def test_training_refuses_a_starting_agent_that_has_changed(tmp_path: Path) -> None:
    source, other = (
        train(tmp_path / f"{seed}", steps=1, seeds=(seed,), evaluation_episodes=0)
        for seed in (3, 4)
    )
    agent = source.folder / "runs" / "sac-seed3" / "agent.safetensors"
    folder = train(tmp_path / "x", steps=1, start_from=str(agent), evaluation_episodes=0).folder
    shutil.copy(other.folder / "runs" / "sac-seed4" / "agent.safetensors", agent)
    assert pac4sac.resume(folder).complete  # what is trained needs it no more
    for made_in_training in ("cohorts", "runs"):  # as if it had been killed before
        shutil.rmtree(folder / made_in_training)
    with pytest.raises(UserError, match="is not the agent"):
        pac4sac.resume(folder)


def test_weights_of_another_structure_are_refused(tmp_path: Path) -> None:
    source = train(tmp_path / "source", steps=1, seeds=(3,), evaluation_episodes=0).folder
    with pytest.raises(UserError, match="another structure"):
        train(tmp_path / "wider", settings={"width": 9}, start_from=str(source))
    with pytest.raises(UserError, match=r"another (structure|algorithm)"):
        train(tmp_path / "other", "ddpg", start_from=str(source))


@pytest.mark.parametrize(
    "wrong",
    [{"steps": "x"}, {"steps": 2.5}, {"device": 0}, {"workers": True}, {"stop_when_solved": "no"}],
)
def test_an_option_of_the_wrong_kind_is_named(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{next(iter(wrong))} must be"):
        train(tmp_path / "x", **wrong)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        (3, [3]),
        (np.int64(3), [3]),
        (np.arange(2), [0, 1]),
        (range(2), [0, 1]),
        ("0:2", [0, 1]),
        (iter([2**64 - 1]), [2**64 - 1]),
    ],
)
def test_seeds_are_whole_numbers_however_they_are_written(given: Any, seeds: list[int]) -> None:
    read = seed_list(given)
    assert read == seeds
    assert {type(seed) for seed in read} == {int}


@pytest.mark.parametrize(
    "wrong", [[0.5], 0.5, True, [0, True], None, ["0"], "0.5", [-1], [0, 0], [], 2**64]
)
def test_invalid_seeds_are_refused_before_a_folder_is_created(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"[Ss]eed"):
        train(tmp_path / "x", seeds=wrong)
    assert not (tmp_path / "x").exists()


def test_settings_may_be_numbers_and_arrays_of_numpy() -> None:
    grid = settings_grid(
        {
            "xi": np.array([0.0, 0.1]),
            "width": np.int64(8),
            "lr": [np.float32(0.5)],
            "activation": "relu",
        }
    )
    assert grid == {"xi": [0.0, 0.1], "width": [8], "lr": [0.5], "activation": ["relu"]}
    assert {type(value) for values in grid.values() for value in values} == {float, int, str}


def test_objects_without_a_name_are_refused_with_advice(tmp_path: Path) -> None:
    for other in (object, Sac.Config, 3):
        with pytest.raises(TypeError, match=r"^algo must be .* subclass of pac4sac\.Agent, not "):
            train(tmp_path / "x", other)
    for nameless in (":Sac", "pac4sac.agents.sac:"):
        with pytest.raises(UserError, match="as module:Class"):
            train(tmp_path / "x", nameless)
    for callbacks in ([pac4sac.Callback], print, [None]):
        with pytest.raises(UserError, match=r"callbacks must be .*Callback"):
            train(tmp_path / "x", callbacks=callbacks)
    assert not (tmp_path / "x").exists()


def test_a_folder_with_files_is_never_changed(tmp_path: Path) -> None:
    folder = train(tmp_path / "x", steps=1).folder
    before = contents(folder)
    with pytest.raises(UserError, match="exists and is not empty"):
        train(folder, "ddpg")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        train(tmp_path / "file")
    assert contents(folder) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_callbacks_are_called_at_the_start_each_step_each_line_and_each_end(tmp_path: Path) -> None:
    calls: list[tuple[object, ...]] = []

    class Listener(pac4sac.Callback):
        def on_start(self, folder, runs, steps, step):
            calls.append(("start", [run.id for run in runs], steps, step))

        def on_step(self, step):
            calls.append(("step", step))

        def on_log(self, run, kind, row):
            calls.append(("log", run.id, kind, row["step"]))

        def on_status(self, run, status, detail):
            calls.append(("status", run.id, status, detail))

        def on_end(self, folder):
            calls.append(("end", folder))

    # a list of them would do as well
    folder = train(tmp_path / "x", steps=60, callbacks=Listener()).folder
    assert calls[0] == ("start", ["sac-seed0", "sac-seed1"], 60, 0)
    assert [call[1] for call in calls if call[0] == "step"] == list(range(1, 61))
    for kind in ("episodes", "metrics", "evaluations"):
        logged_steps = [call[3] for call in calls if call[:3] == ("log", "sac-seed1", kind)]
        assert logged_steps == [row["step"] for row in rows(folder, "sac-seed1", kind)] != []
    ends = [("status", run, "finished", None) for run in ("sac-seed0", "sac-seed1")]
    assert calls[-3:] == [*ends, ("end", folder)]


def test_an_environment_is_made_by_the_name_of_its_task_and_the_api_can_be_listed() -> None:
    with contextlib.closing(pac4sac.make_env("Pendulum-v1")) as env:
        assert env.observation_space.shape == (3,)
    assert {"train", "load", "make_env"} <= set(dir(pac4sac))
