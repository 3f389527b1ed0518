"""Tables that separate two causes of PAC4SAC's lower regret: shooting, with each kind of critic,
and the PAC-Bayes critic, compared with plain ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from pac4sac.paper.groups import PaperContext
from pac4sac.paper.rows import PAPER_SHOTS, at_paper_setting, labelled, task_differences
from pac4sac.report.tables import Column, Table, with_ends, words
from pac4sac.runs.statistics import Difference, Summary, welch_over_strata

TWO, ONE, OURS = "two plain critics (SAC)", "one plain critic", "one PAC-Bayes critic (PAC4SAC)"
ONCE, SHOOTING = 1, PAPER_SHOTS  # candidate actions
# Labels with one candidate and with many; the first three rows differ only in their critics.
CRITICS = {
    TWO: {ONCE: "sac", SHOOTING: "sac+shooting"},
    ONE: {ONCE: "one-plain-critic", SHOOTING: "one-plain-critic+shooting"},
    OURS: {ONCE: "pac4sac-without-shooting", SHOOTING: "pac4sac"},
    "SAC with calibrated α": {ONCE: "sac-calibrated", SHOOTING: "sac-calibrated+shooting"},
    "SAC with learned α": {ONCE: "sac-auto", SHOOTING: "sac-auto+shooting"},
}
ABLATED = ("shots", "critics")  # settings that the rows vary
THREE = [TWO, ONE, OURS]
Side = tuple[str, int]  # a critic and a number of candidates
Regrets = Mapping[Side, Summary]  # regrets on one task
Pair = tuple[Side, Side]  # the first side minus the second


@dataclass(frozen=True)
class AblationRow:
    """Hold a row of either table: regrets, or differences of regrets, by number of candidates."""

    task: str
    name: str
    once: Summary | Difference | None
    shooting: Summary | Difference | None
    overall: Difference | None

    @property
    def numbers(self) -> list[Summary | Difference]:
        """Return the cells that are not empty."""
        found = (self.once, self.shooting, self.overall)
        return [number for number in found if number is not None]

    @property
    def has_difference(self) -> bool:
        return any(isinstance(number, Difference) for number in self.numbers)


def ablation_tables(context: PaperContext) -> list[Table]:
    """Return the two tables on the paper's tasks, without rows that have no difference."""
    of_shooting: list[AblationRow] = []
    of_critic: list[AblationRow] = []
    for title, members in context.variants.items():
        if not task_differences(members[0].task):
            regrets = _regrets(context, title)
            of_shooting += _rows_of_shooting(title, regrets)
            of_critic += _rows_of_critic(title, regrets)
    tables = [_shooting_table(of_shooting), _critic_table(of_critic)]
    return [table for table in tables if any(row.has_difference for row in table.rows)]


def _shooting_table(rows: Sequence[AblationRow]) -> Table:
    numbers = partial(Column, scale=1000.0)
    columns = [
        words("Task", "task", "task"),
        words("Critic", "name", "critic"),
        numbers("one candidate", "once", ("once", "once_sd")),
        numbers(f"{SHOOTING} candidates", "shooting", ("shooting", "shooting_sd")),
        numbers("difference [95%]", "overall", with_ends("difference")),
    ]
    caption = "Effect of shooting on regret, in thousands"
    return Table("gain-of-shooting", caption, columns, rows)


def _critic_table(rows: Sequence[AblationRow]) -> Table:
    numbers = partial(Column, scale=1000.0)
    columns = [
        words("Task", "task", "task"),
        words("Compared with", "name", "minus"),
        numbers("one candidate", "once", with_ends("once")),
        numbers(f"{SHOOTING} candidates", "shooting", with_ends("shooting")),
        numbers("mean of both", "overall", with_ends("both")),
    ]
    caption = (
        "Effect of the PAC-Bayes critic: regret of PAC4SAC − regret of plain critics, in thousands"
    )
    return Table("gain-of-critic", caption, columns, rows)


def _regrets(context: PaperContext, title: str) -> Regrets:
    """Return the regrets of all variants with the paper's setting on a task."""
    regrets: dict[Side, Summary] = {}
    for critic, labels in CRITICS.items():
        for shots, label in labels.items():
            variant = at_paper_setting(labelled(context.results(title), label), ABLATED)
            regret = variant.summary("regret") if variant and variant.shots == shots else None
            if regret:
                regrets[critic, shots] = regret
    return regrets


def _mean_difference(regrets: Regrets, *pairs: Pair) -> Difference | None:
    """Return the unweighted mean of the pairs' differences; None if a side is unknown."""
    if not regrets.keys() >= set(chain.from_iterable(pairs)):
        return None
    return welch_over_strata([(regrets[ours], regrets[theirs]) for ours, theirs in pairs])


def _rows_of_shooting(title: str, regrets: Regrets) -> list[AblationRow]:
    """Return a row for each critic, with the mean of the first three below them."""
    pairs = {critic: ((critic, SHOOTING), (critic, ONCE)) for critic in CRITICS}
    rows = []
    for critic, pair in pairs.items():
        shooting, once = (regrets.get(side) for side in pair)
        rows.append(AblationRow(title, critic, once, shooting, _mean_difference(regrets, pair)))
    mean = _mean_difference(regrets, *(pairs[critic] for critic in THREE))
    rows.insert(len(THREE), AblationRow(title, "mean of the three rows above", None, None, mean))
    return [row for row in rows if row.numbers]


def _rows_of_critic(title: str, regrets: Regrets) -> list[AblationRow]:
    """Return a row for each plain critic, compared with PAC4SAC."""
    rows = []
    for critic in (ONE, TWO):
        pairs = [((OURS, shots), (critic, shots)) for shots in (ONCE, SHOOTING)]
        once, shooting = (_mean_difference(regrets, pair) for pair in pairs)
        rows.append(AblationRow(title, critic, once, shooting, _mean_difference(regrets, *pairs)))
    return [row for row in rows if row.numbers]
