"""The report as Markdown: in one file, or as code hosts show it best, a README with a page for each section."""

from collections.abc import Sequence

from pac4sac.report.tables import Listing, Picture, Section, Table, to_markdown

IN_THE_README = ("summary", "claims")
Facts = Sequence[tuple[str, str]]


def one_file(title: str, facts: Facts, sections: Sequence[Section]) -> dict[str, str]:
    return {"report.md": _join([*_head(title, facts), *(part for section in sections for part in _section(section))])}


def several_files(title: str, facts: Facts, sections: Sequence[Section]) -> dict[str, str]:
    """The README tells what is on the other pages."""
    first = [section for section in sections if section.name in IN_THE_README]
    others = [section for section in sections if section.name not in IN_THE_README]
    lines = [f"* [{section.title}]({section.name}.md)" for section in others]
    lines.append("* [all on one page](report.html), with tables that can be sorted; to be opened in a browser")
    contents = "Written by `pac4sac report --pages` from stored runs, and not edited by hand."
    parts = [*_head(title, facts), contents, *(part for section in first for part in _section(section))]
    pages = {"README.md": _join([*parts, "## Pages", "\n".join(lines)])}
    for section in others:
        head, *rest = _section(section)
        pages[f"{section.name}.md"] = _join([head.removeprefix("#"), *rest, "[All results](README.md)"])
    return pages


def _head(title: str, facts: Facts) -> list[str]:
    return [f"# {title}", "; ".join(f"{value} {name}" for value, name in facts)]


def _section(section: Section) -> list[str]:
    parts = [f"## {section.title}"]
    for block in section.blocks:
        if isinstance(block, Table):
            parts.append(to_markdown(block).rstrip())
        elif isinstance(block, Picture):
            parts.append(f"![{block.caption}](figures/{block.name}.svg)")
        elif isinstance(block, Listing):
            parts.append("\n".join(f"* {item}" for item in block.items))
        else:
            parts.append(block)
    return parts


def _join(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"
