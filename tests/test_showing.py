"""Films, ONNX models, TensorBoard files and the doctor."""

import importlib
import io
import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from PIL import Image
from rich.console import Console

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopReason
from pac4sac.cli import doctor as doctors
from pac4sac.cli.training_summary import exit_code, show_result
from pac4sac.export import onnx as onnx_export
from pac4sac.export.tracking import TensorBoard
from pac4sac.export.video import pictures, record_video, write_gif
from pac4sac.tasks import Task, chosen_task, get_task, make_env, offscreen
from pac4sac.training.agent_file import choose_agent
from pac4sac.training.run import make_agent, make_runs
from pac4sac.training.trained_agent import TrainedAgent

ROOT = Path(__file__).parents[1]
SMALL = {"width": 16, "depth": 1, "warmup": 400}
EPISODE = 200  # steps of an episode of the docking boat, which is filmed at 20 steps per second


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    out = tmp_path_factory.mktemp("showing") / "docking"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples")
        task = "own_environment:Docking-v0"
        options = {"backend": "eager", "threads": 1, "workers": 0, "evaluation_episodes": 1}
        return pac4sac.train(
            task, "sac", seeds=[0, 1], settings=SMALL, steps=450, out=out, **options
        ).folder


def untrained(task: Task, algo: str = "sac", observation_size: int = 2) -> TrainedAgent:
    (run,) = make_runs(task, algo, "default", [0], {name: [value] for name, value in SMALL.items()})
    agent = make_agent([run], observation_size, 1)
    return TrainedAgent(run, agent, agent.initial_state([0], torch.device("cpu")))


def with_evaluations(experiment: Path, to: Path, **means: float | None) -> Path:
    shutil.copytree(experiment, to)
    for run, mean in means.items():
        row = {"step": 450, "policy": "deterministic", "mean": mean, "returns": [mean]}
        text = json.dumps(row) + "\n" if mean is not None else ""
        folder = to / "runs" / f"sac-{run}"
        (folder / "evaluations.jsonl").write_text(text)
        about = json.loads((folder / "run.json").read_text())
        del about["logs"], about["sha256"]  # checksums, which are those of other lines
        (folder / "run.json").write_text(json.dumps(about))
    return to


# --- which agent


def test_the_run_with_the_best_last_evaluation_is_chosen(experiment, tmp_path):
    folder = with_evaluations(experiment, tmp_path / "a", seed0=-5.0, seed1=3.0)
    assert choose_agent(folder).parent.name == "sac-seed1"
    folder = with_evaluations(experiment, tmp_path / "b", seed0=4.0, seed1=3.0)
    assert choose_agent(folder).parent.name == "sac-seed0"


def test_runs_without_an_evaluation_rank_last_by_their_last_episodes(experiment, tmp_path):
    folder = with_evaluations(experiment, tmp_path / "a", seed0=-1e6, seed1=None)
    assert choose_agent(folder).parent.name == "sac-seed0"
    folder = with_evaluations(experiment, tmp_path / "b", seed0=None, seed1=None)
    for run, last in (("sac-seed0", 10), ("sac-seed1", 20)):
        row = {"episode": 0, "step": 200, "return": last, "length": 200}
        (folder / "runs" / run / "episodes.jsonl").write_text(json.dumps(row) + "\n")
    assert choose_agent(folder).parent.name == "sac-seed1"


def test_the_best_run_of_all_experiments_of_a_study_is_chosen(experiment, tmp_path):
    for name, best in (("experiments/one", 3.0), ("experiments/two", 4.0)):
        with_evaluations(experiment, tmp_path / name, seed0=-5.0, seed1=best)
    assert (
        choose_agent(tmp_path)
        == tmp_path / "experiments" / "two" / "runs" / "sac-seed1" / "agent.safetensors"
    )


def test_no_agent_is_chosen_through_a_link_out_of_its_folder(experiment, tmp_path):
    folder = with_evaluations(experiment, tmp_path / "a", seed0=-5.0, seed1=3.0)
    agent = folder / "runs" / "sac-seed1" / "agent.safetensors"
    agent.rename(tmp_path / "outside")
    agent.symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="link"):
        choose_agent(folder)


