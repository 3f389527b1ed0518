"""A run is known by the code that trained it too: what was edited since is told, and trained again
or marked."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from report_folders import task, write_run, write_table_1
from tiny_experiments import OPTIONS, SETTINGS, about, train

import pac4sac
from pac4sac.agents.sac import Sac
from pac4sac.base.errors import UserError
from pac4sac.base.sources import source_checksums
from pac4sac.base.version import package_source
from pac4sac.paper import report as paper_report
from pac4sac.report.grouping import variants_by_task
from pac4sac.report.report import write_report
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.collection import collect
from pac4sac.runs.identity import identity
from pac4sac.runs.reading import read_runs
from pac4sac.studies import run as study_run
from pac4sac.studies.compare import comparison_study
from pac4sac.studies.plan import begin, plan
from pac4sac.tasks import Task
from pac4sac.training.run import Run, make_runs, settings_changed

AGENT = "from pac4sac.agents.sac import Sac\n\n\nclass Mine(Sac):\n    title = 'mine'\n"
WORLD = (
    "import gymnasium\n"
    "from training_environments import Drift\n\n"
    "class Hill(Drift):\n    pass\n\n"
    "gymnasium.register('Hill-v0', 'my_world:Hill', max_episode_steps=30)\n"
)
HILL = Task("hill", "my_world:Hill-v0", 30, steps=60)


@pytest.fixture(scope="module")
def importable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder for all tests, since a module is imported once."""
    folder = tmp_path_factory.mktemp("own")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def own(importable: Path) -> Path:
    """The folder of an agent and an environment of the user's own."""
    (importable / "my_agent.py").write_text(AGENT)
    (importable / "my_world.py").write_text(WORLD)
    return importable


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Cohorts are trained in this process, and noted here."""
    folders: list[Path] = []

    def train_here(cohorts: Any, *_: Any) -> list[str]:
        folders.extend(cohort.folder for cohort in cohorts)
        for cohort in cohorts:
            pac4sac.resume(cohort.folder)
        return []

    monkeypatch.setattr(study_run, "run_local", train_here)
    return folders


def compare(out: Path, **more: Any) -> pac4sac.Comparison:
    return pac4sac.compare(
        HILL,
        ["sac", "my_agent:Mine"],
        seeds=[0],
        settings=SETTINGS,
        steps=60,
        out=out,
        **OPTIONS,
        **more,
    )


def edit(file: Path) -> None:
    file.write_text(file.read_text() + f"# {file.stat().st_size}\nbetter = {file.stat().st_size}\n")


def labels(comparison: pac4sac.Comparison) -> list[str]:
    return [row["variant"] for row in comparison.rows]


def pendulum(algo: str = "sac") -> Run:
    (run,) = make_runs(Task("Pendulum-v1", "Pendulum-v1"), algo, "default", [0], {})
    return run


def test_a_run_stores_checksums_of_custom_and_shipped_modules(own: Path) -> None:
    (run,) = make_runs(HILL, "my_agent:Mine", "default", [0], {})
    assert {"my_agent", "my_world", "pac4sac.agents.sac", "pac4sac.agents.nets"} <= set(run.code)
    assert "pac4sac.agents.crossq" not in run.code
    assert Run.from_description(json.loads(json.dumps(run.describe()))) == run


def test_a_shipped_agent_is_identified_by_its_source_and_simulator() -> None:
    run = pendulum()
    assert {"pac4sac.agents.sac", "pac4sac.agents.base"} <= set(run.code)
    assert run.simulators == {"gymnasium": gymnasium.__version__}


class TestChecksums:
    CODE = "def f(x):\n    return x + 1\n"

    def checksum(self, folder: Path, text: str) -> str:
        (folder / "some_module.py").write_text(text)
        return source_checksums(["some_module"])["some_module"]

    @pytest.mark.parametrize(
        "same",
        [
            "# A comment.\ndef f(x):\n    return x + 1  # another\n",
            'def f(x):\n    """Return more."""\n\n    return (x + 1)\n',
            "def f(x):\n    return (\n        x\n        + 1\n    )\n",
        ],
    )
    def test_ignore_comments_docstrings_and_formatting(self, importable: Path, same: str) -> None:
        assert self.checksum(importable, self.CODE) == self.checksum(importable, same)

    def test_change_with_the_code(self, importable: Path) -> None:
        other = "def f(x):\n    return x + 2\n"
        assert self.checksum(importable, self.CODE) != self.checksum(importable, other)

    def test_ignore_settings_which_a_run_stores(self, importable: Path) -> None:
        declared = 'class C:\n    a: float = per_run({}, ANY, "{}")\n    b = 1\n'
        declared += '    c: float = new_default(B, "c", {})\n'
        one, two = declared.format(0.1, "one", 1), declared.format(0.2, "two", 2)
        assert self.checksum(importable, one) == self.checksum(importable, two)

    def test_cover_modules_of_the_same_folder(self, importable: Path) -> None:
        (importable / "helper_module.py").write_text("x = 1\n")
        (importable / "some_module.py").write_text("import json\nimport helper_module\n")
        assert set(source_checksums(["some_module"])) == {"some_module", "helper_module"}

    def test_omit_modules_without_a_file(self) -> None:
        names = ["nowhere", "nowhere.below", "sys", "__main__", "gymnasium"]
        assert source_checksums(names) == {}


def test_an_edit_changes_the_identity_of_a_run(own: Path) -> None:
    def identity() -> str:
        return make_runs(HILL, "my_agent:Mine", "default", [0], {})[0].identity

    before = identity()
    assert identity() == before
    edit(own / "my_world.py")
    after_the_environment = identity()
    edit(own / "my_agent.py")
    assert len({before, after_the_environment, identity()}) == 3


def test_the_stored_revision_counts_when_a_run_is_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = pendulum()
    stored = run.describe()
    monkeypatch.setattr(Sac, "revision", 2)
    assert Run.from_description(stored).revision == 1
    assert Run.from_description(stored).identity == run.identity
    assert "revision 1 and now has 2" in Run.from_description(stored).edited()


class TestDefaults:
    """Identity is computed from what is stored: today's defaults do not count."""

    def test_a_removed_setting_does_not_change_stored_runs(self) -> None:
        stored = pendulum().describe()
        stored["config"]["removed_setting"] = 0.5
        before = identity(stored)
        with pytest.raises(UserError, match=r"no longer has the settings removed_setting=0\.5"):
            Run.from_description(stored)
        assert identity(stored) == before
        assert "removed_setting" in settings_changed(stored)

    def test_a_changed_default_does_not_change_stored_runs(self) -> None:
        changed = pendulum().describe()
        changed["config"]["warmup"] = 77
        run = Run.from_description(changed)
        assert run.config.warmup == 77
        assert run.identity == identity(changed)


