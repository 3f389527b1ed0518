"""The page of a study that trains: on this machine alone, read only, and gone when the study
ends."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from report_folders import write_table_1
from test_studies import TINY

from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.studies.live_page import LivePage
from pac4sac.studies.watcher import Watcher


def cohort(folder: Path, title: str, done: int = 0) -> Any:
    return SimpleNamespace(
        folder=folder, title=title, runs=[None, None], steps=1000, is_done=lambda: done == 2
    )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePage]:
    """Of a study with one cohort that is complete, one half through and one that waits."""
    root = tmp_path_factory.mktemp("study")
    write_table_1(root, ["cartpole-swingup"], seeds=2)
    (root / "secret.txt").write_text("nobody's business")
    first, second, third = (
        cohort(root / "a", "complete one", 2),
        cohort(root / "b", "<b>"),
        cohort(root / "c", "last"),
    )
    with LivePage(Watcher()) as page:
        page.planned(SimpleNamespace(title="Is <it> so?"), root, [first, second, third], 0)  # type: ignore[arg-type]
        page.progress(second, 100, 1000)
        page.progress(second, 600, 1000)
        yield page


def ask(address: str, host: str | None = None, method: str = "GET") -> tuple[int, str, Any]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_the_live_page_shows_curves_cohorts_and_the_time_left(live: LivePage) -> None:
    status, page, headers = ask(live.address)
    assert status == 200
    assert '"label":"pac4sac","name":"PAC4SAC"' in page
    assert "1 of 3" in page
    assert "600 of 1,000" in page
    assert "left" in page
    assert "Is &lt;it&gt; so?" in page
    assert "&lt;b&gt;" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    told = json.loads(ask(f"{live.address}progress.json")[1])
    assert [row["step"] for row in told["cohorts"]] == [1000, 600, 0]
    assert 0 < told["cohorts"][1]["seconds_left"] < told["seconds_left"]


def test_the_live_page_serves_no_other_path(live: LivePage) -> None:
    assert live.server.server_address[0] == "127.0.0.1"
    for path in (
        "secret.txt",
        "../secret.txt",
        "%2e%2e/secret.txt",
        "//etc/passwd",
        "?x",
        "report.html",
    ):
        status, text, _ = ask(live.address + path)
        assert status == 404
        assert "business" not in text
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(live.address, method=method)[0] == 501
    assert ask(live.address, method="HEAD")[:2] == (200, "")


def test_requests_with_another_host_header_are_refused(live: LivePage) -> None:
    for host in (
        "evil.example",
        f"evil.example:{live.port}",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{live.port}",
    ):
        for path in ("", "progress.json"):
            status, text, _ = ask(live.address + path, host)
            assert status == 421
            assert "svg" not in text
    assert ask(live.address, f"localhost:{live.port}")[0] == 200


def test_an_occupied_or_invalid_port_is_reported(live: LivePage) -> None:
    with pytest.raises(UserError, match=f"port {live.port} .*omit --port"):
        LivePage(Watcher(), live.port)
    with pytest.raises(UserError, match=r"between 0 .* 65535, not 70000"):
        LivePage(Watcher(), 70_000)


def test_a_study_is_served_only_while_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []

    def train(cohorts: Any, parallel: int, stop: Any, watcher: LivePage, *_: Any) -> list[str]:
        watcher.progress(cohorts[0], 1, cohorts[0].steps)
        pages.append(ask(watcher.address)[1])
        stop.deadline = 0
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pac4sac.studies.run.run_local", train)
    (tmp_path / "tiny.toml").write_text(TINY)
    assert main(["study", "run", "tiny.toml", "--serve"]) == 0
    assert "training" in pages[0]
    address = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("Live page: ")
    )[11:]
    with pytest.raises(urllib.error.URLError):
        ask(address)
