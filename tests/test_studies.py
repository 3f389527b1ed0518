"""Studies: definitions, planning into cohorts, and training them on this machine."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_jsonl
from pac4sac.base.stopping import StopReason, StopRequest
from pac4sac.cli.main import main, parse
from pac4sac.cli.train import Train
from pac4sac.runs.reading import read_run, read_runs
from pac4sac.studies.definition import FORMAT, KINDS, OPTIONS, Study, load_study
from pac4sac.studies.local import niceness, run_local
from pac4sac.studies.plan import PlannedCohort, begin, plan, split_by_memory
from pac4sac.studies.run import place_of, run_study, train_and_report
from pac4sac.studies.shipped import shipped_studies
from pac4sac.studies.watcher import Watcher
from pac4sac.tasks import TASKS
from pac4sac.training.learner import cohort_bytes
from pac4sac.training.run import make_runs, plan_cohorts

PLENTY = 10**12

TINY = """
title = "Tiny"
tasks = ["Pendulum-v1"]
seeds = "0:2"
baseline = "sac"

[options]
evaluation_episodes = 0
checkpoint_every = 100
backend = "eager"
threads = 1
workers = 0
device = "cpu"

[task."Pendulum-v1"]
horizon = 50
steps = 300

[set]
width = 8
depth = 1
batch = 4
warmup = 20

[[variant]]
algo = "sac"

[[variant]]
name = "pac"
algo = "pac4sac"
set = { shots = 2 }

