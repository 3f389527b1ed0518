"""A report on the runs below some folders: HTML, Markdown, LaTeX, CSV, SVG and PDF.

It is a function of the folders: the same folders give the same bytes, whatever their order and whenever it is written.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

from pac4sac.base.errors import UserError
from pac4sac.paper import table_sections as paper_sections
from pac4sac.paper.choosing_sections import calibration_section, search_section
from pac4sac.paper.claims import claims_section
from pac4sac.paper.paper_rows import find_paper_rows
from pac4sac.paper.study_sections import study_sections
from pac4sac.paper.table_sections import Compared
from pac4sac.report import figures, html, record_sections, task_sections
from pac4sac.report import markdown as pages
from pac4sac.report.bias_section import bias_section
from pac4sac.report.cost_section import cost_section
from pac4sac.report.coverage_section import coverage_section
from pac4sac.report.tables import Picture, Section, Table, to_csv, to_latex
from pac4sac.report.threshold_section import threshold_section
from pac4sac.report.variants import group_runs
from pac4sac.runs.collection import Collection, collect

MARK = "report.html"


def write_report(paths: Sequence[Path], out: Path, *, in_pages: bool = False) -> Path:
    """Write the report into the folder `out`, over an earlier one if there is; gives the path of the page. `in_pages`
    is for a repository: Markdown in several files, and neither LaTeX nor PDF."""
    collection = collect([Path(path) for path in paths])
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise UserError(f"{out} holds something that is no report; name another folder with --out.")
    for told in record_sections.left_out(collection):
        warnings.warn(told, stacklevel=2)
    title, facts, sections = compose(collection)
    for folder in (out, out / "tables", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if old.suffix in (".md", ".tex", ".csv", ".svg", ".pdf"):
                old.unlink()
    drawings: dict[str, str] = {}
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table):
            _write(out / "tables" / f"{block.name}.csv", to_csv(block))
            if not in_pages:
                _write(out / "tables" / f"{block.name}.tex", to_latex(block))
        elif isinstance(block, Picture):
            drawings[block.name] = figures.to_svg(block.figure, block.name)
            _write(out / "figures" / f"{block.name}.svg", figures.opaque(drawings[block.name]))
            if not in_pages:
                (out / "figures" / f"{block.name}.pdf").write_bytes(figures.to_pdf(block.figure))
    written = pages.several_files if in_pages else pages.one_file
    for name, text in written(title, facts, sections).items():
        _write(out / name, text)
    _write(out / MARK, html.page(title, facts, sections, drawings))
    return out / MARK


def compose(collection: Collection) -> tuple[str, list[tuple[str, str]], list[Section]]:
    groups = group_runs(collection.runs)
    rows = find_paper_rows(groups)
    tables: dict[str, Sequence[Compared]] = {}
    found: list[Section | None] = []
    for number in (1, 2):
        if written := paper_sections.table_section(number, rows):
            found.append(written[0])
            tables[written[0].name] = written[1]
    found += [paper_sections.shooting_section(rows), *study_sections(groups, rows, collection.studies)]
    found.append(task_sections.across_tasks_section(groups, collection.studies))
    found += [
        task_sections.task_section(members[0].task, members, rows, collection.studies)
        for members in groups.values()
        if any(group.is_result for group in members)
    ]
    found += [bias_section(groups, collection.studies), coverage_section(groups, collection.studies)]
    found += [threshold_section(groups, rows, collection.studies), calibration_section(groups), search_section(groups)]
    found.append(cost_section(collection.costs))
    found.append(record_sections.runs_section(collection, groups))
    found += [record_sections.method_section(), record_sections.provenance_section(collection, groups)]
    summary = record_sections.summary_section(collection, groups, rows, tables)
    found.insert(0, claims_section(groups, rows, collection.costs))
    sections = [summary, *(section for section in found if section is not None)]
    titles = list(dict.fromkeys(study.title for study in collection.studies))
    title = titles[0] if len(titles) == 1 else "Report on " + ", ".join(groups) if groups else "Report"
    return title, record_sections.facts(collection, groups), sections


def main_tables(collection: Collection) -> list[Table]:
    """The first table of the paper's sections, of every task, and of costs."""
    wanted = [section for section in compose(collection)[2] if section.name.startswith(("table-", "task-", "cost"))]
    found = (next((block for block in section.blocks if isinstance(block, Table)), None) for section in wanted)
    return [table for table in found if table is not None]


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
