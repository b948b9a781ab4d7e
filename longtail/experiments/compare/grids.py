"""A table before it is printed: words in rows and columns, some in bold. As Markdown, LaTeX, HTML, CSV, or to a terminal."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Entry:
    """One entry of a table."""

    text: str
    bold: bool = False
    mark: str = ""  # behind the text, such as a dagger

    @property
    def plain(self) -> str:
        return self.text + self.mark


@dataclass(frozen=True)
class Grid:
    """A table of words; the first `n_left` columns are names, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    n_left: int = 1
    notes: tuple[str, ...] = ()
    means: bool = False  # lines are means over cells; programs would rather have these one by one

    def to_rich(self) -> Table:
        table = Table(title=self.title, title_justify="left", caption="\n".join(self.notes), caption_justify="left")
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="left" if place < self.n_left else "right")
        for row in self.rows:
            table.add_row(*(Text(entry.plain, style="bold" if entry.bold else "") for entry in row))
        return table

    def to_markdown(self) -> str:
        rule = [":--" if place < self.n_left else "--:" for place in range(len(self.columns))]
        lines = [_piped(self.columns), _piped(rule)]
        for row in self.rows:
            lines.append(_piped([f"**{entry.text}**{entry.mark}" if entry.bold else entry.plain for entry in row]))
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([entry.text for entry in row] for row in self.rows)
        return text.getvalue()

    def to_latex(self) -> str:
        """For the package booktabs."""
        lines = [
            r"\begin{table}",
            rf"\caption{{{_latex(self.title)}}}",
            rf"\begin{{tabular}}{{{'l' * self.n_left}{'r' * (len(self.columns) - self.n_left)}}}",
            r"\toprule",
            " & ".join(map(_latex, self.columns)) + r" \\",
            r"\midrule",
        ]
        for row in self.rows:
            words = [rf"\textbf{{{_latex(entry.text)}}}{_latex(entry.mark)}" if entry.bold else _latex(entry.plain) for entry in row]
            lines.append(" & ".join(words) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", *(rf"\par {_latex(note)}" for note in self.notes), r"\end{table}"]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """A page of its own, with nothing to load."""
        headings = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "\n".join(f"<tr>{''.join(map(_html, row))}</tr>" for row in self.rows)
        notes = "\n".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return PAGE.format(
            title=html.escape(self.title), headings=headings, body=body, notes=notes, left=self.n_left, shown=html.escape(self.title)
        )


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .8rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }}
:is(th, td):nth-child(-n + {left}) {{ text-align: left; }}
caption {{ text-align: left; font-weight: 600; padding: .3rem 0; }}
</style></head><body><div><table><caption>{shown}</caption>
<thead><tr>{headings}</tr></thead>
<tbody>
{body}
</tbody></table></div>
{notes}
</body></html>
"""


def _piped(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", r"\|") for word in words) + " |"


def _html(entry: Entry) -> str:
    text = html.escape(entry.text)
    return f"<td>{f'<b>{text}</b>' if entry.bold else text}{html.escape(entry.mark)}</td>"


SPECIAL = {"\\": r"\textbackslash{}", "±": r"$\pm$", "≈": r"$\approx$", "−": "$-$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _latex(text: str) -> str:
    return "".join(SPECIAL.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)
