"""The report on the reproduction of the paper: its tables and claims compared with our runs."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pac4sac.paper.answers import study_answers
from pac4sac.paper.calibration import calibration_section
from pac4sac.paper.claims import JudgedClaim, claims_section, verdict_grid
from pac4sac.paper.cost import paper_cost_section
from pac4sac.paper.exploration import exploration_section
from pac4sac.paper.groups import PaperContext, context_of, coverage_baseline
from pac4sac.paper.judging import judge_claims
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS, TEXTS
from pac4sac.paper.published import published_returns, published_section
from pac4sac.paper.study_sections import study_sections
from pac4sac.paper.table_sections import shooting_section, table_section
from pac4sac.paper.verdicts import MARGIN_TEXT
from pac4sac.report import provenance
from pac4sac.report.across_tasks import AcrossTasks, across_tasks_section
from pac4sac.report.answers import (
    answers_in_brief,
    answers_on_tasks,
    compared_tasks,
    summary_section,
)
from pac4sac.report.bias_and_coverage import bias_section, coverage_section
from pac4sac.report.report import WrittenReport, task_sections, write_sections
from pac4sac.report.search import chosen_section
from pac4sac.report.sections import threshold_section
from pac4sac.report.tables import Picture, Section
from pac4sac.report.uncertainty import uncertainty_section
from pac4sac.runs.collection import collect


def read_context(paths: Sequence[Path]) -> PaperContext:
    return context_of(collect([Path(path) for path in paths]))


def write_report(paths: Sequence[Path], out: Path, *, in_pages: bool = False) -> WrittenReport:
    """Write the paper's report on all runs below the paths into the folder `out`."""
    context = read_context(paths)
    return write_sections(context, compose(context), out, in_pages=in_pages)


def compose(context: PaperContext) -> list[Section]:
    """Return the sections: answers first, then the results behind them."""
    collection, judged = context.collection, judge_claims(context)
    across_section, overview = _across_tasks(context)
    tables = [table_section(table) for table in context.rows.tables if table.variants]
    published = published_section(published_returns(context))
    comparisons = {
        section.name: str(section.blocks[0]) for section in (*tables, published) if section
    }
    method = [text.format(seeds=SEEDS, margin=MARGIN_TEXT) for text in TEXTS["method"]]
    sections = [
        _summary(context, judged, comparisons, overview),
        claims_section(context, judged),
        *tables,
        published,
        shooting_section(context.rows.shooting),
        *study_sections(context),
        exploration_section(context),
        across_section,
        *task_sections(context),
        bias_section(context),
        uncertainty_section(context),
        coverage_section(context, partial(coverage_baseline, collection.studies)),
        threshold_section(context, TEXTS["threshold"]),
        calibration_section(context),
        chosen_section(context, "search"),
        paper_cost_section(collection.costs, context.rows.table_1),
        provenance.runs_section(context),
        provenance.method_section(method),
        provenance.provenance_section(context),
    ]
    return [section for section in sections if section is not None]


def _across_tasks(context: PaperContext) -> tuple[Section | None, Picture | None]:
    # On other tasks than the paper's, a label such as sac can have other settings.
    titles = [title for title, of in context.variants.items() if of[0].task.name in PAPER_TASKS]
    return across_tasks_section(AcrossTasks(context, titles)) or (None, None)


def _summary(
    context: PaperContext,
    judged: Sequence[JudgedClaim],
    comparisons: dict[str, str],
    overview: Picture | None,
) -> Section:
    answers = study_answers(context, judged, comparisons)
    on_tasks = answers_in_brief if answers else answers_on_tasks
    answers += on_tasks(context, compared_tasks(context))
    return summary_section(context, answers, verdict_grid(judged), overview)
