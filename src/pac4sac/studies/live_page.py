"""A live page of a study that is training, made from its run folders. The page is read-only, is
served to this machine only, and ends with the study."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pac4sac.base.errors import UserError
from pac4sac.base.text import duration
from pac4sac.studies.watcher import Watcher

if TYPE_CHECKING:
    from pac4sac.report.tables import Table
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort

LOOPBACK = "127.0.0.1"
REFRESH = 15  # seconds between two readings of the folders
# The page loads nothing from other sites, and no other page may embed it.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SCRIPT = f"""<p id="ended" role="status" hidden
style="position: fixed; inset: auto 0 0 0; margin: 0; padding: 1em; text-align: center;
background: #222; color: #fff">
The study has ended; its report is in its folder.</p>
<script>
let touched = 0;
// Do not reload while someone uses the page.
addEventListener("pointerdown", () => {{ touched = Date.now(); }});
function look() {{
  const busy = document.hidden || Date.now() - touched < 60000;
  const banner = document.getElementById("ended");
  const end = () => {{ banner.hidden = false; }};
  if (!busy) fetch("/progress.json").then(() => location.reload(), end);
}}
setInterval(look, {1000 * REFRESH});
</script>
</body>"""


@dataclass
class CohortProgress:
    """Hold the progress of a cohort."""

    title: str
    runs: int
    steps: int
    step: int = 0
    state: str = "waiting"
    began: tuple[float, int] | None = None  # time and step at which this session started it

    @property
    def steps_made(self) -> int:
        """Return the number of steps made in this session."""
        return self.step - self.began[1] if self.began else 0

    @property
    def seconds_left(self) -> float | None:
        """Return the remaining seconds at the pace of this session, or None if unknown."""
        if self.state != "training" or self.began is None or self.steps_made <= 0:
            return None
        elapsed = time.monotonic() - self.began[0]
        return (self.steps - self.step) * elapsed / self.steps_made


class LivePage(Watcher):
    """Serve the page inside a `with` block, and forward all calls to another watcher."""

    def __init__(self, watcher: Watcher, port: int = 0) -> None:
        self.watcher, self.title, self.root = watcher, "A study", Path()
        self.cohorts: dict[Path, CohortProgress] = {}
        self.drawing, self.drawn, self.drawn_at = threading.Lock(), b"", -float(REFRESH)
        if not 0 <= port < 2**16:
            raise UserError(f"--port must be between 0 (any free port) and 65535, not {port}.")
        self.server = _server_at(port)
        self.server.live, self.port = self, int(self.server.server_address[1])
        self.address = f"http://{LOOPBACK}:{self.port}/"

    def __enter__(self) -> "LivePage":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def planned(
        self, study: "Study", root: Path, cohorts: Sequence["PlannedCohort"], memory: int
    ) -> None:
        self.title, self.root = study.title, root
        self.cohorts = {c.folder: CohortProgress(c.title, len(c.runs), c.steps) for c in cohorts}
        for cohort in cohorts:
            if cohort.is_done():
                shown = self.cohorts[cohort.folder]
                shown.step, shown.state = cohort.steps, "complete"
        self.watcher.planned(study, root, cohorts, memory)

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        shown = self.cohorts[cohort.folder]
        shown.step, shown.steps, shown.state = step, steps, "training"
        shown.began = shown.began or (time.monotonic(), step)
        self.watcher.progress(cohort, step, steps)

    def warning(self, cohort: "PlannedCohort", sentence: str) -> None:
        self.watcher.warning(cohort, sentence)

    def ended(self, cohort: "PlannedCohort", outcome: str, reason: str) -> None:
        self.cohorts[cohort.folder].state = f"{outcome}: {reason}" if reason else outcome
        self.watcher.ended(cohort, outcome, reason)

    # --- content of the page

    def data(self) -> bytes:
        """Return the progress of all cohorts as JSON."""
        names = ("title", "runs", "step", "steps", "state", "seconds_left")
        rows = [
            {name: getattr(cohort, name) for name in names}
            for cohort in list(self.cohorts.values())
        ]
        return json.dumps(
            {"study": self.title, "seconds_left": self.seconds_left(), "cohorts": rows}
        ).encode()

    def seconds_left(self) -> float | None:
        """Return the remaining seconds of all cohorts at the pace of this session, or None if
        unknown."""
        cohorts = self._cohorts_in("waiting", "training", "complete")
        made = sum(cohort.steps_made for cohort in cohorts)
        if not made:
            return None
        first, _ = min(cohort.began for cohort in cohorts if cohort.began)
        left = sum(cohort.steps - cohort.step for cohort in cohorts)
        return left * (time.monotonic() - first) / made

    def _cohorts_in(self, *states: str) -> list[CohortProgress]:
        """Return the cohorts in one of these states."""
        return [cohort for cohort in list(self.cohorts.values()) if cohort.state in states]

    def page(self) -> bytes:
        """Return the page. It is redrawn only every few seconds, because training needs the
        cores."""
        with self.drawing:
            if time.monotonic() - self.drawn_at >= REFRESH:
                self.drawn, self.drawn_at = self._draw().encode(), time.monotonic()
            return self.drawn

    def _draw(self) -> str:
        from pac4sac.report.curves import NO_CURVES, curves_of
        from pac4sac.report.page import html_page
        from pac4sac.report.report import read_context  # matplotlib takes a second to import
        from pac4sac.report.tables import Section

        states, left = [cohort.state for cohort in list(self.cohorts.values())], self.seconds_left()
        facts = [(f"{states.count('complete')} of {len(states)}", "cohorts complete")]
        facts += [(f"about {duration(left)}", "left")] if left is not None else []
        try:
            curves = curves_of(read_context([self.root]), self.root)
        except UserError:  # there are no runs yet
            curves = NO_CURVES
        cohorts = Section("cohorts", "Cohorts", [self._table()])
        return html_page(self.title, facts, [cohorts], {}, curves).replace("</body>", SCRIPT)

    def _table(self) -> "Table":
        from pac4sac.report.tables import Column, Table, words

        def left(cohort: CohortProgress) -> str | None:
            return None if cohort.seconds_left is None else duration(cohort.seconds_left)

        columns = [
            words("Cohort", "title"),
            words("State", "state"),
            Column("Runs", "runs"),
            Column("Step", lambda cohort: f"{cohort.step:,} of {cohort.steps:,}"),
            Column("Done", lambda cohort: f"{cohort.step / max(1, cohort.steps):.0%}"),
            Column("Time left", left),
        ]
        return Table("cohorts", "The cohorts of the study", columns, list(self.cohorts.values()))


class _Server(ThreadingHTTPServer):
    live: LivePage

    @cached_property
    def names(self) -> set[str]:
        """Return the accepted Host headers; others are refused, so no other site can resolve to
        this page."""
        return {f"{host}:{self.server_address[1]}" for host in (LOOPBACK, "localhost")}

    def handle_error(self, *_: Any) -> None:
        """Ignore disconnected browsers; the terminal shows the study."""


def _server_at(port: int) -> _Server:
    """Return a server at a port of this machine."""
    try:
        return _Server((LOOPBACK, port), _Handler)
    except OSError as error:
        raise UserError(
            f"The live page cannot be served on port {port} ({error.strerror or error}); omit "
            "--port to use any free port."
        ) from error


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds to wait for a silent client

    def do_GET(self) -> None:
        live = self.server.live
        served = {
            "/": ("text/html; charset=utf-8", live.page),
            "/progress.json": ("application/json", live.data),
        }
        if self.headers.get("Host") not in self.server.names:
            self.send_error(421, explain="This page is available on this machine only.")
        elif self.path not in served:
            self.send_error(404)
        else:
            kind, make = served[self.path]
            content = make()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

    do_HEAD = do_GET

    def end_headers(self) -> None:
        for name, value in (
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Write nothing; the terminal shows the study."""
