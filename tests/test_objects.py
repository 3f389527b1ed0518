"""Environments, wrappers and agents that are given as objects instead of by name."""

import functools
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import tiny_experiments as tiny
from training_environments import Drift

import pac4sac
from pac4sac.agents.api import Sac
from pac4sac.base import objects
from pac4sac.base.errors import UserError
from pac4sac.base.objects import name_and_arguments, name_of, object_of, script_checksums
from pac4sac.cli.main import main
from pac4sac.tasks import chosen_task, get_task, make_env
from pac4sac.training.run import Run

QUICK = {"settings": tiny.SETTINGS, "steps": 100, **tiny.OPTIONS, "evaluation_episodes": 1}


class Scaled(gymnasium.RewardWrapper[Any, Any]):
    def __init__(self, env: Any, factor: float = 0.5) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return self.factor * float(reward)


def drifting(cliff: float = np.inf) -> Any:
    return gymnasium.make("Drift-v0", cliff=cliff)


@pytest.fixture
def later_program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forgets the objects of this process, as a program that is started later does."""
    return lambda: monkeypatch.setattr(objects, "_objects", {})


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs code in a module that is called __main__, and returns what it defines."""
    module = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)

    def run(code: str) -> dict[str, Any]:
        exec(code, vars(module))
        return vars(module)

    return run


class TestNames:
    def test_importable_objects_are_named_after_their_module(self) -> None:
        assert name_of(Drift) == "training_environments:Drift"
        assert object_of("training_environments:Drift", "environment") is Drift

    def test_a_lambda_and_a_local_class_get_a_name_of_this_process(self) -> None:
        class Local(Drift):
            pass

        for thing in (lambda: Drift(), Local):
            name = name_of(thing)
            assert name.startswith("in-process:")
            assert name_of(thing) == name
            assert object_of(name, "environment") is thing

    def test_a_partial_is_stored_as_a_name_with_arguments(self) -> None:
        given = name_and_arguments(functools.partial(Drift, cliff=1.0))
        assert given == ("training_environments:Drift", {"cliff": 1.0})
        name, arguments = name_and_arguments(functools.partial(Drift, cliff=object()))
        assert (name.startswith("in-process:Drift-"), arguments) == (True, {})

    def test_a_later_program_reports_that_a_lambda_cannot_be_found(
        self, later_program: Any
    ) -> None:
        name = name_of(lambda: Drift())
        later_program()
        with pytest.raises(UserError, match="'lambda' was a lambda"):
            object_of(name, "environment")


class TestTasks:
    def test_a_class_and_its_name_are_the_same_task(self) -> None:
        assert chosen_task(Drift) == chosen_task("training_environments:Drift")
        with make_env(Drift) as env:
            assert env.reset(seed=0)[0].shape == (3,)

    def test_a_function_has_the_time_limit_of_its_environment(self) -> None:
        task = chosen_task(functools.partial(drifting, cliff=2.0))
        assert (task.horizon, task.env_kwargs) == (30, {"cliff": 2.0})
        assert chosen_task(drifting, env_kwargs={"cliff": 3.0}).env_kwargs == {"cliff": 3.0}
        assert pac4sac.Task("drift", drifting).env_id == "test_objects:drifting"

    def test_the_solve_threshold_is_kept_only_if_rewards_are(self) -> None:
        kept = chosen_task("SolvableDrift-v0", wrappers=[gymnasium.wrappers.TimeAwareObservation])
        assert kept.r_limit == get_task("SolvableDrift-v0").r_limit == 10
        assert chosen_task("SolvableDrift-v0", wrappers=[Scaled]).r_limit is None

    def test_an_environment_that_all_runs_would_share_is_refused(self) -> None:
        env = Drift()
        with pytest.raises(UserError, match="needs its own environment"):
            chosen_task(env)
        with pytest.raises(UserError, match="returns the same environment every time"):
            make_env(lambda: env)

    def test_environments_are_created_like_an_existing_one(self) -> None:
        made = gymnasium.make("Drift-v0", cliff=2.0, max_episode_steps=7)
        task = chosen_task(gymnasium.wrappers.RescaleAction(made, -1.0, 1.0), 90)
        (table,) = task.wrappers
        assert (task.name, task.env_kwargs, task.horizon, task.steps) == (
            "Drift-v0",
            {"cliff": 2.0},
            7,
            90,
        )
        assert (table["min_action"], table["max_action"]) == (-1.0, 1.0)
        assert chosen_task(make_env(task)) == task
        assert chosen_task(made, env_kwargs={"cliff": 3.0}).env_kwargs == {"cliff": 3.0}

    def test_a_wrapper_of_an_environment_is_kept_if_its_arguments_are_known(self) -> None:
        class Plain(gymnasium.RewardWrapper[Any, Any]):
            def reward(self, reward: Any) -> float:
                return 2.0 * float(reward)

        solvable = gymnasium.make("SolvableDrift-v0")
        task = chosen_task(gymnasium.wrappers.TimeLimit(Plain(solvable), 5))
        assert (len(task.wrappers), task.r_limit, task.horizon) == (1, None, 5)
        with pytest.raises(UserError, match=r"functools\.partial\(Scaled, \.\.\.\)"):
            chosen_task(Scaled(solvable))
        lambdas = gymnasium.wrappers.TransformReward(solvable, lambda reward: 0.0)
        assert "in-process:TransformReward" in chosen_task(lambdas).wrappers[0]["wrapper"]

    def test_a_render_mode_of_an_environment_is_not_kept(self) -> None:
        assert chosen_task(gymnasium.make("Pendulum-v1", render_mode="rgb_array")).env_kwargs == {}

    def test_wrappers_know_the_time_limit(self) -> None:
        env = make_env(chosen_task("Drift-v0", wrappers=[gymnasium.wrappers.TimeAwareObservation]))
        assert env.reset(seed=0)[0].shape == (4,)

    @pytest.mark.parametrize(
        "wrapper", [lambda env: None, lambda env, far: env, lambda env: env.nothing]
    )
    def test_a_wrapper_that_does_not_wrap_is_refused(self, wrapper: Any) -> None:
        with pytest.raises(UserError, match="The wrapper lambda"):
            make_env(chosen_task("Drift-v0", wrappers=[wrapper]))


