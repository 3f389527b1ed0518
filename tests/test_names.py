"""Names of files: another one for every text, none that leads elsewhere, and no link that does."""

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import report_folders
import tiny_experiments as tiny
from hypothesis import given
from hypothesis import strategies as st

import pac4sac
from pac4sac import UserError
from pac4sac.base.text import LONGEST_NAME, file_name
from pac4sac.cli.main import main
from pac4sac.report.folder import check_folder, write_files
from pac4sac.report.report import write_report
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.reading import archived_run, read_run
from pac4sac.training.run import Run

HOSTILE = [
    "../../victim/runs/x",
    "/absolute",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "line\nbreak",
    "nul\0",
    "\ud800",
    "x" * 300,
]


class TestFileNames:
    @pytest.mark.parametrize(
        "name", ["pac4sac", "sac-auto+shooting", "xi=0.01", "Pendulum-v1", "ξ=0.1", "x_1.5"]
    )
    def test_a_valid_file_name_is_unchanged(self, name):
        assert file_name(name) == name

    @given(
        st.text(st.sampled_from("aA.-~ >/ξ"), max_size=6),
        st.text(st.sampled_from("aA.-~ >/ξ"), max_size=6),
    )
    def test_different_texts_have_different_file_names(self, one, other):
        assert (file_name(one) == file_name(other)) == (one == other)

    @given(st.text())
    def test_a_name_stays_in_its_folder_and_is_not_too_long(self, text):
        name = file_name(text)
        assert Path(name).name == name
        assert name not in ("", ".", "..")
        assert not {"/", "\\", "\0", "\n", " "}.intersection(name)
        assert len(name.encode()) <= LONGEST_NAME

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_malicious_name_becomes_a_valid_file_name(self, name):
        assert Path(file_name(name)).parts == (file_name(name),)
        assert "~" in file_name(name)


STUDY = """
tasks = ["Pendulum-v1"]
seeds = "0"
[task.Pendulum-v1]
steps = 60
horizon = 20
[options]
device = "cpu"
backend = "eager"
workers = 0
evaluation_episodes = 0
[set]
width = 8
depth = 1
batch = 8
warmup = 40
[[variant]]
name = "lr >0.001"
algo = "sac"
set = {lr = 0.002}
[[variant]]
name = "lr <0.001"
algo = "sac"
set = {lr = 0.0005}
"""


def test_labels_that_differ_in_invalid_characters_keep_separate_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(STUDY)
    assert main(["study", "run", "mine.toml"]) == 0
    runs = [read_run(path.parent) for path in tmp_path.rglob("run.json")]
    assert {run.label: run.config["lr"] for run in runs} == {
        "lr >0.001": 0.002,
        "lr <0.001": 0.0005,
    }
    assert len(list(tmp_path.rglob("agent.safetensors"))) == 2
    assert main(["study", "status", "mine.toml"]) == 0


def test_published_labels_are_unchanged_folder_names():
    for path in (Path(__file__).parents[1] / "results" / "runs").glob("*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            run = Run(
                **{
                    **dict.fromkeys(("task", "algo", "preset", "config")),
                    "label": line["label"],
                    "seed": 7,
                }
            )
            assert run.id == f"{line['label']}-seed7"


def test_tasks_with_different_options_have_their_own_figures_and_tables(tmp_path):
    for g in (-9.8, 9.8):
        task = report_folders.own_task(env_kwargs={"g": g})
        for algo in ("sac", "ddpg"):
            report_folders.write_run(tmp_path / f"in/{g}", task, algo)
    write_report([tmp_path / "in"], tmp_path / "out")
    for kind, ending in (("tables/task", "csv"), ("figures/learning", "svg")):
        assert len(list((tmp_path / "out").glob(f"{kind}-Pendulum-v1*.{ending}"))) == 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return tiny.train(
        tmp_path_factory.mktemp("names") / "it", seeds=[0], steps=60, evaluation_episodes=0
    ).folder


