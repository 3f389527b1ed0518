"""`pac4sac report`."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing
from pac4sac.runs.curve_files import is_curve_file

if TYPE_CHECKING:
    from pac4sac.report.report import WrittenReport


@dataclass(frozen=True)
class Report:
    """Write a report on the runs in some folders: HTML, Markdown, LaTeX, CSV, SVG and PDF."""

    # Read these experiment, study or run folders, archives, or CSV files of learning curves.
    folders: arguments.Folders
    # Write the report into this folder.
    out: Annotated[Path | None, arguments.optional("DIR", "report/ in the first folder")] = None
    # Write Markdown pages for a repository, without LaTeX and PDF.
    pages: bool = False
    # Compare the runs with the tables, claims and published returns of the paper.
    paper: bool = False
    open: bool = False  # Open the report in the browser.

    def run(self, console: Console) -> int:
        if not self.folders:
            raise UserError(
                "report needs at least one folder, as in: pac4sac report experiments/study-smoke."
            )
        out = self.out or self.folder_of_runs() / "report"
        with writing(out):
            report = self.write(out)
        say(console, f"Report: {report.page}")
        if self.open and not webbrowser.open(report.page.resolve().as_uri()):
            say(console, "No browser was found; open the page on another machine.")
        return 0

    def folder_of_runs(self) -> Path:
        """Return the first folder that is not a file of curves."""
        for folder in self.folders:
            if not is_curve_file(folder):
                return folder
        raise UserError("A report on CSV files alone needs an output folder; give one with --out.")

    def write(self, out: Path) -> "WrittenReport":
        """Write the report, with the sections on the paper if `paper` is set."""
        if self.paper:
            from pac4sac.paper.report import write_report
        else:
            from pac4sac.report.report import write_report

        return write_report(self.folders, out, in_pages=self.pages)