def test_a_run_folder_and_an_agent_file_are_used_directly(experiment):
    run = experiment / "runs" / "sac-seed1"
    assert choose_agent(run) == choose_agent(run / "agent.safetensors") == run / "agent.safetensors"


# --- films


def test_a_gif_shows_the_whole_episode_in_the_time_it_takes(experiment, tmp_path):
    drawn = []
    out = record_video(
        experiment, tmp_path / "new" / "film.gif", progress=lambda *count: drawn.append(count)
    )
    with Image.open(out) as film:
        assert film.n_frames == EPISODE + 1
        assert film.size == (300, 60)
        assert film.info["duration"] == 50
    assert drawn[0] == (1, EPISODE + 1)
    assert drawn[-1] == (EPISODE + 1, EPISODE + 1)
    assert list(out.parent.iterdir()) == [out]


def test_a_video_repeats_with_its_seed_and_differs_with_another(experiment):
    agent = pac4sac.load(experiment / "runs" / "sac-seed0")
    first, again, other = (
        [np.asarray(picture) for picture in itertools.islice(pictures(agent, seed), 4)]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_cartpole_is_drawn_every_third_step_and_a_gif_of_it_is_smaller(tmp_path):
    agent = untrained(get_task("cartpole-swingup"), "pac4sac", observation_size=5)
    counted = []
    film = list(
        itertools.islice(pictures(agent, 0, progress=lambda *count: counted.append(count)), 3)
    )
    assert {picture.size for picture in film} == {(640, 480)}
    assert counted[0] == (1, 334)  # a second has 20 pictures and 61 steps
    write_gif(tmp_path / "film.gif", iter(film))
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.size == (400, 300)
        assert gif.n_frames == 3


def test_an_mp4_has_a_picture_for_each_step(experiment, tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    out = record_video(experiment, tmp_path / "film.mp4")
    with imageio.get_reader(out) as film:
        assert film.get_data(0).shape == (60, 300, 3)
        assert film.count_frames() == EPISODE + 1


def test_an_mp4_without_its_encoder_names_the_extra(experiment, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match=r"pip install .*\[video\]"):
        record_video(experiment, tmp_path / "film.mp4")


def test_other_video_formats_are_refused(experiment, tmp_path):
    with pytest.raises(UserError, match=r"\.gif or \.mp4"):
        record_video(experiment, tmp_path / "film.avi")
    assert not any(tmp_path.iterdir())


def test_an_environment_that_cannot_render_is_reported(monkeypatch):
    class Dark(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    gymnasium.register("Dark-v0", Dark)
    with pytest.raises(UserError, match="cannot be rendered"):
        next(pictures(untrained(Task("dark", "Dark-v0")), 0))


def test_a_function_that_takes_no_render_mode_is_named():
    task = chosen_task(lambda: gymnasium.make("Pendulum-v1"))
    with pytest.raises(UserError, match="render_mode=None"):
        next(pictures(untrained(task, observation_size=3), 0))


def test_a_missing_package_for_rendering_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(UserError, match=r"needs pygame; .*pip install .*\[pygame\]"):
        next(pictures(untrained(get_task("Pendulum-v1"), observation_size=3), 0))


# --- ONNX


@pytest.fixture
def onnx():
    pytest.importorskip("onnxscript")
    importlib.import_module("onnx.reference")
    return pytest.importorskip("onnx")


class Blind(gymnasium.Env):
    """Cannot draw, as MuJoCo on a machine without a display."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def render(self):
        raise RuntimeError("an OpenGL platform library has not been loaded")


def test_without_offscreen_rendering_the_packages_are_named(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Blind-v0", EnvSpec("Blind-v0", entry_point=Blind))
    with pytest.raises(UserError, match=r"could not be rendered .*libegl1.*MUJOCO_GL=egl"):
        list(pictures(untrained(Task("blind", "Blind-v0", horizon=3)), 0))


@pytest.mark.parametrize(
    ("environment", "libraries", "chosen"),
    [
        ({}, ("libEGL.so.1", "libOSMesa.so.8"), "egl"),
        ({}, ("libOSMesa.so.8",), "osmesa"),
        ({}, (), None),
        ({"DISPLAY": ":0"}, ("libEGL.so.1",), None),
        ({"MUJOCO_GL": "glfw"}, ("libEGL.so.1",), "glfw"),
    ],
)
def test_without_a_display_mujoco_uses_the_installed_renderer(
    monkeypatch, environment, libraries, chosen
):
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(offscreen, "_can_be_loaded", libraries.__contains__)
    monkeypatch.setattr(offscreen, "_choices", [])
    offscreen.choose_offscreen_rendering()
    assert environment.get("MUJOCO_GL") == chosen


@pytest.fixture
def broken_egl(monkeypatch, tmp_path):
    """A dm_control that cannot be imported if it is to draw with EGL."""
    task = "dm_control/broken-v0"
    spec = EnvSpec(task, entry_point=Blind)
    (tmp_path / "dm_control.py").write_text(
        "import os\nif 'MUJOCO_GL' in os.environ:\n    raise ImportError('no EGL device')\n"
    )
    (tmp_path / "shimmy.py").write_text("")
    for module in ("dm_control", "shimmy"):
        monkeypatch.setitem(sys.modules, module, None)
        del sys.modules[module]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(gymnasium.registry, task, spec)
    monkeypatch.setattr(offscreen, "_can_be_loaded", lambda library: True)
    monkeypatch.setattr(offscreen, "_choices", [])
    for variable in ("MUJOCO_GL", *offscreen.DISPLAYS):
        monkeypatch.delenv(variable, raising=False)
    return Task("broken", task, horizon=3)


def test_dm_control_trains_with_a_broken_rendering_library(broken_egl, monkeypatch):
    make_env(broken_egl).close()
    assert "MUJOCO_GL" not in os.environ


def test_a_broken_rendering_library_is_reported_in_a_sentence(broken_egl, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(UserError, match=r"cannot be imported .*no EGL device.*libegl1"):
        make_env(broken_egl)
    assert os.environ["MUJOCO_GL"] == "egl"


def test_an_exported_policy_gives_the_agents_actions_in_the_environments_own_units(
    experiment, tmp_path, onnx
):
    folder = with_evaluations(experiment, tmp_path / "experiment", seed0=1.0, seed1=0.0)
    said = onnx_export.export_onnx(folder, tmp_path / "policy.onnx")
    assert "sac-seed0" in said
    assert "to within" in said
    model = onnx.load(tmp_path / "policy.onnx")
    onnx.checker.check_model(model)
    assert {prop.key: prop.value for prop in model.metadata_props}["run"] == "sac-seed0"
    agent = pac4sac.load(folder / "runs" / "sac-seed0")
    for batch in (1, 7):
        s = 3 * np.random.default_rng(batch).standard_normal((batch, 2), np.float32)
        (action,) = onnx.reference.ReferenceEvaluator(model).run(None, {"observation": s})
        expected = [agent.act(row, shooting=False) for row in s]
        np.testing.assert_allclose(action, expected, atol=1e-5)


@pytest.mark.parametrize("algo", ["pac4sac", "ddpg"])
def test_policies_of_other_algorithms_can_be_traced_without_warnings(algo, onnx, caplog):
    agent = untrained(get_task("Pendulum-v1"), algo, observation_size=3)
    low, high = onnx_export.action_bounds(agent.run.task)
    assert (low, high) == (-2, 2)
    evaluate, _ = onnx_export.evaluator(onnx_export.trace(agent, low, high))
    assert onnx_export.largest_difference(agent, evaluate) < 1e-5
    assert not [message for message in caplog.messages if "constant folding" in message]


def test_a_model_that_differs_from_its_agent_is_not_written(
    experiment, tmp_path, onnx, monkeypatch
):
    honest = onnx_export.trace
    monkeypatch.setattr(onnx_export, "trace", lambda agent, low, high: honest(agent, low, high + 1))
    with pytest.raises(UserError, match="differ from those of the agent"):
        onnx_export.export_onnx(experiment / "runs" / "sac-seed0", tmp_path / "policy.onnx")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["", "a/folder"])
def test_an_export_into_a_folder_is_refused_before_it_begins(target, tmp_path, monkeypatch):
    (tmp_path / "a/folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"is a folder; give a file to write, such as .*policy\.onnx"
    ):
        onnx_export.export_onnx("no experiment", Path(target))


def test_an_export_without_onnx_names_the_extra(experiment, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"pip install .*\[onnx\]"):
        onnx_export.export_onnx(experiment, tmp_path / "policy.onnx")


# --- TensorBoard


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_gets_the_episodes_and_evaluations_of_every_run(experiment, tmp_path):
    pytest.importorskip("tensorboard")
    options = {
        "backend": "eager",
        "threads": 1,
        "workers": 0,
        "evaluation_episodes": 1,
        "log_every": 50,
    }
    result = pac4sac.train(
        "own_environment:Docking-v0",
        "sac",
        seeds=[0, 1],
        settings=SMALL,
        steps=450,
        out=tmp_path / "docking",
        callbacks=[TensorBoard()],
        **options,
    )
    for run in result.runs:
        folder = result.folder / "tensorboard" / run.run
        assert scalars(folder, "episode/return") == [
            (step, pytest.approx(value, rel=1e-5))
            for step, value in zip(run.steps, run.returns, strict=True)
        ]
        assert [step for step, _ in scalars(folder, "evaluation/deterministic")] == [450]
        assert [step for step, _ in scalars(folder, "metrics/critic_loss")] == [450]


def test_a_resumed_run_replaces_later_tensorboard_steps(tmp_path):
    pytest.importorskip("tensorboard")
    (run,) = make_runs(get_task("cartpole-swingup"), "sac", "default", [0], {})
    for start, rows in ((0, {100: 1.0, 200: 2.0, 300: 3.0}), (200, {300: 30.0})):
        board = TensorBoard()
        board.on_start(tmp_path, [run], 400, start)
        for step, value in rows.items():
            board.on_log(
                run, "episodes", {"episode": 0, "step": step, "return": value, "length": 100}
            )
        board.on_end(tmp_path)
    assert scalars(tmp_path / "tensorboard" / run.id, "episode/return") == [
        (100, 1.0),
        (200, 2.0),
        (300, 30.0),
    ]


def test_tensorboard_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install .*\[tensorboard\]"):
        TensorBoard()


# --- the doctor


def visit() -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    code = doctors.Doctor().run(console)
    return code, console.file.getvalue()


def test_the_doctor_finds_that_training_works_here():
    code, text = visit()
    assert code == 0
    assert torch.__version__.split("+")[0] in text
    assert "ms" in text
    assert "Training works here." in text


def test_the_doctor_reports_causes_of_different_digits(monkeypatch):
    monkeypatch.setattr(doctors, "speed", lambda: iter(()))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setitem(doctors.PINNED, "torch", "1.0.0")
    code, text = visit()
    assert code == 0
    assert "OMP_NUM_THREADS=3" in text
    assert "instead of 1.0.0" in text


def test_the_doctor_finds_missing_and_broken_parts(monkeypatch):
    present = doctors._version
    monkeypatch.setattr(
        doctors, "_version", lambda name: None if name == "gymnasium" else present(name)
    )
    assert visit()[0] == 1
    monkeypatch.setattr(doctors, "_version", present)

    def broken(task: str) -> float:
        raise OSError("no simulator here")

    monkeypatch.setattr(doctors, "_simulator_seconds", broken)
    monkeypatch.setattr(doctors, "_learning_seconds", lambda: 0.001)
    code, text = visit()
    assert code == 1
    assert "no simulator here" in text


def test_doctor_reports_that_training_works_without_pybullet(monkeypatch):
    present = doctors._version
    monkeypatch.setattr(
        doctors, "_version", lambda name: None if name == "pybullet" else present(name)
    )
    monkeypatch.setattr(doctors, "_learning_seconds", lambda: 0.001)
    code, text = visit()
    assert code == 0
    assert "[bullet]'" in text
    assert "Pendulum-v1" in text


def test_doctor_compares_with_the_pinned_versions():
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    assert {name: pinned[name] for name in doctors.PINNED} == doctors.PINNED


def test_training_stopped_before_its_first_step_shows_how_to_resume(tmp_path: Path) -> None:
    stopped = pac4sac.Result(
        tmp_path, complete=False, reason=StopReason("SIGINT was received", signal.SIGINT)
    )
    console = Console(file=io.StringIO(), width=200)
    show_result(stopped, console)
    assert exit_code(stopped) == 130
    assert f"Resume with:     pac4sac resume {tmp_path}" in console.file.getvalue()
