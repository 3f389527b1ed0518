"""Files are data: they neither choose what code runs nor where anything is written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import tiny_experiments as tiny
import torch
from safetensors import safe_open

import pac4sac
from pac4sac import UserError
from pac4sac.base import trust
from pac4sac.base.trust import TRUSTED
from pac4sac.cli.main import main
from pac4sac.training.agent_file import FORMAT, checksum, read_agent_file

ROOT = Path(pac4sac.__file__).parents[1]
PAYLOAD = """
from pathlib import Path
Path({mark!r}).touch()
import gymnasium
from pac4sac.agents.sac import Sac
class Agent(Sac): pass
if "Trap-v0" not in gymnasium.registry:
    gymnasium.register("Trap-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv", max_episode_steps=20)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trust") / "experiment"
    task = pac4sac.Task("pendulum", "Pendulum-v1", 20)
    return tiny.train(
        folder, task=task, seeds=[0], steps=60, evaluate_every=0, evaluation_episodes=0
    ).folder


class Trap:
    """A copy of an experiment in the working directory, beside a module that leaves a mark when it
    is imported."""

    def __init__(self, folder: Path, trained: Path, name: str) -> None:
        self.folder, self.module, self.mark = folder, f"trap_{name}", folder / "imported"
        (folder / f"{self.module}.py").write_text(PAYLOAD.format(mark=str(self.mark)))
        self.experiment = folder / "shared"
        subprocess.run(["cp", "-r", trained, self.experiment], check=True)
        self.agent = self.experiment / "runs" / "sac-seed0" / "agent.safetensors"

    def set(self, **changes: str) -> "Trap":
        """Let all files of the experiment name this algorithm, or this environment."""
        about = json.loads((self.experiment / "experiment.json").read_bytes())
        for run in (run for cohort in about["cohorts"] for run in cohort):
            change(run, changes)
        (self.experiment / "experiment.json").write_text(json.dumps(about))
        path = self.agent.parent / "run.json"
        path.write_text(json.dumps(change(json.loads(path.read_bytes()), changes)))
        about, tensors = read_agent_file(self.agent)
        change(about["run"], changes)
        label = {"version": 1, "about": about, "sha256": checksum(about, tensors)}
        safetensors.torch.save_file(tensors, self.agent, {FORMAT: json.dumps(label)})
        return self

    def run(self, *command: str, without: str = "") -> subprocess.CompletedProcess[str]:
        """As a user types it: in a process of its own that was told nothing; perhaps where a module
        is not installed."""
        variables = {name: value for name, value in os.environ.items() if name != TRUSTED}
        script = WITHOUT.format(without) if without else ""
        script += "import sys; from pac4sac.cli.main import main; sys.exit(main())"
        call = [sys.executable, "-P", "-c", script, *command]
        variables["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            call, cwd=self.folder, env=variables, capture_output=True, text=True, check=False
        )


def change(about: dict, changes: dict) -> dict:
    about |= {name: value for name, value in changes.items() if name in about}
    about["task"] |= {name: value for name, value in changes.items() if name in about["task"]}
    return about


