"""Pictures as SVG that takes its colours from the page around it, and as PNG; names of points that do not cover each other."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import MissingExtra
from longtail.data.augment.rows import makes_rows
from longtail.data.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, LINE, SHEET = "#1d2126", "#5b636d", "#dcdad3", "#fffffe"
# of augmentations, in the order in which they are met; readable for the colour-blind, and by their markers alone
COLOURS = ("#2f6fb3", "#c9780f", "#1d8f72", "#9a5fb5", "#c2452f", "#6b7480")
MARKERS = ("o", "^", "s", "D", "v", "P")
GROUP_COLOURS = {"head": "#4c8dd0", "torso": "#4d9c58", "tail": "#d58a2a", "unseen": "#9a68c4"}  # as the page of the server
# the CSS variable in place of each colour in the SVG, so that the page can change it
VARIABLES = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    LINE: "var(--line)",
    SHEET: "var(--sheet)",
    **{colour: f"var(--colour-{place})" for place, colour in enumerate(COLOURS)},
}
WIDE, NARROW = 10.6, 3.75  # inches: of a screen, and of a phone; letters are equally large in both
STYLE = {
    "svg.fonttype": "none",  # letters stay letters: small, searchable, in the page's own font
    "text.parse_math": False,  # a `$` in a label is a `$`
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.title_fontsize": 11,
    "lines.linewidth": 1.6,
}
SCREEN_DPI = 72  # of the SVG: one unit a point


@dataclass(frozen=True)
class Picture:
    """Something to draw at any width, with words for those who do not see it."""

    name: str  # of its file
    title: str
    alternative: str
    draw: Callable[[float], Figure]  # a width in inches -> the figure

    def svg(self, width: float, kind: str) -> str:
        """Markup to put into a page; ids are made this picture's own."""
        with drawing():
            figure = self.draw(width)
            written = io.StringIO()
            figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return _inlined(written.getvalue(), f"{self.name}-{kind}", kind, self.alternative)

    def save_png(self, folder: Path) -> Path:
        path = folder / f"{self.name}.png"
        with drawing(), new_file(path) as unfinished:
            figure = self.draw(WIDE)
            if figure.legends:  # in a page the heading says it
                figure.legends[0].set_title(self.title)
            else:
                figure.text(0.01, 1.01, self.title, va="bottom", fontsize=11)
            figure.savefig(unfinished, format="png", dpi=150, facecolor="white", bbox_inches="tight")
        return path


