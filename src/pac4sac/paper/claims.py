"""The claims of the paper, the verdicts of our runs on them, and the section that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from pac4sac.paper.cost import COMPARABLE
from pac4sac.paper.groups import PaperContext
from pac4sac.paper.numbers import TASKS, TEXTS
from pac4sac.paper.verdicts import MARGIN_TEXT
from pac4sac.report.comparison import UNFINISHED
from pac4sac.report.provenance import mixtures
from pac4sac.report.tables import Cell, Section, Table, data, verdict_cell, words
from pac4sac.runs.statistics import Difference, Estimate

HOLDS, IN_PART, CONTRADICTED, NOT_SHOWN = "holds", "in part", "contradicted", "not shown"


@dataclass(frozen=True)
class ClaimTest:
    """Hold the result of one comparison that a claim makes."""

    name: str
    text: str
    speaks_for_it: bool | None = None  # None: not significant
    estimate: Estimate | Difference | None = None  # None: runs in progress or missing
    p: float | None = None
    runs: str = ""


def verdict_of(tests: Sequence[ClaimTest]) -> str:
    """Return the verdict on a claim that makes all of these comparisons."""
    if all(test.estimate is None for test in tests):
        return UNFINISHED
    results = {test.speaks_for_it for test in tests}
    if False in results:
        return CONTRADICTED
    if True not in results:
        return NOT_SHOWN
    return IN_PART if None in results else HOLDS


@dataclass(frozen=True)
class JudgedClaim:
    """Hold a claim on one task or machine, with the comparisons that it makes."""

    study: str  # kind of the study that asks about it
    claim: str
    on: str
    measure: str
    tests: Sequence[ClaimTest]
    shown_in: str = ""  # unit on the page; the CSV has plain returns

    @property
    def verdict(self) -> str:
        return verdict_of(self.tests)

    @property
    def evidence(self) -> str:
        found = "; ".join(f"{test.name} {test.text}" for test in self.tests)
        return f"{self.measure}{self.shown_in}: {found}"


def claims_section(context: PaperContext, judged: Sequence[JudgedClaim]) -> Section | None:
    """Return the section on all claims; its CSV has a line for each comparison."""
    if not judged:
        return None
    row = attrgetter("claim", "on", "verdict", "measure")
    columns = [
        words("Claim", "claim"),
        words("Verdict", lambda claim: verdict_cell(claim.verdict)),
        words("On", "on"),
        words("Evidence", lambda claim: Cell(claim.evidence)),
        data("claim", "on", "verdict", "measure", get=lambda line: row(line[0])),
        data("compared", get=lambda line: line[1].name),
        data("estimate", "low", "high", get=lambda line: line[1].estimate),
        data("p_holm", "runs", get=lambda line: (line[1].p, line[1].runs)),
    ]
    table = Table(
        "claims", "Verdicts", columns, judged, lambda claim: [(claim, test) for test in claim.tests]
    )
    notes = mixtures([*context.rows.table_1.values(), *context.rows.table_2.values()])
    about = TEXTS["claims"].format(comparable=COMPARABLE, margin=MARGIN_TEXT)
    return Section("claims", "Claims of the paper", [table, about, *notes])


def verdict_grid(judged: Sequence[JudgedClaim]) -> Table | None:
    """Return a table of the claims on tasks, with a column for each task."""
    cells: dict[tuple[str, str], Cell] = {}
    for claim in judged:
        if claim.on in TASKS.values():  # claims on cost are on machines
            cells[claim.claim, claim.on] = verdict_cell(claim.verdict, claim.evidence)
    if not cells:
        return None

    def cell(task: str, claim: str) -> Cell:
        return cells.get((claim, task), Cell(""))

    claims = dict.fromkeys(claim for claim, _ in cells)
    judged_tasks = {task for _, task in cells}
    columns = [words("Claim", str)]
    for task in TASKS.values():
        if task in judged_tasks:
            columns.append(words(task, partial(cell, task)))
    caption = "Verdicts on the claims of the paper, based on our runs"
    return Table("claims-by-task", caption, columns, list(claims))