@pytest.fixture
def trap(tmp_path, trained, request, monkeypatch) -> Trap:
    monkeypatch.setenv(TRUSTED, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Trap(tmp_path, trained, "".join(c if c.isalnum() else "_" for c in request.node.name))


COMMANDS = [
    ["evaluate", "shared", "--episodes", "1"],
    ["watch", "shared"],
    ["certify", "shared", "--episodes", "4"],
    ["export", "shared", "--onnx", "policy.onnx"],
    ["resume", "shared", "--steps", "80"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("named", ["algo", "env_id"])
def test_no_command_imports_a_module_that_only_a_file_names(trap, command, named, capsys):
    if command[0] == "export":
        pytest.importorskip("onnxscript")
    trap.set(**{named: f"{trap.module}:{'Agent' if named == 'algo' else 'Trap-v0'}"})
    assert main(command) == 2
    said = capsys.readouterr().err
    assert f"needs the module '{trap.module}'" in said
    assert f"--trust {trap.module}" in said
    assert not trap.mark.exists()


@pytest.mark.parametrize("named", ["algo", "env_id"])
def test_a_named_module_is_imported_only_for_that_command(trap, named, capsys):
    trap.set(**{named: f"{trap.module}:{'Agent' if named == 'algo' else 'Trap-v0'}"})
    assert main(["evaluate", "shared", "--episodes", "1", "--trust", trap.module]) == 0
    assert trap.mark.exists()
    assert main(["evaluate", "shared", "--episodes", "1"]) == 2
    assert "--trust" in capsys.readouterr().err


def test_python_calls_need_trust_too(trap):
    trap.set(algo=f"{trap.module}:Agent", env_id=f"{trap.module}:Trap-v0")
    for read in (pac4sac.load, pac4sac.certify, pac4sac.resume):
        with pytest.raises(UserError, match=f"trust='{trap.module}'"):
            read(trap.experiment if read is pac4sac.resume else trap.agent)
    assert not trap.mark.exists()
    agent = pac4sac.load(trap.agent, trust=trap.module)
    assert agent.act([1.0, 0.0, 0.0]).shape == (1,)


def test_naming_a_module_in_a_call_allows_it(trap):
    result = tiny.train(trap.folder / "own", f"{trap.module}:Agent", seeds=[0], steps=60)
    assert pac4sac.load(result.folder)
    os.environ[TRUSTED] = ""
    with pytest.raises(UserError, match="--trust"):
        pac4sac.resume(result.folder, steps=80)
    assert pac4sac.resume(
        result.folder, steps=80, trust=[trap.module, "training_environments"]
    ).complete
    with pac4sac.make_env(pac4sac.Task("trap", f"{trap.module}:Trap-v0")) as env:
        assert env.horizon == 20


def test_a_single_agent_file_imports_no_module(trap):
    trap.set(algo="this.__main__:x")
    with pytest.raises(UserError, match=r"needs the module 'this\.__main__'"):
        pac4sac.load(trap.agent)
    with safe_open(trap.agent, "pt") as file:
        assert torch.is_tensor(file.get_tensor(next(iter(file.keys()))))


STUDY = """
tasks = ["{task}"]
seeds = "0:2"
[task."{task}"]
steps = 60
[options]
device = "cpu"
backend = "eager"
workers = 1
evaluation_episodes = 0
[set]
width = 8
depth = 1
batch = 8
warmup = 40
[[variant]]
algo = "{algo}"
[[variant]]
algo = "sac"
"""


@pytest.mark.parametrize("algo_is_own", [True, False])
def test_modules_of_a_study_file_need_consent(trap, algo_is_own, capsys):
    own = f"{trap.module}:{'Agent' if algo_is_own else 'Trap-v0'}"
    names = {"task": "Pendulum-v1", "algo": own} if algo_is_own else {"task": own, "algo": "ddpg"}
    Path("mine.toml").write_text(STUDY.format(**names))
    for command in ("plan", "run", "status"):
        assert main(["study", command, "mine.toml"]) == 2
        said = capsys.readouterr().err
        assert f"needs the module '{trap.module}'" in said
        assert "mine.toml, line " in said
    assert not trap.mark.exists()


def test_child_processes_of_a_study_trust_the_same_modules(trap):
    """They begin in the working directory, which is importable for them because the user named a
    module in it."""
    task = f"{trap.module}:Trap-v0"
    Path("mine.toml").write_text(STUDY.format(task=task, algo=f"{trap.module}:Agent"))
    done = trap.run("study", "run", "mine.toml", "--seeds", "0", "--trust", trap.module)
    assert done.returncode == 0, done.stderr
    assert len(list(Path("experiments/study-mine").rglob("agent.safetensors"))) == 2
    asked = trap.run("study", "status", "mine.toml")
    assert asked.returncode == 2
    assert f"--trust {trap.module}" in asked.stderr


def test_modules_of_a_config_file_need_consent_and_it_cannot_set_trust(trap, capsys):
    own = f"{trap.module}:Agent"
    Path("mine.toml").write_text(f'task = "Pendulum-v1"\nalgo = "{own}"\nsteps = 1\n')
    assert main(["train", "--config", "mine.toml"]) == 2
    assert f"--trust {trap.module}" in capsys.readouterr().err
    Path("mine.toml").write_text(
        f'task = "Pendulum-v1"\nalgo = "{own}"\ntrust = ["{trap.module}"]\n'
    )
    assert main(["train", "--config", "mine.toml"]) == 2
    assert "unknown key 'trust'" in capsys.readouterr().err
    Path("mine.toml").write_text(f'task = "{trap.module}:Trap-v0"\n')
    assert main(["train", "--config", "mine.toml"]) == 2
    assert not trap.mark.exists()
    Path("mine.toml").write_text(
        f'task = "Pendulum-v1"\nalgo = "{own}"\nsteps = 10\n[set]\nwidth = 8\n'
    )
    flags = ["--device", "cpu", "--backend", "eager", "--workers", "0", "--out", "own"]
    assert main(["train", "--config", "mine.toml", "--algo", own, *flags]) == 0
    assert (
        main(["train", "--config", "mine.toml", "--trust", trap.module, *flags[:-1], "other"]) == 0
    )


def test_the_working_directory_is_not_imported_from_unless_a_module_is_named(trap):
    """A shared folder may hold a module called like one that pac4sac looks for and does not
    find."""
    trap.set(env_id="dm_control/cartpole-swingup-v0")
    for module in ("dm_control", "shimmy"):
        (trap.folder / f"{module}.py").write_text(
            f"from pathlib import Path; Path({str(trap.mark)!r}).touch()"
        )
    assert trap.run("evaluate", "shared").returncode == 2
    assert not trap.mark.exists()


def test_a_folder_with_custom_runs_is_compared_without_their_code(trap):
    own = f"{trap.module}:Agent"
    settings = {**tiny.SETTINGS}
    more = {
        "seeds": [0],
        "settings": settings,
        "steps": 60,
        "device": "cpu",
        "backend": "eager",
        "parallel": 1,
    }
    assert pac4sac.compare(
        "Pendulum-v1", [own, "sac"], out="both", **more, trust=trap.module
    ).complete
    flags = [f"{name}={value}" for name, value in settings.items()]
    command = [
        "compare",
        "Pendulum-v1",
        "--algos",
        "sac,ddpg",
        "--out",
        "both",
        "--set",
        *flags,
        "--seeds",
        "0",
    ]
    os.environ[TRUSTED] = ""
    trap.mark.unlink()
    del sys.modules[trap.module]
    assert main([*command, "--steps", "60", "--device", "cpu", "--backend", "eager"]) == 0
    assert not trap.mark.exists()


WITHOUT = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_outside_packages(name, path=None, target=None):
    if name == {!r}:
        path = [place for place in path or sys.path if "site-packages" not in place]
    return find(name, path, target)
PathFinder.find_spec = find_outside_packages
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [("pygame", "watch shared"), ("onnxscript", "export shared --onnx policy.onnx")],
)
@pytest.mark.parametrize("trusted", ["gymnasium", "pac4sac.agents.sac"])
def test_missing_optional_modules_are_never_imported_from_the_working_directory(
    trap, module, command, trusted
):
    (trap.folder / f"{module}.py").write_text(PAYLOAD.format(mark=str(trap.mark)))
    done = trap.run(*command.split(), "--trust", trusted, without=module)
    assert done.returncode == 2
    assert module in done.stderr
    assert not trap.mark.exists()


def test_named_modules_import_from_their_folder_and_libraries_do_not(trap):
    (trap.folder / "helper.py").write_text("NUMBER = 1\n")
    own = trap.folder / "own_sac.py"
    own.write_text(
        "import helper\nfrom pac4sac.agents.sac import Sac\nclass Agent(Sac):\n"
        "    def end_of_episode(self, state, ended):\n        import late_helper\n"
    )
    (trap.folder / "late_helper.py").write_text("")
    probe = "try:\n    import optional, helper\nexcept ImportError:\n    print('not found')\n"
    code = "from pac4sac.base import trust\n" + (
        "with trust.consent_of_one_command():\n"
        "    trust.allow(['gymnasium', 'own_sac'])\n"
        "    trust.own_class('own_sac:Agent', 'algorithm', object)\n"
        "    import gymnasium\n"
    )
    code += "".join(f"    {line}\n" for line in probe.splitlines())
    (trap.folder / "optional.py").write_text("")
    variables = {name: value for name, value in os.environ.items() if name != TRUSTED}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=trap.folder, env=variables | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("not found\n", "")
    trap.set(algo="own_sac:Agent")
    done = trap.run("evaluate", "shared", "--episodes", "1", "--trust", "own_sac")
    assert done.returncode == 0, done.stderr
    own.unlink()
    done = trap.run("evaluate", "shared", "--trust", "own_sac")
    assert "No module named 'own_sac'" in done.stderr


def test_a_terminal_asks_once_for_each_content_of_a_file(trap, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    questions, answers = [], [False]

    def load() -> None:
        def ask(question: str) -> bool:
            questions.append(question)
            return answers[-1]

        with trust.consent_of_one_command(ask):
            pac4sac.load(trap.agent)

    trap.set(algo=f"{trap.module}:Agent")
    with pytest.raises(UserError, match="--trust"):
        load()
    assert questions == [f"Run code from {trap.module}.py? [y/N] "]
    assert not trap.mark.exists()
    answers.append(True)
    load()
    load()
    assert len(questions) == 2
    assert trap.mark.exists()
    source = trap.folder / f"{trap.module}.py"
    source.write_text(source.read_text() + "# edited\n")
    answers.append(False)
    with pytest.raises(UserError, match="--trust"):
        load()
    assert len(questions) == 3
    with pytest.raises(UserError, match="--trust"):
        pac4sac.load(trap.agent)  # without a terminal nothing is remembered
    trap.set(algo="nowhere:Agent")
    with pytest.raises(UserError, match="--trust nowhere"):
        load()
    assert len(questions) == 3


def test_questions_about_trust_are_complete_sentences(trap, capsys):
    Path("mine.toml").write_text(STUDY.format(task="Pendulum-v1", algo=f"{trap.module}:Agent"))
    assert main(["study", "status", "mine.toml"]) == 2
    said = capsys.readouterr().err
    assert "UserError" not in said
    assert ".." not in said.replace("...", "")
    assert main(["study", "status", "mine.toml", "--trust", trap.module, "--out", "a b"]) == 2
    suggested = f"pac4sac study run mine.toml --out 'a b' --trust {trap.module}"
    assert capsys.readouterr().err.strip().endswith(suggested)


def test_settings_of_matplotlib_in_the_working_directory_are_ignored(trap):
    reports = []
    for settings in ("", "text.usetex: True\naxes.facecolor: red\n"):
        (trap.folder / "matplotlibrc").write_text(settings)
        done = trap.run("report", "shared", "--out", f"out{len(reports)}")
        assert (done.returncode, done.stderr) == (0, "")
        reports.append({p.name: p.read_bytes() for p in Path(f"out{len(reports)}").rglob("*.svg")})
    assert reports[0]
    assert reports[0] == reports[1]