@contextmanager
def drawing() -> Iterator[None]:
    """The look of all pictures."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("The report", "plot") from error
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "longtail"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a browser has more fonts; a PNG shows a box
        yield


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=SCREEN_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _inlined(svg: str, name: str, kind: str, alternative: str) -> str:
    """An SVG file -> an element of a page: no prologue, no style of its own that would reach the whole page, no id twice."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", svg)
    svg = re.sub(r"font(-family)?: ([\d.]+px)?[^;\"]*(?=[;\"])", _font, svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    (size,) = re.findall(r'viewBox="([^"]+)"', svg)
    inches = float(size.split()[2]) / SCREEN_DPI
    start = f'<svg class="{kind}" viewBox="{size}" style="max-width: {96 * inches:.0f}px" role="img" aria-label="{escape(alternative)}">'
    return re.sub(r"\n\s*", "\n", re.sub(r"^<svg[^>]*>", lambda _: start, svg, count=1)).strip()


def _font(found: re.Match[str]) -> str:
    """The size stays, the family is the page's."""
    return f"font-size: {found[2]}" if found[2] else "font-family: inherit"


def colour_of(augmentation: str, all_of_them: Sequence[str]) -> str:
    return COLOURS[all_of_them.index(augmentation) % len(COLOURS)]


def marker_of(augmentation: str, all_of_them: Sequence[str]) -> str:
    return MARKERS[all_of_them.index(augmentation) % len(MARKERS)]


def legend(figure: Figure, augmentations: Sequence[str], shown: Sequence[str], *, bars: bool = False) -> None:
    """Which colour and marker is which augmentation, of those that are shown; nothing where there is only one of all."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if len(augmentations) < 2:
        return
    handles: list[Any] = []
    for name in shown:
        colour, words = colour_of(name, augmentations), name if makes_rows(name) else "no augmentation"
        mark = Line2D([], [], color=colour, marker=marker_of(name, augmentations), linestyle="", label=words)
        handles.append(Patch(color=colour, label=words) if bars else mark)
    columns = max(1, int(figure.get_figwidth() / 1.8))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, alignment="left", handletextpad=0.4, columnspacing=1.2)


def panels(width: float, count: int, height: float, *, sharey: bool) -> tuple[Figure, list[Axes]]:
    """So many small plots, four side by side on a wide page and two on a phone."""
    per_line = 4 if width >= WIDE else 2
    columns = min(count, per_line)
    lines = -(-count // columns)
    figure = new_figure(width * max(columns, 2) / per_line, height * lines + 0.4)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=sharey).ravel()
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, list(grid[:count])


def words_along(figure: Figure, below: str, left: str) -> None:
    """Label the axes of all small plots, once."""
    figure.supxlabel(below, fontsize=9)
    figure.supylabel(left, fontsize=9)


# ---- names of points

DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
OFFSETS = [(x * far, y * far) for far in (9, 16, 26, 40) for x, y in DIRECTIONS]  # points
LINE_STEP = 4.0  # points between the small squares that stand for a line
MARKER_POINTS = 5.0  # half the side of the square that a marker is given


Point = tuple[float, float]


def name_points(
    axes: Axes, points: Sequence[Point], names: Sequence[str], others: Sequence[Point], lines: Sequence[tuple[Point, Point]] = ()
) -> None:
    """Write each name next to its point, where it covers neither a point (of these or `others`), a line, another name, nor the frame.

    Greedy: name by name, the nearest of a few places that costs least. A name that stands away from its point gets a thin line to it.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # places are known only when the layout is
    to_pixels = axes.transData.transform
    dots = to_pixels(np.array([*points, *others], float))  # (n, 2)
    taken = np.column_stack([dots - MARKER_POINTS, dots + MARKER_POINTS])  # (n, 4): x0, y0, x1, y1
    for line in lines:
        start, end = to_pixels(np.array(line, float))
        steps = np.linspace(start, end, 2 + int(np.hypot(*(end - start)) / LINE_STEP))
        taken = np.vstack([taken, np.column_stack([steps - LINE_STEP / 2, steps + LINE_STEP / 2])])
    frame = axes.get_window_extent()
    for place, name in enumerate(names):
        trial = axes.text(0, 0, name, fontsize=8.5)
        size = trial.get_window_extent()
        trial.remove()
        boxes = np.array([_box(dots[place], offset, size.width, size.height) for offset in OFFSETS])  # (n_offsets, 4)
        outside = np.maximum(frame.x0 - boxes[:, 0], 0) + np.maximum(boxes[:, 2] - frame.x1, 0)
        outside += np.maximum(frame.y0 - boxes[:, 1], 0) + np.maximum(boxes[:, 3] - frame.y1, 0)
        cost = [_covered(box, taken) for box in boxes] + 20 * outside + 0.2 * np.abs(OFFSETS).max(axis=1)
        best = int(np.argmin(cost))
        x, y = OFFSETS[best]
        axes.annotate(
            name,
            points[place],
            (x, y),
            textcoords="offset points",
            ha="left" if x > 0 else "right" if x < 0 else "center",
            va="bottom" if y > 0 else "top" if y < 0 else "center",
            fontsize=8.5,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.6, "shrinkB": 3} if max(abs(x), abs(y)) > 9 else None,
            annotation_clip=False,
        )
        taken = np.vstack([taken, boxes[best]])


def _box(dot: NDArray[np.float64], offset: tuple[float, float], width: float, height: float) -> tuple[float, float, float, float]:
    """The box of a name of this size, next to a dot."""
    x, y = dot + np.array(offset)
    left = x if offset[0] > 0 else x - width if offset[0] < 0 else x - width / 2
    low = y if offset[1] > 0 else y - height if offset[1] < 0 else y - height / 2
    return left, low, left + width, low + height


def _covered(box: NDArray[np.float64], taken: NDArray[np.float64]) -> float:
    """The area of a box that is taken already."""
    wide = np.minimum(box[2], taken[:, 2]) - np.maximum(box[0], taken[:, 0])
    high = np.minimum(box[3], taken[:, 3]) - np.maximum(box[1], taken[:, 1])
    return float((np.maximum(wide, 0) * np.maximum(high, 0)).sum())
