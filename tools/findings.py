"""Put tables of the report into the page of findings: python tools/findings.py

They stand between two comments each, and are written anew.
"""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from pac4sac.report.looks import plain_name

DOCS = Path(__file__).parents[1] / "docs"
SEARCHED = {
    "mixture": "mixture of five",
    "mixture-by-member": "… one member for an episode",
    "mixture-no-caution": "… no caution",
    "mixture-cautious-targets": "… cautious targets",
    "mixture-noise": "… noise in targets",
    "mixture-learned-alpha-root": "… learned α",
    "index": "index head",
    "index-caution": "… caution",
    "index-little-noise": "… little noise, ξ = 0",
    "index-learned-alpha-root": "… learned α",
}


def verdicts(results: Path) -> str:
    """On the paper's claims, as on the report's first page."""
    report = (results / "README.md").read_text()
    return report.split("**What the paper claims, and what our runs say of it**\n")[1].strip().split("\n\n")[0]


def uncertainties(results: Path) -> str:
    """What came of the search: regret as so many times that of its baseline, and what deviations are worth."""

    def rows(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader((results / "tables" / f"search-mixture-{name}.csv").open(encoding="utf-8")))

    def cells(row: dict[str, str]) -> Iterator[str]:
        label = row["variant"].removesuffix(" (search)")
        yield SEARCHED.get(label) or plain_name(label)
        yield from (f"{float(row[task]) / float(baseline[task]):.2f}" for task in tasks)
        yield f"{float(row['times']):.2f} [{float(row['times_low']):.2f}, {float(row['times_high']):.2f}]"
        offered = deviations[row["variant"]]
        ratio = float(offered["error_by_deviation"])
        yield f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}"
        yield from (f"{round(float(offered[name]), 2) + 0.0:.2f}".replace("-", "−") for name in ("covered", "rank"))

    regrets, deviations = rows("over-tasks"), {row["variant"]: row for row in rows("deviations")}
    tasks = [name for name in regrets[0] if name.endswith(")")]
    baseline = next(row for row in regrets if not row["times"])
    titles = [task.split(" (")[0].replace("-", " ").title() for task in tasks]
    header = ["Critic", *titles, "on the four [95 %]", "error ÷ deviation", "covered", "rank correlation"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    # Each change stands below what it changes, then come the others from the least regret on.
    place = {f"{label} (search)": number for number, label in enumerate(SEARCHED)}
    ranked = sorted(regrets, key=lambda row: place.get(row["variant"], len(place)))
    lines += [list(cells(row)) for row in ranked if row is not baseline]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: dict[str, Callable[[Path], str]] = {"verdicts": verdicts, "uncertainties": uncertainties}


def with_tables(page: str, results: Path) -> str:
    for name, write in TABLES.items():
        begin, end = f"<!-- {name}: written by `make report` -->\n", f"<!-- end of {name} -->"
        page = re.sub(f"{re.escape(begin)}.*?{end}", lambda _: f"{begin}\n{write(results)}\n\n{end}", page, flags=re.S)  # noqa: B023
    return page


if __name__ == "__main__":
    findings = DOCS / "findings.md"
    findings.write_text(with_tables(findings.read_text(), DOCS / "results"))