[[variant]]
name = "pac again"
algo = "pac4sac"
set = { shots = 2 }
"""


class Notes(Watcher):
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.outcomes: list[str] = []
        self.warnings: list[str] = []

    def progress(self, cohort: PlannedCohort, step: int, steps: int) -> None:
        self.steps.append(step)

    def warning(self, cohort: PlannedCohort, sentence: str) -> None:
        self.warnings.append(sentence)

    def ended(self, cohort: PlannedCohort, outcome: str, reason: str) -> None:
        self.outcomes.append(outcome)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def mistake(tmp_path: Path, text: str) -> str:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_study(str(path))
    return str(caught.value)


@pytest.mark.parametrize("name", shipped_studies())
def test_shipped_studies_can_be_read_and_planned(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    runs = study.runs()
    assert len({(run.task.name, run.id) for run in runs}) == len(runs)
    if not {run.task.name for run in runs} <= TASKS.keys() | {"Pendulum-v1"}:
        pytest.importorskip("mujoco")  # a plan asks the environment how long observations are
    planned = plan(study, tmp_path, PLENTY)
    assert sorted(run.identity for cohort in planned for run in cohort.runs) == sorted(
        {run.identity for run in runs}
    )


def test_all_controls_are_defined_on_all_four_tasks() -> None:
    controls = {
        "pac4sac-without-shooting",
        "one-plain-critic",
        "one-plain-critic+shooting",
        "sac+shooting",
        "sac-auto",
    }
    controls |= {"sac-auto+shooting", "sac-calibrated+shooting"}
    for name, labels in {
        "controls": controls,
        "best": {"sac+shooting-early", "sac-auto-early"},
    }.items():
        study = load_study(name)
        for task in ("cartpole-swingup", "half-cheetah", "ant", "humanoid"):
            assert labels <= {run.label for run in study.runs() if run.task.name == task}


def test_all_calibration_runs_of_an_algorithm_share_a_cohort_on_a_gpu() -> None:
    planned = plan_cohorts(load_study("calibrate-rivals").runs(), on_gpu=True)
    assert sorted(
        (cohort[0].task.name, cohort[0].algo, len(cohort)) for cohort in planned
    ) == sorted(
        (task, algo, runs)
        for task in ("cartpole-swingup", "half-cheetah", "ant", "humanoid")
        for algo, runs in (("sac", 24), ("ddpg", 9))
    )


def test_the_calibrated_sac_differs_only_in_alpha() -> None:
    (changed,) = make_runs(TASKS["ant"], "sac", "reproduction", [0], {"alpha": [0.1]})
    (preset,) = make_runs(TASKS["ant"], "sac", "calibrated", [0], {})
    assert preset.identity == changed.identity
    assert preset.config.updates_per_step == 1


def test_the_studies_of_the_paper_have_its_cells() -> None:
    assert len(load_study("table-1").runs()) == 4 * 4 * 10
    assert len(load_study("table-2").runs()) == 2 * 4 * 10
    assert {run.config.shots for run in load_study("shooting").runs()} == {
        1,
        200,
        400,
        600,
        800,
        1000,
    }
    assert {run.algo for run in load_study("cost").runs()} == {
        "ddpg",
        "sac",
        "sac-nr",
        "sac-fpi",
        "pac4sac",
    }


def test_options_of_a_task_go_before_those_of_the_study(tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(
        TINY.replace(
            "[set]", '[task."Pendulum-v1".options]\nlog_every = 7\nbias_every = 60\n\n[set]'
        )
    )
    study = load_study(str(tiny))
    begin(study, tmp_path / "x", plan(study, tmp_path / "x", PLENTY), {"bias_every": 70})
    for path in (tmp_path / "x").rglob("experiment.json"):
        options = json.loads(path.read_bytes())["options"]
        assert (options["log_every"], options["bias_every"], options["checkpoint_every"]) == (
            7,
            70,
            100,
        )
    told = mistake(tmp_path, tiny.read_text().replace("log_every = 7", "log_evry = 7"))
    assert "[task.Pendulum-v1.options] has no key 'log_evry'; did you mean log_every" in told


def test_overestimation_measures_runs_of_table_1() -> None:
    study, table_1 = load_study("overestimation"), load_study("table-1")
    known = {run.identity for run in table_1.runs()}
    assert sum(run.identity in known for run in study.runs()) == 2 * 4 * 5
    points = {
        task.name: task.steps // study.options_for(task)["bias_every"] for task in study.tasks
    }
    assert points == {"cartpole-swingup": 10, "half-cheetah": 5}


def test_a_cost_study_expects_no_runs(tmp_path: Path) -> None:
    begin(load_study("cost"), tmp_path, [], {})
    assert json.loads((tmp_path / "study.json").read_bytes())["expected_runs"] == []


def test_variants_that_differ_per_run_share_a_cohort_and_those_with_other_structure_do_not(
    tmp_path: Path,
) -> None:
    table_2 = plan(load_study("table-2"), tmp_path, PLENTY)
    assert [len(cohort.runs) for cohort in table_2] == [40, 40]  # one cohort for each task
    shooting = plan(load_study("shooting"), tmp_path, PLENTY)
    spans = [sorted({run.config.shots for run in cohort.runs}) for cohort in shooting]
    assert spans == [[1], [200, 400], [600, 800, 1000]]


def test_a_variant_may_set_steps_by_task(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    blocks = TINY.replace('tasks = ["Pendulum-v1"]', 'tasks = ["Pendulum-v1", "half-cheetah"]')
    blocks += """
[[variant]]
name = "long"
algo = "sac"
tasks = ["Pendulum-v1"]
steps = 400

