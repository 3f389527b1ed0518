"""Put tables of the report into the pages of findings: python tools/findings.py

Each table replaces the text between its two comments.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from pac4sac.paper.ablation import ONE, TWO
from pac4sac.paper.numbers import TASKS
from pac4sac.report.style import plain_name
from pac4sac.report.tables import in_digits
from pac4sac.runs.statistics import Estimate

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "findings.md", DOCS / "findings-appendix.md"]
SEARCHED = {
    "mixture": "mixture of five",
    "mixture-by-member": "… with one member per episode",
    "mixture-no-caution": "… without caution",
    "mixture-cautious-targets": "… with cautious targets",
    "mixture-noise": "… with noise in targets",
    "mixture-learned-alpha-root": "… with learned α",
    "index": "index head",
    "index-caution": "… with caution",
    "index-little-noise": "… with little noise and ξ = 0",
    "index-learned-alpha-root": "… with learned α",
}


def verdicts(results: Path) -> str:
    """Return the table of the paper's claims from the first page of the report."""
    report = (results / "README.md").read_text()
    return report[report.index("| Claim |") :].split("\n\n")[0]


def uncertainties(results: Path) -> str:
    """Return the results of the search: regret ÷ baseline regret, and calibration of the std."""

    def rows(name: str) -> dict[str, dict[str, str]]:
        with (results / "tables" / f"search-mixture-{name}.csv").open(encoding="utf-8") as file:
            return {row["variant"].removesuffix(" (search)"): row for row in csv.DictReader(file)}

    def shown(value: str) -> str:
        number = round(float(value), 2) + 0.0  # no minus before 0
        return (f"{number:,.0f}" if number >= 100 else f"{number:.2f}").replace("-", "−")

    def cells(label: str) -> Iterator[str]:
        row, offered = regrets[label], deviations[label]
        yield SEARCHED.get(label) or plain_name(label)
        yield from (shown(row[task]) for task in tasks)
        interval = [shown(row[name]) for name in ("times_low", "times_high") if row[name]]
        yield shown(row["times"]) + (f" [{', '.join(interval)}]" if interval else "")
        yield from (shown(offered[name]) for name in ("of_root_mean_squares", "covered", "rank"))

    regrets, deviations = rows("over-tasks"), rows("deviations")
    tasks = [name for name in next(iter(regrets.values())) if "(steps=" in name]
    titles = [task.split(" (")[0].replace("-", " ").title() for task in tasks]
    header = ["Critic", *titles, "mean [95%]", "error ÷ std", "covered", "rank correlation"]
    # Variants of a critic follow that critic. All other rows come first, by increasing regret.
    place = {label: number for number, label in enumerate(SEARCHED)}
    ranked = sorted(regrets, key=lambda label: place.get(label, -1))
    lines = [
        header,
        ["---", *["---:"] * (len(header) - 1)],
        *(list(cells(label)) for label in ranked),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gains(results: Path) -> str:
    """Return the effects of shooting and of the PAC-Bayes critic on regret, by task."""

    def rows(table: str, key: str, value: str) -> dict[tuple[str, str], str]:
        with (results / "tables" / f"gain-of-{table}.csv").open(encoding="utf-8") as file:
            found = {
                (row[key], row["task"]): [row[value + end] for end in ("", "_low", "_high")]
                for row in csv.DictReader(file)
            }
        return {
            place: in_digits(Estimate(*map(float, ends)), 1000.0)
            for place, ends in found.items()
            if all(ends)
        }

    shooting, critic = rows("shooting", "critic", "difference"), rows("critic", "minus", "shooting")
    named = {name: f"{name}: with − without shooting" for name, _ in shooting}
    lines = [["Difference in regret", *TASKS.values()], ["---", *["---:"] * len(TASKS)]]
    lines += [
        [title, *(shooting.get((name, task), "–") for task in TASKS)]
        for name, title in named.items()
    ]
    for name in (ONE, TWO):
        title = f"PAC4SAC − {name}, both with shooting"
        lines.append([title, *(critic.get((name, task), "–") for task in TASKS)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: dict[str, Callable[[Path], str]] = {
    "verdicts": verdicts,
    "gains": gains,
    "uncertainties": uncertainties,
}


def with_tables(page: str, results: Path) -> str:
    for name, write in TABLES.items():
        begin, end = f"<!-- {name}: written by `make report` -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if found:
            page = f"{before}{begin}\n{write(results)}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(), DOCS / "results"))