def test_runs_from_another_version_of_the_code_are_reported_and_retrained(
    own: Path, trained: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "study"
    compare(out)
    assert len(trained) == 2
    assert labels(compare(out)) == ["sac", "my_agent:Mine"]
    assert len(trained) == 2  # nothing changed, nothing trained
    edit(own / "my_agent.py")
    with pytest.warns(UserWarning, match="the source of my_agent was edited.*trained again"):
        again = compare(out)
    assert len(trained) == 3
    assert labels(again) == ["sac", "my_agent:Mine"]
    assert trained[2] in {run.folder.parents[1] for run in again.runs}
    assert (
        "was left out, because the same run was also trained by newer code"
        in (out / "report" / "report.md").read_text()
    )
    # An archive of both tells the same.
    add_to_archive([out], tmp_path / "archive")
    assert len(read_runs(tmp_path / "archive")) == 3
    assert len(collect([tmp_path / "archive"]).runs) == 2


def test_a_stale_run_can_be_kept_and_is_marked(
    own: Path, trained: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "study"
    compare(out)
    edit(own / "my_agent.py")
    with pytest.warns(UserWarning, match="are kept and marked"):
        kept = compare(out, keep_stale=True)
    assert len(trained) == 2
    assert labels(kept) == ["sac", "my_agent:Mine (by older code)"]
    assert "my_agent:Mine (by older code)" in (out / "report" / "report.html").read_text()
    (own / "my_agent.py").write_text(AGENT)  # as it was
    assert labels(compare(out)) == ["sac", "my_agent:Mine"]
    assert len(trained) == 2


def test_a_study_retrains_runs_of_an_older_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = comparison_study("Pendulum-v1", ["sac", "ddpg"], [0], SETTINGS | {"width": 8}, 50, None)
    begin(study, tmp_path, plan(study, tmp_path, 10**12), {})
    monkeypatch.setattr(Sac, "revision", 2)
    with pytest.warns(UserWarning, match="revision 1 and now has 2"):
        cohorts = plan(study, tmp_path, 10**12)
    assert [(cohort.folder / "experiment.json").exists() for cohort in cohorts] == [True, False]
    assert cohorts[1].runs[0].algo == "sac"


def test_training_does_not_resume_after_an_edit_of_its_code(own: Path, tmp_path: Path) -> None:
    folder = train(tmp_path / "x", "my_agent:Mine", HILL, steps=60, max_minutes=1e-9).folder
    assert read_runs(folder)[0].status == "interrupted"
    edit(own / "my_world.py")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="the source of my_world was edited"):
        pac4sac.resume(folder)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.warns(UserWarning, match="trained by another version"):
        pac4sac.load(folder / "runs" / "my_agent.Mine-seed0")
    (own / "my_world.py").write_text(WORLD)
    assert pac4sac.resume(folder).complete
    edit(own / "my_world.py")
    assert pac4sac.resume(folder).complete  # nothing is left to train


def test_runs_store_which_package_trained_them(tmp_path: Path) -> None:
    folder = train(tmp_path / "x", seeds=[0], steps=40).folder
    versions = about(folder, "sac-seed0")["versions"]
    assert versions["pac4sac source"] == package_source()
    write_report([folder], tmp_path / "report")
    assert package_source() in (tmp_path / "report" / "report.md").read_text()


class TestAReport:
    CARTPOLE = task("cartpole-swingup")

    def test_never_averages_runs_of_different_code(self, tmp_path: Path) -> None:
        for seed, code in enumerate(({"mine": "a"}, {"mine": "b"})):
            write_run(tmp_path, self.CARTPOLE, "mine:Own", seed, code=code)
        (variants,) = variants_by_task(collect([tmp_path]).runs).values()
        assert [len(variant.runs) for variant in variants] == [1, 1]
        assert all("code=" in variant.label for variant in variants)

    def test_never_averages_runs_of_different_revisions(self, tmp_path: Path) -> None:
        for seed, revision in enumerate((1, 2)):
            write_run(tmp_path, self.CARTPOLE, "sac", seed, revision=revision)
        (variants,) = variants_by_task(collect([tmp_path]).runs).values()
        assert [variant.label for variant in variants] == ["sac (revision=1)", "sac (revision=2)"]


def test_a_plan_imports_nothing_that_the_study_does_not_name(tmp_path: Path) -> None:
    study = comparison_study("Pendulum-v1", ["sac", "ddpg"], [0], SETTINGS, 50, None)
    begin(study, tmp_path, plan(study, tmp_path, 10**12), {})
    for path in tmp_path.glob("experiments/*/experiment.json"):
        path.write_text(path.read_text().replace('"algo": "sac"', '"algo": "nowhere:Sac"'))
    # SAC gets a new folder, since what is in its own is not known.
    assert [
        (cohort.folder / "experiment.json").exists() for cohort in plan(study, tmp_path, 10**12)
    ] == [True, False]


def test_older_code_is_marked_in_the_papers_tables_too(tmp_path: Path) -> None:
    write_table_1(tmp_path / "in", ("cartpole-swingup",), seeds=2)
    study = json.loads((tmp_path / "in" / "study.json").read_text())
    stale = [run.identity for run in read_runs(tmp_path / "in") if run.algo == "sac"]
    study["stale"] = dict.fromkeys(stale, "another identity")
    (tmp_path / "in" / "study.json").write_text(json.dumps(study))
    paper_report.write_report([tmp_path / "in"], tmp_path / "out")
    for table in ("table-1", "table-1-details", "task-cartpole-swingup", "settings"):
        assert "by older code" in (tmp_path / "out" / "tables" / f"{table}.tex").read_text()
