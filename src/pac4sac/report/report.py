"""Write a report on the runs below some folders: HTML, Markdown, LaTeX, CSV, SVG and PDF.

A report is a function of the folders: the same folders give the same bytes, in any order and at any
time. Its content is a list of sections; `compose` makes the sections that suit any runs."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pac4sac.base.files import as_bytes
from pac4sac.report import figures, provenance, search
from pac4sac.report.across_tasks import AcrossTasks, across_tasks_section
from pac4sac.report.answers import answers_on_tasks, compared_tasks, summary_section
from pac4sac.report.bias_and_coverage import bias_section, coverage_section
from pac4sac.report.comparison import Context, VariantGroup, find_baseline
from pac4sac.report.cost import cost_section, machines
from pac4sac.report.curves import curves_of
from pac4sac.report.folder import check_folder, write_files
from pac4sac.report.formats import markdown_files, to_csv, to_latex
from pac4sac.report.grouping import variants_by_task
from pac4sac.report.page import html_page
from pac4sac.report.sections import task_section, threshold_section
from pac4sac.report.style import KNOWN
from pac4sac.report.tables import Answer, Picture, Section, Table
from pac4sac.report.tuning import tuning_section
from pac4sac.report.uncertainty import uncertainty_section
from pac4sac.runs.collection import CHOOSING, Collection, FoundStudy, collect

B = TypeVar("B", Table, Picture)
MARK = "report.html"
ALL_VARIANTS = "All variants"
MAIN_TABLES = (
    "table-",
    "published",
    "task-",
    "cost",
)  # prefixes of sections whose tables a terminal shows


@dataclass(frozen=True)
class WrittenReport:
    page: Path
    context: Context
    main_tables: Sequence[Table]


def read_context(paths: Sequence[Path]) -> Context:
    return context_of(collect([Path(path) for path in paths]))


def context_of(collection: Collection) -> Context:
    """Return the context of a report on these runs, with one group of variants per task."""
    variants = variants_by_task(collection.runs, first_labels=list(KNOWN))
    context = Context(collection, variants, groups={}, baselines={}, companions={})
    groups, baselines = {}, {}
    for title in variants:
        results = context.results(title)
        groups[title] = [VariantGroup(ALL_VARIANTS, results)] if results else []
        baselines[title] = find_baseline(collection.studies, results)
    return Context(collection, variants, groups, baselines, companions={})


def compose(context: Context) -> list[Section]:
    """Return the sections that suit any runs: answers first, then the results behind them."""
    across = across_tasks_section(AcrossTasks(context, context.variants))
    section, overview = across or (None, None)
    sections = [
        summary_section(context, _answers(context), figure=overview),
        section,
        *task_sections(context),
        bias_section(context),
        uncertainty_section(context),
        coverage_section(context),
        threshold_section(context),
        tuning_section(context),
        *(search.chosen_section(context, kind) for kind in CHOOSING),
        cost_section(machines(context.collection.costs)),
        provenance.runs_section(context),
        provenance.method_section(),
        provenance.provenance_section(context),
    ]
    return [section for section in sections if section is not None]


def task_sections(context: Context) -> list[Section]:
    return [task_section(context, title) for title in context.variants if context.results(title)]


def _answers(context: Context) -> list[Answer]:
    """Answer which variant is better or, for runs that only choose a setting, which was chosen."""
    if tasks := compared_tasks(context):
        return answers_on_tasks(context, tasks)
    studies = [study for kind in CHOOSING for study in search.studies_of_kind(context, kind)]
    return [_chosen_answer(context, study) for study in studies]


def _chosen_answer(context: Context, study: FoundStudy) -> Answer:
    chosen = search.chosen_answer(search.chosen_by(context, study))
    return Answer(study.question or study.title, chosen, section=study.kind)


def write_report(paths: Sequence[Path], out: Path, *, in_pages: bool = False) -> WrittenReport:
    """Write the report on all runs below the paths into the folder `out`."""
    context = read_context(paths)
    return write_sections(context, compose(context), out, in_pages=in_pages)


def write_sections(
    context: Context, sections: Sequence[Section], out: Path, *, in_pages: bool
) -> WrittenReport:
    """Write the sections into a folder, replacing an earlier report.

    `in_pages` is for a repository: it writes Markdown in several files, omits figures of detail,
    and writes neither LaTeX nor PDF.
    """
    out = Path(out)
    check_folder(out, MARK)
    for sentence in provenance.left_out(context.collection):
        warnings.warn(sentence, stacklevel=3)
    tables, pictures = _blocks_of(sections, Table), _blocks_of(sections, Picture)
    svgs, pdfs = _draw(pictures, with_pdf=not in_pages)
    files = _table_files(tables, in_pages)
    for picture in pictures:
        if not (in_pages and picture.is_detail):
            files[f"figures/{picture.name}.svg"] = as_bytes(figures.opaque(svgs[picture.name]))
    files |= pdfs
    about = _title(context), provenance.facts(context), sections
    for name, text in markdown_files(*about, in_pages).items():
        files[name] = as_bytes(text)
    drawings = {p.name: figures.inline_svg(svgs[p.name], p.caption) for p in pictures}
    files[MARK] = as_bytes(html_page(*about, drawings, curves_of(context, out)))
    write_files(out, files)
    return WrittenReport(out / MARK, context, main_tables(sections))


def _blocks_of(sections: Sequence[Section], kind: type[B]) -> list[B]:
    """Return the tables, or the pictures, of all sections."""
    blocks = [block for section in sections for block in section.blocks]
    return [block for block in blocks if isinstance(block, kind)]


def _draw(
    pictures: Sequence[Picture], *, with_pdf: bool
) -> tuple[dict[str, str], dict[str, bytes]]:
    """Draw each picture once; return SVG by name and PDF by file name."""
    svgs, pdfs = {}, {}
    for picture in pictures:
        figure = picture.draw()
        svgs[picture.name] = figures.to_svg(figure, picture.name)
        if with_pdf:
            pdfs[f"figures/{picture.name}.pdf"] = figures.to_pdf(figure)
    return svgs, pdfs


def _table_files(tables: Sequence[Table], in_pages: bool) -> dict[str, bytes]:
    files = {f"tables/{table.name}.csv": as_bytes(to_csv(table)) for table in tables}
    if not in_pages:
        files |= {f"tables/{table.name}.tex": as_bytes(to_latex(table)) for table in tables}
    return files


def _title(context: Context) -> str:
    titles = list(dict.fromkeys(study.title for study in context.collection.studies))
    if len(titles) == 1:
        return titles[0]
    return "Report on " + ", ".join(context.task_names) if context.variants else "Report"


def main_tables(sections: Sequence[Section]) -> list[Table]:
    """Return the tables that a terminal shows: those of each main section up to its namesake."""
    shown: list[Table] = []
    for section in sections:
        if section.name.startswith(MAIN_TABLES):
            tables = _blocks_of([section], Table)
            names = [table.name for table in tables]
            last = names.index(section.name) if section.name in names else 0
            shown += tables[: last + 1]
    return shown
