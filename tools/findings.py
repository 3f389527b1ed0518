"""Put the report's table of verdicts into the page of findings: python tools/findings.py"""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- verdicts: written by `make report` -->\n", "<!-- end of verdicts -->"


def with_verdicts(page: str, report: str) -> str:
    table = report.split("**What the paper claims, and what our runs say of it**\n")[1].strip().split("\n\n")[0]
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    findings = DOCS / "findings.md"
    findings.write_text(with_verdicts(findings.read_text(), (DOCS / "results" / "README.md").read_text()))