[[variant]]
name = "long"
algo = "sac"
tasks = ["half-cheetah"]
steps = 500
"""
    file.write_text(blocks)
    steps = {(run.label, run.task.name): run.task.steps for run in load_study(str(file)).runs()}
    assert steps["long", "Pendulum-v1"] == 400
    assert steps["long", "half-cheetah"] == 500
    assert steps["sac", "Pendulum-v1"] == 300
    text = TINY.replace('algo = "sac"', 'algo = "sac"\nsteps = 0')
    assert "steps must be a whole number above 0" in mistake(tmp_path, text)


def test_a_task_of_a_study_may_have_wrappers(tmp_path: Path) -> None:
    file = tmp_path / "wrapped.toml"
    text = (
        'tasks = ["Pendulum-v1"]\n[task."Pendulum-v1"]\n'
        'wrappers = [{ wrapper = "action-repeat", times = 2 }]\n[[variant]]\nalgo = "sac"\n'
    )
    file.write_text(text)
    (task,) = load_study(str(file)).tasks
    assert task.wrappers == [{"wrapper": "action-repeat", "times": 2}]
    assert "'none'" in mistake(tmp_path, text.replace("action-repeat", "none"))


def test_the_study_of_published_returns_trains_the_settings_that_were_published() -> None:
    study = load_study(str(Path(__file__).parents[1] / "benchmarks/studies/published.toml"))
    runs = [run for run in study.runs() if run.seed == 0]
    sac = [run for run in runs if run.algo == "sac"]
    assert {(run.config.warmup, run.config.alpha_loss) for run in sac} == {(5_000, "plain")}
    assert sorted((run.config.lr, run.config.alpha_lr or run.config.lr) for run in sac) == [
        (3e-4, 1e-3),
        *[(1e-3, 1e-3)] * 3,
    ]
    steps = {(run.algo, run.task.name): run.task.steps for run in runs}
    assert steps["flashsac", "Humanoid-v4"] == 500_000
    assert steps["redq", "HalfCheetah-v4"] == steps["droq", "HalfCheetah-v4"] == 100_000
    assert {*steps.values()} == {100_000, 250_000, 500_000}
    assert len(runs) == 12


def test_a_variant_with_its_own_seeds_shares_the_cohort(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'tasks = ["ant"]\nseeds = "0:2"\n[[variant]]\nalgo = "sac"\n'
        '[[variant]]\nname = "colder"\nalgo = "sac"\nset = { alpha = 0.1 }\nseeds = [1, 7, 9]\n'
    )
    study = load_study(str(file))
    seeds = {(run.label, run.seed) for run in study.runs()}
    assert seeds == {("sac", 0), ("sac", 1), ("colder", 1), ("colder", 7), ("colder", 9)}
    assert [len(cohort.runs) for cohort in plan(study, tmp_path / "study", PLENTY)] == [5]
    assert {(run.label, run.seed) for run in study.with_seeds((3,)).runs()} == {
        ("sac", 3),
        ("colder", 3),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'tasks = ["ant"]\nsedes = "0:5"\n[[variant]]\nalgo = "sac"',
            "line 2: a study has no key 'sedes'; did you mean seeds",
        ),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sca"',
            "line 3: Unknown algorithm 'sca'; did you mean sac",
        ),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sac"\nset = { xi = 0.1 }',
            "sac has no setting 'xi'",
        ),
        ('tasks = []\n[[variant]]\nalgo = "sac"', "line 1: a study needs at least one task"),
        ('tasks = ["ant"]\n', "a study needs at least one variant"),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sac"\nsweep = { alpha = [] }',
            "the sweep over alpha has no values",
        ),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sac"\n[[variant]]\nalgo = "sac"',
            "two variants are called 'sac'",
        ),
        (
            'tasks = ["ant"]\nbaseline = "ddpg"\n[[variant]]\nalgo = "sac"',
            "line 2: the baseline 'ddpg' is not a variant",
        ),
        (
            'tasks = ["ant"]\nseeds = "5:2"\n[[variant]]\nalgo = "sac"',
            "line 2: There are no seeds in '5:2'",
        ),
        (
            'seeds = "0:5"\ntasks = ["ant"]\n[[variant]]\nalgo = "sac"\nseeds = "5:2"',
            "line 5: There are no seeds in '5:2'",
        ),
        ('tasks = ["amt"]\n[[variant]]\nalgo = "sac"', "line 1: Unknown task or environment 'amt'"),
        (
            'tasks = ["ant"]\n[task.humanoid]\nsteps = 5\n[[variant]]\nalgo = "sac"',
            "line 2: [task.humanoid] is for a task",
        ),
        (
            'tasks = ["ant"]\n[options]\nwrokers = 5\n[[variant]]\nalgo = "sac"',
            "line 3: [options] has no key 'wrokers'",
        ),
        (
            'kind = "tabel-1"\ntasks = ["ant"]\n[[variant]]\nalgo = "sac"',
            "line 1: unknown kind 'tabel-1'; did you mean table-1",
        ),
        (
            'kind = "qqq"\ntasks = ["ant"]\n[[variant]]\nalgo = "sac"',
            "line 1: unknown kind 'qqq'; use one of comparison, table-1",
        ),
        ("tasks = [", "wrong.toml is not a valid TOML file: "),
        (
            'tasks = ["ant", "ant"]\n[[variant]]\nalgo = "sac"',
            "line 1: the task 'ant' is listed twice",
        ),
        (
            'tasks = [1]\n[[variant]]\nalgo = "sac"',
            "line 1: tasks must be a list of names, not [1]",
        ),
        ('tasks = ["ant"]\nvariant = [1]', "line 2: variant must be a list of tables, not [1]"),
        (
            'tasks = ["ant"]\nset = 3\n[[variant]]\nalgo = "sac"',
            "line 2: set must be a table, not 3",
        ),
        (
            'tasks = ["ant"]\ntask = 3\n[[variant]]\nalgo = "sac"',
            "line 2: task must be a table of tables, not 3",
        ),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sac"\nsweep = 3',
            "line 4: sweep must be a table, not 3",
        ),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sac"\nname = 3',
            "line 4: name must be a string, not 3",
        ),
        (
            'tasks = ["ant"]\n[[variant]]\nalgo = "sac"\ntasks = ["nope"]',
            "line 4: the variant 'sac' is for 'nope', which is not a task of the study",
        ),
        (
            'tasks = ["ant"]\n[task.ant]\nsteps = "b"\n[[variant]]\nalgo = "sac"',
            "line 3: steps must be a whole number above 0, not 'b'",
        ),
        (
            'tasks = ["ant"]\n[options]\nworkers = "x"\n[[variant]]\nalgo = "sac"',
            "line 3: workers must be auto or a whole number at least 0, not 'x'",
        ),
        (
            'tasks = ["ant"]\n[options]\ncheckpoint_every = "x"\n[[variant]]\nalgo = "sac"',
            "line 3: checkpoint_every must be a whole number at least 1, not 'x'",
        ),
        (
            'tasks = ["ant"]\n[options]\nstart_from = "x"\n[[variant]]\nalgo = "sac"',
            "line 3: [options] has no key 'start_from'",
        ),
    ],
)
def test_a_mistake_in_a_definition_is_reported_with_its_line(
    text: str, expected: str, tmp_path: Path
) -> None:
    told = mistake(tmp_path, text)
    assert expected in told
    assert re.search(r"[^.?][.?]$", told)  # one sentence, ended once


def test_the_documentation_shows_a_study_that_can_be_read_and_names_every_key(
    tmp_path: Path,
) -> None:
    docs = Path(__file__).parents[1] / "docs"
    text = "".join((docs / page).read_text() for page in ("studies.md", "study-files.md"))
    example, config = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "shots.toml").write_text(example)
    assert f"{len(load_study(str(tmp_path / 'shots.toml')).runs())} runs" in text
    for name in (*FORMAT["study"], *FORMAT["variant"], *FORMAT["task"], *OPTIONS, *KINDS):
        assert f"`{name}`" in text, name
    (tmp_path / "train.toml").write_text(config)
    command = parse(["train", "--config", str(tmp_path / "train.toml")])
    assert isinstance(command, Train)
    assert (command.task, command.algo, command.stop_when_solved) == ("Pendulum-v1", "sac", True)
    assert command.settings == [["alpha=0.1,0.2"], ["width=64"]]


def test_a_definition_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(UserError, match=r"wrong\.toml is not a valid TOML file"):
        load_study(str(tmp_path / "wrong.toml"))


def test_an_unknown_study_gets_similar_names() -> None:
    with pytest.raises(UserError, match=r"'table1'.*table-1.*list studies"):
        load_study("table1")


def test_cohorts_are_split_to_fit_the_memory() -> None:
    runs = load_study("table-1").runs()[:5]
    assert [len(part) for part in split_by_memory(runs, cohort_bytes(runs[:1]) * 2)] == [2, 2, 1]
    with pytest.raises(UserError, match=r"needs .* GB"):
        split_by_memory(runs, 1000)


def test_a_study_trains_each_identity_once_and_gives_it_every_name(
    tiny: Path, tmp_path: Path
) -> None:
    notes, root = Notes(), tmp_path / "study"
    study = load_study(str(tiny))
    assert run_study(study, root, notes, parallel=1).complete
    assert notes.outcomes == ["complete", "complete"]
    runs = {path.name: read_run(path) for path in root.glob("experiments/*/runs/*")}
    assert set(runs) == {
        f"{label}-seed{seed}" for label in ("sac", "pac", "pac again") for seed in (0, 1)
    }
    assert all(run.status == "finished" and len(run.episodes) == 6 for run in runs.values())
    assert runs["pac-seed1"].episodes == runs["pac again-seed1"].episodes
    expected = json.loads((root / "study.json").read_text())["expected_runs"]
    assert {run["run"] for run in expected} == set(runs)

    again = Notes()
    assert run_study(study, root, again, parallel=1).complete
    assert again.outcomes == []  # nothing is trained twice

    assert run_study(replace(study, seeds=(0, 1, 2)), root, again, parallel=2).complete
    assert again.outcomes == ["complete", "complete"]
    assert len(list(root.glob("experiments/*/runs/*"))) == 9


def test_runs_in_an_archive_are_not_retrained_and_new_runs_are_added(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pac4sac.report.report.write_report", lambda paths, out: (paths, out))
    whole, archive = load_study(str(tiny)), tmp_path / "archive"
    study = replace(whole, variants=whole.variants[:1])

    def trained_in(folder: str, study: Study) -> set[str]:
        notes = Notes()
        result, report = train_and_report(
            study, tmp_path / folder, notes, options={}, into=archive, parallel=1
        )
        assert result.complete
        assert report == ([archive], tmp_path / folder / "report")  # which is on all of it
        assert len(notes.outcomes) == len(list((tmp_path / folder).glob("experiments/*")))
        return {path.name for path in (tmp_path / folder).glob("experiments/*/runs/*")}

    assert trained_in("first", study.with_seeds((1,))) == {"sac-seed1"}
    assert trained_in("second", study) == {"sac-seed0"}
    assert trained_in("third", study) == set()
    assert [(run.label, run.seed) for run in read_runs(archive)] == [("sac", 0), ("sac", 1)]
    assert main(["study", "plan", str(tiny), "--into", str(archive), "--variants", "sac"]) == 0
    assert "has all runs of tiny; nothing is left to train." in capsys.readouterr().out


def test_a_search_on_four_tasks_has_separate_seeds_and_limited_cost() -> None:
    study = load_study("search-mixture")
    assert min(study.seeds) >= 1000
    assert len(study.tasks) == 4
    # 15,000 run-steps a second are done on an H200
    assert sum(run.task.steps for run in study.runs()) < 16e6


def test_an_interrupted_study_continues_to_the_same_result(tiny: Path, tmp_path: Path) -> None:
    study = load_study(str(tiny))

    class StopSoon(Notes):
        def progress(self, cohort: PlannedCohort, step: int, steps: int) -> None:
            stop.reason = StopReason("a test")

    stop = StopRequest()
    root = tmp_path / "interrupted"
    cohorts = plan(study, root, PLENTY)
    begin(study, root, cohorts, {})
    assert run_local(cohorts, 1, stop, StopSoon()) == []
    assert not all(cohort.is_done() for cohort in cohorts)
    assert run_study(study, root, Notes(), parallel=1).complete
    assert run_study(study, tmp_path / "straight", Notes(), parallel=1).complete
    for run in (tmp_path / "straight").glob("experiments/*/runs/*"):
        (other,) = root.glob(f"experiments/*/runs/{run.name}/episodes.jsonl")
        assert read_jsonl(other) == read_jsonl(run / "episodes.jsonl")


def test_a_stop_before_a_cohort_starts_is_not_a_failure(tiny: Path, tmp_path: Path) -> None:
    study, root, notes = load_study(str(tiny)), tmp_path / "study", Notes()
    cohorts = plan(study, root, PLENTY)
    begin(study, root, cohorts, {})
    stop = StopRequest(max_minutes=0.001)  # over while the child still imports
    assert run_local(cohorts, 2, stop, notes) == []
    assert set(notes.outcomes) <= {"stopped"}


def test_shorter_cohorts_have_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"humanoid": 4e-4, "half-cheetah": 2e-4, "cartpole-swingup": 0.0}
    monkeypatch.setattr("pac4sac.studies.plan.simulator_seconds", lambda task: costs[task.name])
    long, short, shortest = (
        # 500, 250 and 40 thousand steps
        PlannedCohort(Path("unused"), tuple(make_runs(TASKS[name], "sac", "default", [0], {})), 0)
        for name in costs
    )
    assert niceness(long, [short, shortest]) == 0
    assert niceness(short, [long]) == 2  # 50 seconds against 200: 3 × (1 − 1/4), rounded
    assert niceness(shortest, [long]) == 3
    assert niceness(shortest, []) == 0


def test_a_failed_cohort_does_not_stop_other_cohorts(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, root, notes = load_study(str(tiny)), tmp_path / "study", Notes()
    cohorts = plan(study, root, PLENTY)
    begin(study, root, cohorts, {})
    (cohorts[0].folder / "experiment.json").write_text("{")
    failures = run_local(cohorts, 1, StopRequest(), notes)
    assert sorted(notes.outcomes) == ["complete", "failed"]
    monkeypatch.setattr("pac4sac.studies.run.run_local", lambda *_: failures)
    with pytest.raises(UserError, match=r"1 of 2 cohorts failed.*damaged"):
        run_study(study, tmp_path / "other", notes)


def test_a_study_reports_that_a_backend_does_not_work(
    tiny: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    notes = Notes()
    assert run_study(
        load_study(str(tiny)), tmp_path / "study", notes, parallel=1, backend="compiled"
    ).complete
    assert len(notes.warnings) == 2  # one from each cohort
    assert all(w.startswith("The compiled backend was replaced by eager: ") for w in notes.warnings)
    assert all("no-compiler" in w for w in notes.warnings)


def test_a_study_refuses_start_from(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="omit start_from"):
        run_study(load_study(str(tiny)), tmp_path / "study", Notes(), start_from="agent")
    assert not (tmp_path / "study").exists()


def test_a_study_can_be_planned_for_gpus_of_a_cluster_without_a_local_gpu(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    study = load_study(str(tiny))
    place = place_of(study, "ray", PLENTY, {"device": "cuda"})
    assert (place.on_gpu, place.here, place.memory) == (True, False, PLENTY)
    assert not place_of(study, "ray", PLENTY, {}).on_gpu  # TINY says cpu
    with pytest.raises(UserError, match="with --memory"):
        place_of(study, "ray", None, {"device": "cuda"})
    with pytest.raises(UserError, match="No CUDA device is available here"):
        place_of(study, "local", PLENTY, {"device": "cuda"})


def test_options_of_a_second_call_only_apply_to_cohorts_that_have_not_started(
    tiny: Path, tmp_path: Path
) -> None:
    def checkpoint_every(folder: Path) -> int:
        return json.loads((folder / "experiment.json").read_text())["options"]["checkpoint_every"]

    study = load_study(str(tiny))
    cohorts = plan(study, tmp_path, PLENTY)
    begun, waiting = cohorts[0].folder, cohorts[1].folder
    begin(study, tmp_path, cohorts, {})
    (begun / "cohorts").mkdir()
    with pytest.warns(UserWarning, match=r"was started with checkpoint_every=100") as told:
        begin(study, tmp_path, plan(study, tmp_path, PLENTY), {"checkpoint_every": 50})
    assert len(told) == 1
    assert [checkpoint_every(begun), checkpoint_every(waiting)] == [100, 50]


def test_a_study_refuses_the_folder_of_another_study(tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(TINY)
    run_study(load_study(str(tiny)), tmp_path / "study", Notes(), parallel=1)
    with pytest.raises(UserError, match="belongs to the study 'tiny'"):
        run_study(load_study(str(other)), tmp_path / "study", Notes())


def test_running_a_part_of_a_study_keeps_all_expected_runs(tiny: Path, tmp_path: Path) -> None:
    study = load_study(str(tiny))
    begin(study, tmp_path, [], {})
    before = json.loads((tmp_path / "study.json").read_bytes())
    begin(replace(study, seeds=(1,)), tmp_path, [], {})
    assert json.loads((tmp_path / "study.json").read_bytes()) == before
    begin(replace(study, seeds=(5,)), tmp_path, [], {})
    seeds = [
        row["seed"] for row in json.loads((tmp_path / "study.json").read_bytes())["expected_runs"]
    ]
    assert seeds == [0, 1] * 3 + [5] * 3


@pytest.mark.parametrize("content", ["[]", "{}", "{", '{"study": "tiny", "expected_runs": [1]}'])
def test_a_damaged_study_is_reported(content: str, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(UserError, match=r"study\.json is damaged"):
        begin(load_study(str(tiny)), tmp_path, [], {})


def test_the_cost_study_measures_every_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pac4sac.studies.cost.MEASURED_STEPS", 20)
    study = load_study("cost")
    small = {"width": 8, "depth": 1, "batch": 4, "warmup": 10, "updates_per_step": 1}
    variants = tuple(
        replace(v, settings={**small, **({"shots": 2} if v.algo == "pac4sac" else {})})
        for v in study.variants
    )
    study = replace(study, variants=variants, repetitions=2)
    computing = {"device": "cpu", "threads": 1, "backend": "eager"}
    assert run_study(study, tmp_path, Notes(), **computing).complete
    rows = json.loads((tmp_path / "cost.json").read_text())["rows"]
    assert [row["algo"] for row in rows] == ["ddpg", "sac", "sac-nr", "sac-fpi", "pac4sac"]
    assert all(
        len(row["seconds_per_1000_steps"]) == 2 and min(row["seconds_per_1000_steps"]) > 0
        for row in rows
    )


def test_the_study_of_the_preset_shares_controls_with_another_study() -> None:
    known = {run.identity for run in load_study("controls").runs()}
    runs = load_study("best").runs()
    assert {run.label for run in runs if run.identity in known} == {
        "pac4sac",
        "sac-auto",
        "sac+shooting",
    }
    assert len(runs) == 4 * 6 * 5


def test_controls_of_the_preset_have_its_warm_up_and_updates() -> None:
    configs = {(run.task.name, run.label): run.config for run in load_study("best").runs()}
    early = [(task, label) for task, label in configs if label.endswith("-early")]
    assert len(early) == 4 * 2
    for task, label in early:
        preset = configs[task, "pac4sac-best"]
        assert (configs[task, label].warmup, configs[task, label].updates_per_step) == (
            preset.warmup,
            preset.updates_per_step,
        )
