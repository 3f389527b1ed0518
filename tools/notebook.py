"""Run the cells of a notebook in order in one process, and keep what they print and draw where
Jupyter would keep it: python tools/notebook.py docs/first-steps.ipynb"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

Cell = dict[str, Any]
PICTURE_DPI = 90


def run_cells(notebook: dict[str, Any], replaced: Mapping[str, str] | None = None) -> list[Cell]:
    """The code cells with what they gave, run in the current folder; in their source, some text may
    be `replaced`."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        source = "".join(cell["source"])
        for old, new in (replaced or {}).items():
            source = source.replace(old, new)
        cell |= {"execution_count": number, "outputs": outputs_of(source, names, number)}
    return cells


def outputs_of(source: str, names: dict[str, Any], number: int) -> list[Cell]:
    body = ast.parse(source, f"cell {number}").body
    last = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
    statements = body if last is None else body[:-1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), f"cell {number}", "exec"), names)
        value = (
            None
            if last is None
            else eval(compile(ast.Expression(last), f"cell {number}", "eval"), names)
        )
    outputs: list[Cell] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": lines_of(printed.getvalue())}
        )
    if value is not None:
        shown = {"text/plain": lines_of(repr(value))}
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "metadata": {},
                "data": shown,
            }
        )
    return outputs + [drawn(figure) for figure in plt.get_fignums()]


def drawn(figure: int) -> Cell:
    picture = io.BytesIO()
    plt.figure(figure).savefig(
        picture, dpi=PICTURE_DPI, bbox_inches="tight", metadata={"Software": None}
    )
    plt.close(figure)
    data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    notebook, here = json.loads(path.read_text()), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_cells(notebook)
        os.chdir(here)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
