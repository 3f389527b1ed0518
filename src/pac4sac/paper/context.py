"""What all sections of a report are made of, with all that this paper adds to it."""

from dataclasses import dataclass

from pac4sac.paper.families import families, find_baseline
from pac4sac.paper.numbers import PAPER_TASKS
from pac4sac.paper.paper_rows import PaperRows, find_paper_rows
from pac4sac.report.comparison import Context
from pac4sac.report.variants import variants_by_task
from pac4sac.runs.collection import Collection

ORDER = ("pac4sac", "ddpg", "sac", "oac")  # of variants, before all others


@dataclass(frozen=True)
class PaperContext(Context):
    rows: PaperRows


def context_of(collection: Collection) -> PaperContext:
    variants = variants_by_task(collection.runs, list(PAPER_TASKS), ORDER)
    rows = find_paper_rows(variants)
    results = {title: [variant for variant in members if variant.is_result] for title, members in variants.items()}
    ours = [variant for (_, algo), variant in rows.table_1.items() if algo == "pac4sac"]
    return PaperContext(
        collection=collection,
        variants=variants,
        families={title: families(members, rows, collection.studies) for title, members in results.items()},
        baselines={title: find_baseline(collection.studies, members) for title, members in results.items()},
        references={variant.task.title: variant for variant in ours},
        rows=rows,
    )