class TestPaths:
    @pytest.fixture
    def experiment(self, tmp_path, trained) -> Path:
        (tmp_path / "victim").mkdir()
        (tmp_path / "victim" / "notes").write_text("mine")
        return Path(shutil.copytree(trained, tmp_path / "shared" / "it"))

    @pytest.mark.parametrize(
        "label", [name for name in HOSTILE if name.isprintable() or name.isascii()]
    )
    def test_a_label_cannot_be_a_path(self, tmp_path, experiment, label):
        """What it names is trained in a folder of its own, inside, as nothing there can be gone on
        with."""
        about = json.loads((experiment / "experiment.json").read_bytes())
        about["cohorts"][0][0] |= {"label": label, "run": f"{label}-seed0"}
        (experiment / "experiment.json").write_text(json.dumps(about))
        shutil.rmtree(experiment / "cohorts")
        outside = tiny.contents(tmp_path / "victim")
        assert pac4sac.resume(experiment).complete
        assert tiny.contents(tmp_path / "victim") == outside
        assert sorted(path.name for path in tmp_path.iterdir()) == ["shared", "victim"]
        assert len(list((experiment / "runs").iterdir())) == 2

    def test_a_label_with_a_lone_surrogate_is_refused(self, experiment):
        text = (
            (experiment / "experiment.json")
            .read_text()
            .replace('"label": "', '"label": "\\ud800', 1)
        )
        (experiment / "experiment.json").write_text(text)
        with pytest.raises(UserError, match=r"experiment\.json is damaged .*surrogates"):
            pac4sac.resume(experiment)

    def test_two_runs_with_the_same_name_are_refused(self, experiment):
        about = json.loads((experiment / "experiment.json").read_bytes())
        about["cohorts"] *= 2
        (experiment / "experiment.json").write_text(json.dumps(about))
        with pytest.raises(UserError, match="two runs with the same name"):
            pac4sac.resume(experiment)

    @pytest.mark.parametrize("name", HOSTILE[:7])
    def test_the_name_of_a_run_that_is_a_path_is_refused(self, tmp_path, name):
        folder = report_folders.write_run(tmp_path, report_folders.own_task(), run=name)
        with pytest.raises(UserError, match="is not a valid folder name"):
            read_run(folder)
        with pytest.raises(UserError, match="is not a valid folder name"):
            archived_run(tmp_path / "a.jsonl", json.loads((folder / "run.json").read_bytes()))

    LINKS = (
        "runs/sac-seed0/episodes.jsonl",
        "runs/sac-seed0/agent.safetensors",
        "runs/sac-seed0",
        "cohorts/000",
    )

    @pytest.mark.parametrize("place", LINKS)
    def test_resume_does_not_follow_a_link_out_of_the_experiment(self, tmp_path, experiment, place):
        """The target is what it should be, so that nothing but the link is to blame."""
        path, target = experiment / place, tmp_path / "victim" / "target"
        path.rename(target)
        path.symlink_to(target)
        before = tiny.contents(tmp_path / "victim")
        with pytest.raises(UserError, match="leads out of"):
            pac4sac.resume(experiment, steps=90)
        assert tiny.contents(tmp_path / "victim") == before

    @pytest.mark.parametrize("command", ["evaluate", "watch", "certify"])
    def test_an_agent_is_not_read_through_a_link(self, tmp_path, experiment, command, capsys):
        agent, target = (
            experiment / "runs/sac-seed0/agent.safetensors",
            tmp_path / "victim" / "target",
        )
        agent.rename(target)
        agent.symlink_to(target)
        assert main([command, str(experiment)]) == 2
        assert "symbolic link" in capsys.readouterr().err

    def test_a_link_that_the_user_names_or_that_stays_inside_is_followed(
        self, tmp_path, experiment
    ):
        (tmp_path / "latest").symlink_to(experiment)
        run = experiment / "runs/sac-seed0"
        (run / "best.safetensors").symlink_to("agent.safetensors")
        assert pac4sac.load(tmp_path / "latest" / "runs" / "sac-seed0" / "best.safetensors")
        assert pac4sac.resume(tmp_path / "latest", steps=90).complete

    def test_an_atomic_write_replaces_a_link_but_not_its_target(self, tmp_path, experiment):
        run = experiment / "runs/sac-seed0"
        for name in ("certificate.png", "certificate.json"):
            (run / name).symlink_to(tmp_path / "victim" / "notes")
        certificate = pac4sac.certify(run / "agent.safetensors", episodes=4, out=run)
        assert certificate.run == "sac-seed0"
        assert (tmp_path / "victim" / "notes").read_text() == "mine"

    def test_reports_and_archives_read_no_links_out_of_the_folder(self, tmp_path):
        archive = tmp_path / "archive"
        report_folders.write_run(tmp_path / "in", report_folders.own_task())
        add_to_archive([tmp_path / "in"], archive)
        (file,) = (archive / "runs").iterdir()
        file.rename(tmp_path / "elsewhere.jsonl")
        file.symlink_to(tmp_path / "elsewhere.jsonl")
        for read in (pac4sac.results, lambda path: write_report([path], tmp_path / "out")):
            with pytest.raises(UserError, match="symbolic link"):
                read(archive)
        with pytest.raises(UserError, match="symbolic link"):
            add_to_archive([tmp_path / "in"], archive)