def test_objects_train_as_their_names_do_and_resume_in_the_same_program(tmp_path: Path) -> None:
    class Local(Sac):
        pass

    wrappers = [functools.partial(Scaled, factor=2.0)]
    with pytest.warns(UserWarning, match="cannot import Local and lambda") as warned:
        given = pac4sac.train(
            drifting_lambda, Local, env_kwargs={}, wrappers=wrappers, out=tmp_path / "a", **QUICK
        )
    assert len(warned) == 1
    table = {"wrapper": "test_objects:Scaled", "factor": 2.0}
    named = pac4sac.train("Drift-v0", "sac", wrappers=[table], out=tmp_path / "b", **QUICK)
    assert [run.label for run in given.runs] == ["Local"]
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        logs = [(run.folder / name).read_bytes() for run in (given.runs[0], named.runs[0])]
        assert logs[0] == logs[1]
    assert pac4sac.resume(given.folder, steps=120).complete


def test_a_later_program_loads_an_agent_and_is_told_why_it_cannot_resume(
    tmp_path: Path, later_program: Any
) -> None:
    with pytest.warns(UserWarning, match="cannot resume"):
        folder = pac4sac.train(drifting_lambda, "sac", out=tmp_path / "a", **QUICK).folder
    later_program()
    with pytest.raises(UserError, match="Define it at the top level of a module"):
        pac4sac.resume(folder, steps=120)
    with pytest.raises(UserError, match=r"pac4sac evaluate --task"):
        pac4sac.load(folder).act(np.zeros(3))
    assert pac4sac.load(folder, task="Drift-v0").act(np.zeros(3)).shape == (1,)
    assert len(pac4sac.evaluate(folder, "Drift-v0", episodes=2, wrappers=[Scaled]).returns) == 2


