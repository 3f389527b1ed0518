"""What the docs site needs beyond Markdown, as hooks of MkDocs: the README as its first page, files
of the repository that pages link to, the executed notebook as a page, and equations as MathML,
which needs no script to be seen."""

import base64
import functools
import html
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository"  # where files lie on the site that do not lie in docs/
SHOWN_AS_PAGES = {".py": "python", ".toml": "toml"}
LINK = re.compile(r'(?P<before>\]\(|src="|href=")(?P<target>[^)"#\s]+)(?P<anchor>#[^)"\s]*)?')
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# of pages that are made here: what their links are relative to
REPOSITORY_PATHS: dict[str, Path] = {}
log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: Any) -> Files:
    add = functools.partial(add_page, files, config)
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        add(
            notebook.src_uri.removesuffix(".ipynb") + ".md",
            notebook_page(json.loads(notebook.content_string)),
        )
    add("index.md", (ROOT / "README.md").read_text(), ROOT / "README.md")
    todo = [file for file in files if file.is_documentation_page()]
    while todo:  # a page from outside docs/ may link to others
        file = todo.pop()
        for path in sorted(linked_outside(file)):
            if files.get_file_from_path(uri := place_on_site(path)):
                continue
            if path.is_dir():
                todo.append(add(uri, page_of(path), path / "README.md"))
            elif path.suffix in (".md", *SHOWN_AS_PAGES):
                todo.append(add(uri, page_of(path), path))
            else:
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def add_page(files: Files, config: Any, uri: str, text: str, path: Path | None = None) -> File:
    file = File.generated(config, uri, content=text)
    REPOSITORY_PATHS[uri] = path or Path(config.docs_dir, uri)
    files.append(file)
    return file


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = path_of(page.file)
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # of which the tabs above show enough
    if page.file.src_uri.startswith(("results/", f"{OUTSIDE}/")):
        page.meta["search"] = {"boost": 0.2}  # long tables would come before what explains them

    def relink(link: re.Match[str]) -> str:
        target, anchor = link["target"], link["anchor"] or ""
        if not is_relative(target):
            return link[0]
        path = (here.parent / target).resolve()
        if not path.exists():
            log.warning(
                "%s links to %s, which is no file of the repository.", page.file.src_uri, target
            )
        uri = os.path.relpath(place_on_site(path), os.path.dirname(page.file.src_uri))
        return f"{link['before']}{uri}{anchor}"

    markdown = outside_of_code(markdown, lambda text: LINK.sub(relink, text))
    return outside_of_code(markdown, adapted)


def on_page_content(html_text: str, **_: Any) -> str:
    return EQUATION.sub(lambda found: mathml(html.unescape(found[2]), found[1] == "div"), html_text)


def mathml(tex: str, is_block: bool) -> str:
    return str(convert(tex, display="block" if is_block else "inline"))


def adapted(text: str) -> str:
    """What is written for the Markdown of code hosts, for that of MkDocs."""
    text = re.sub(r"`[^`\n]*`", lambda code: code[0].replace(r"\|", "|"), text)  # in a table
    return text.replace("<details>", '<details markdown="1">').replace(r"\<", "&lt;")


def outside_of_code(markdown: str, change: Callable[[str], str]) -> str:
    parts = FENCED.split(markdown)
    return "".join(part if k % 2 else change(part) for k, part in enumerate(parts))


def path_of(file: File) -> Path:
    """Where a page lies in the repository."""
    return REPOSITORY_PATHS.get(file.src_uri) or Path(str(file.abs_src_path))


def linked_outside(file: File) -> set[Path]:
    here, text = path_of(file).parent, FENCED.sub("", file.content_string)
    linked = {
        (here / link["target"]).resolve()
        for link in LINK.finditer(text)
        if is_relative(link["target"])
    }
    return {path for path in linked if path.exists() and not path.is_relative_to(ROOT / "docs")}


def is_relative(target: str) -> bool:
    return not re.match(r"[a-z]+:|/|<", target)


def place_on_site(path: Path) -> str:
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(ROOT / "docs"):
        uri = path.relative_to(ROOT / "docs").as_posix()
        return uri.removesuffix(".ipynb") + ".md" if uri.endswith(".ipynb") else uri
    suffix = "/README.md" if path.is_dir() else ".md" if path.suffix in SHOWN_AS_PAGES else ""
    return f"{OUTSIDE}/{os.path.relpath(path, ROOT)}{suffix}"


def page_of(path: Path) -> str:
    if path.is_dir():
        return "\n".join(
            [
                f"# {path.relative_to(ROOT)}\n",
                *(f"* [{each.name}]({each.name})" for each in sorted(path.iterdir())),
            ]
        )
    text = path.read_text()
    if path.suffix == ".md":
        return text
    return f"# {path.relative_to(ROOT)}\n\n```{SHOWN_AS_PAGES[path.suffix]}\n{text}```\n"


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of an executed notebook and what they gave."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [shown(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def shown(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    for kind in ("image/png", "image/gif"):
        if kind in data:
            base64.b64decode(picture := "".join(data[kind]).strip(), validate=True)
            return f'<img alt="What the cell above draws" src="data:{kind};base64,{picture}">'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
