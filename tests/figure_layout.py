"""Find text that is cut off, overlaps other text or is crossed by a line in a drawn figure."""

from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0  # pixels at 100 dots per inch


def layout_faults(figure: Figure) -> list[str]:
    """Return the faults of a figure at the size at which it is published."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = _shown_texts(figure, renderer)
    return [
        *(f"cut off: {text!r}" for text, box in texts if not _is_inside(box, figure.bbox)),
        *(f"overlap: {a!r}, {b!r}" for (a, x), (b, y) in combinations(texts, 2) if _overlap(x, y)),
        *_crossed_texts(figure, renderer),
        *_long_axis_labels(figure, renderer),
    ]


def _long_axis_labels(figure: Figure, renderer: Any) -> list[str]:
    """Return the labels of axes that are longer than their axis."""
    faults = []
    for axes in figure.axes:
        panel = axes.get_window_extent(renderer)
        for label, room in ((axes.xaxis.label, panel.width), (axes.yaxis.label, panel.height)):
            box = label.get_window_extent(renderer)
            length = box.height if label is axes.yaxis.label else box.width
            if axes.axison and label.get_text() and length > room + SLACK:
                faults.append(f"longer than its axis: {label.get_text()!r}")
    return faults


def _shown_texts(figure: Figure, renderer: Any) -> list[tuple[str, Bbox]]:
    ticks = {id(label) for axes in figure.axes for label in _hidden_tick_labels(axes)}
    shown = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in ticks:
            shown.append((text.get_text(), text.get_window_extent(renderer)))
    return shown


def _hidden_tick_labels(axes: Any) -> list[Text]:
    """Return labels of ticks that are not drawn: of an axis that is off, or out of its limits."""
    hidden: list[Text] = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            margin = 1e-9 * max(abs(low), abs(high))
            if not axes.axison or not low - margin <= tick.get_loc() <= high + margin:
                hidden += [tick.label1, tick.label2]
        if not axes.axison:
            hidden += [axis.label, axis.get_offset_text()]
    return hidden


def _is_inside(box: Bbox, frame: Bbox) -> bool:
    low, high = np.array(frame.min) - SLACK, np.array(frame.max) + SLACK
    return bool((box.min >= low).all() and (box.max <= high).all())


def _overlap(a: Bbox, b: Bbox) -> bool:
    return bool(
        min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK
    )


def _crossed_texts(figure: Figure, renderer: Any) -> list[str]:
    """Return the texts inside panels that a line of the panel crosses."""
    faults = []
    for axes in figure.axes:
        for text in axes.texts:
            box = text.get_window_extent(renderer)
            for line in axes.lines:
                path = line.get_transform().transform_path(line.get_path())
                if len(path.vertices) > 1 and path.intersects_bbox(box, filled=False):
                    faults.append(f"crossed by a line: {text.get_text()!r}")
    return faults