@pytest.mark.parametrize("use", [pac4sac.load, functools.partial(pac4sac.evaluate, episodes=1)])
def test_a_warning_of_several_agents_names_the_line_of_the_user(use: Any, tmp_path: Path) -> None:
    folder = pac4sac.train("Drift-v0", "sac", seeds=[0, 1], out=tmp_path / "a", **QUICK).folder
    with pytest.warns(UserWarning, match="has 2 agents") as warned:
        use(folder)
    assert warned[0].filename == __file__


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_trains_objects_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(Sac):
        pass

    monkeypatch.setattr("pac4sac.studies.run.run_local", None)
    asked: Any = {**QUICK, "settings": {**tiny.SETTINGS, "Local:alpha": 0.1}, "seeds": [0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pac4sac.compare(drifting_lambda, ["sac", Local], out=tmp_path / "c", **asked)
    assert found.complete
    assert {run.label: run.config["alpha"] for run in found.runs} == {"sac": 1.0, "Local": 0.1}


drifting_lambda = lambda: drifting()  # noqa: E731


def test_workers_are_refused_before_a_folder_is_created(tmp_path: Path) -> None:
    for call in (pac4sac.train, functools.partial(pac4sac.compare, algos="sac,ddpg")):
        with pytest.raises(UserError, match="Worker processes cannot import"):
            call(lambda: Drift(), out=tmp_path / "a", **QUICK | {"workers": 1})  # type: ignore[operator]
    assert not (tmp_path / "a").exists()


class TestScripts:
    code = "from agents import Sac\nG = {g}\ndef used(x):\n    return x + G\n"
    code += "class Mine(Sac):\n    def gain(self):\n        return used({x})\n"
    code = code.replace("from agents", "from pac4sac.agents.api")

    def test_a_class_of_a_script_is_found_by_name(self, script: Any) -> None:
        mine = script(self.code.format(g=1, x=1))["Mine"]
        assert name_of(mine) == "__main__:Mine"
        assert object_of("__main__:Mine", "algorithm") is mine

    @pytest.mark.parametrize(("g", "x"), [(2, 1), (1, 2)])
    def test_the_checksum_of_a_script_object_depends_on_its_code_and_its_functions(
        self, script: Any, g: int, x: int
    ) -> None:
        sums = []
        for content in (self.code.format(g=1, x=1), self.code.format(g=g, x=x)):
            name = name_of(script(content)["Mine"])
            sums.append(script_checksums([name, "sac"]))
            assert script_checksums([name]) == sums[-1]
        assert sums[0].keys() == {"__main__:Mine"}
        assert sums[0] != sums[1]
        table = self.code.replace("G = {g}", "G = {{'a': [{g}]}}").replace("x + G", "x + G['a'][0]")
        tabled = [
            script_checksums([name_of(script(table.format(g=value, x=1))["Mine"])])
            for value in (1, g)
        ]
        assert (tabled[0] == tabled[1]) == (g == 1)
        commented = name_of(script("# a comment\n\n" + self.code.format(g=1, x=1))["Mine"])
        assert script_checksums([commented]) == sums[0]

    def test_a_run_of_another_script_reports_where_it_can_be_continued(self, script: Any) -> None:
        mine = script(self.code.format(g=1, x=1))["Mine"]
        (run,) = self.runs(mine)
        about = json.loads(json.dumps(run.describe()))
        assert Run.from_description(about) == run
        script("del Mine")
        with pytest.raises(UserError, match="Mine was defined in a script or notebook"):
            Run.from_description(about)

    def test_an_agent_of_an_environment_of_a_script_acts_elsewhere(
        self, script: Any, tmp_path: Path
    ) -> None:
        code = "from training_environments import Drift\nclass Mine(Drift):\n    pass\n"
        folder = pac4sac.train(script(code)["Mine"], "sac", out=tmp_path / "a", **QUICK).folder
        script("del Mine")
        with pytest.raises(UserError, match="Mine was defined in a script or notebook"):
            pac4sac.evaluate(folder)
        assert pac4sac.evaluate(folder, "Drift-v0", episodes=1).task == "Drift-v0"

    @staticmethod
    def runs(mine: Any) -> list[Run]:
        from pac4sac.training.run import make_runs

        return make_runs(get_task("Drift-v0"), name_of(mine), "default", [0], {})


def test_a_wrapper_from_a_file_must_be_trusted() -> None:
    from pac4sac.training.run import make_runs

    about = make_runs(get_task("Drift-v0"), "sac", "default", [0], {})[0].describe()
    about["task"]["wrappers"] = [{"wrapper": "not_named_by_anyone:Wrapper"}]
    with pytest.raises(UserError, match="needs the module 'not_named_by_anyone'"):
        Run.from_description(about)


class TestCommands:
    quick = ("--steps", "60", "--device", "cpu", "--backend", "eager", "--evaluation-episodes", "0")

    def test_train_takes_wrappers_with_arguments(self, tmp_path: Path) -> None:
        command = ["train", "training_environments:Drift", "--algo", "sac", *self.quick]
        command += ["--out", str(tmp_path / "a"), "--set", "width=8", "batch=8", "warmup=30"]
        command += ["--wrapper", "test_objects:Scaled", "factor=0", "--wrapper", "action-repeat"]
        assert main(command) == 0
        about = json.loads((tmp_path / "a" / "experiment.json").read_text())
        expected = [{"factor": 0, "wrapper": "test_objects:Scaled"}, {"wrapper": "action-repeat"}]
        assert about["cohorts"][0][0]["task"]["wrappers"] == expected

    @pytest.mark.parametrize("words", [["factor=1"], ["action-repeat", "Drift-v0"], ["nothing"]])
    def test_a_malformed_wrapper_is_refused(
        self, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        given = ["--out", str(tmp_path / "a"), "--wrapper", *words]
        assert main(["train", "Drift-v0", *self.quick, *given]) == 2
        assert words[0] in capsys.readouterr().err

    def test_a_file_names_wrappers_but_does_not_trust_them(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "c.toml"
        file.write_text('task = "Drift-v0"\nsteps = 10\nwrapper = ["nowhere:Wrap factor=2"]\n')
        assert main(["train", "--config", str(file)]) == 2
        assert "--trust nowhere" in capsys.readouterr().err