class TestReportFolder:
    @pytest.fixture
    def runs(self, tmp_path) -> Path:
        for algo in ("sac", "ddpg"):
            report_folders.write_run(tmp_path / "in", report_folders.own_task(), algo)
        return tmp_path / "in"

    @staticmethod
    def others(out: Path) -> list[Path]:
        return [
            out / "notes.md",
            out / "thesis.pdf",
            out / "tables" / "mine.csv",
            out / "figures" / "mine.svg",
        ]

    def test_a_report_keeps_files_that_it_did_not_write(self, tmp_path, runs):
        out = tmp_path / "out"
        write_report([runs], out)
        before = tiny.contents(out)
        for path in self.others(out):
            path.write_text("mine")
        report_folders.write_run(tmp_path / "more", report_folders.own_task("Hopper-v5"), "sac")
        write_report([runs, tmp_path / "more"], out)
        assert all(path.read_text() == "mine" for path in self.others(out))
        assert "tables/task-Hopper-v5.csv" in tiny.contents(out)
        write_report([runs], out)
        for path in self.others(out):
            path.unlink()
        assert tiny.contents(out) == before  # what the second report had more is gone

    def test_an_older_report_without_a_manifest_keeps_its_files(self, tmp_path, runs):
        out = tmp_path / "out"
        write_report([runs], out)
        (out / "manifest.json").unlink()
        for path in self.others(out):
            path.write_text("mine")
        (out / "report.md").write_text("of an older version")
        with pytest.warns(UserWarning, match=r"1 changed files in .*as report\.md\.kept\."):
            write_report([runs], out)
        assert all(path.read_text() == "mine" for path in self.others(out))
        assert (out / "report.md.kept").read_text() == "of an older version"

    def test_a_changed_file_is_kept_next_to_the_new_one(self, tmp_path, runs):
        out = tmp_path / "out"
        write_report([runs], out)
        for k, name in enumerate(("report.md.kept", "report.md.kept1")):
            (out / "report.md").write_text(f"annotated {k}")
            with pytest.warns(UserWarning, match=name):
                write_report([runs], out)
            assert (out / name).read_text() == f"annotated {k}"
            assert (out / "report.md").read_text().startswith("# ")

    def test_reports_at_the_same_time_take_turns(self, tmp_path):
        def write(report: int) -> None:
            check_folder(tmp_path / "out", "report.html")
            names = [f"tables/{number}.csv" for number in range(15)]
            write_files(tmp_path / "out", dict.fromkeys(names, str(report).encode()))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(8)))
        written = {path.read_text() for path in (tmp_path / "out" / "tables").iterdir()}
        assert len(written) == 1  # all of one report, and nothing else
        assert len(list((tmp_path / "out" / "tables").iterdir())) == 15

    @pytest.mark.parametrize("linked", ["", "tables", "figures"])
    def test_nothing_is_written_or_removed_through_a_linked_folder(
        self, tmp_path, runs, linked, capsys
    ):
        out, victim = tmp_path / "out", tmp_path / "victim"
        write_report([runs], out)
        (out / linked).rename(victim)
        (victim / "notes.csv").write_text("mine")
        (out / linked).symlink_to(victim)
        before = tiny.contents(victim)
        assert main(["report", str(runs), "--out", str(out)]) == 2
        assert "is a symbolic link" in capsys.readouterr().err
        assert tiny.contents(victim) == before

    def test_a_file_that_is_a_link_is_moved_and_its_target_stays(self, tmp_path, runs):
        out, notes = tmp_path / "out", tmp_path / "notes"
        write_report([runs], out)
        notes.write_text("mine")
        (out / "report.md").unlink()
        (out / "report.md").symlink_to(notes)
        with pytest.warns(UserWarning, match="kept"):
            write_report([runs], out)
        assert notes.read_text() == "mine"
        assert os.readlink(out / "report.md.kept") == str(notes)

    def test_a_manifest_cannot_name_files_outside_the_report(self, tmp_path, runs):
        out, notes = tmp_path / "out", tmp_path / "notes.md"
        write_report([runs], out)
        notes.write_text("mine")
        about = json.loads((out / "manifest.json").read_bytes())
        checksum = hashlib.sha256(b"mine").hexdigest()
        about["files"] |= {
            "../notes.md": checksum,
            str(notes): checksum,
            "tables/../../notes.md": checksum,
        }
        (out / "manifest.json").write_text(json.dumps(about))
        write_report([runs], out)
        assert notes.read_text() == "mine"
