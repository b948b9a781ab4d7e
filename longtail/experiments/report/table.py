"""The table of all rows as HTML: accuracy with its deviation over seeds, then costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from longtail.experiments.compare.layout import TIE
from longtail.experiments.report.rows import Row, metrics_of

COSTS = (
    ("train_seconds", "train, s"),
    ("predict_milliseconds", "a text, ms"),
    ("megabytes", "model, MB"),
    ("peak_megabytes", "memory, MB"),
)


def results_table(rows: Sequence[Row], title: str, ties: frozenset[tuple[int, str]] = frozenset()) -> str:
    """A line a row; the best of each metric in bold. Headings are buttons that sort, where scripts run.

    Args:
        ties: rows (by place) and metrics that are marked as not significantly worse than the best.
    """
    metrics = metrics_of(rows)
    machines = len({cell.machine for row in rows for cell in row.cells}) > 1
    seeds = len({len(row.cells) for row in rows}) > 1
    costs = [(field, words) for field, words in COSTS if any(not math.isnan(row.cost(field)) for row in rows)]
    headings = [("system", ""), ("augmentation", ""), *([("seeds", "number")] if seeds else [])]
    headings += [(metric.replace("coverage", "C"), "number") for metric in metrics]
    headings += [(words, "number cost") for _, words in costs] + ([("machine", "")] if machines else [])
    best = {metric: max(row.mean(metric) for row in rows if not math.isnan(row.mean(metric))) for metric in metrics}
    lines = [
        '<div class="scroll" role="region" tabindex="0" aria-label="' + escape(f"Table: {title}") + '">',
        f'<table class="results"><caption class="unseen-text">{escape(title)}</caption><thead><tr>',
        *(f'<th scope="col" class="{kind}"><button type="button">{escape(words)}</button></th>' for words, kind in headings),
        "</tr></thead><tbody>",
    ]
    for place, row in enumerate(rows):
        cells = [f'<th scope="row">{escape(row.system)}</th>', f"<td>{escape(row.augmentation)}</td>"]
        cells += [_value(len(row.cells), str(len(row.cells)))] if seeds else []
        cells += [_metric(row, metric, best[metric], (place, metric) in ties) for metric in metrics]
        cells += [_value(row.cost(field), amount(row.cost(field))) for field, _ in costs]
        cells += [f"<td>{escape(row.cells[0].machine)}</td>"] if machines else []
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _metric(row: Row, metric: str, best: float, is_tie: bool) -> str:
    mean = row.mean(metric)
    if math.isnan(mean):
        return _value(mean, "")
    shown = f"<strong>{mean:.2f}</strong>" if mean == best else f"{mean:.2f}"
    spread = f' <span class="spread">±{row.deviation(metric):.2f}</span>' if len(row.cells) > 1 else ""
    mark = f'<span class="tie">{TIE}</span>' if is_tie and mean != best else ""
    return _value(mean, mark + shown + spread)


def _value(value: float, shown: str) -> str:
    known = "" if math.isnan(value) else f' data-value="{value!r}"'
    return f'<td class="number"{known}>{shown or "–"}</td>'


def amount(value: float) -> str:
    """As many digits as matter; nothing where it is not known.

    >>> amount(0.01234), amount(3.456), amount(45678.9), amount(float("nan"))
    ('0.012', '3.5', '45,679', '')
    """
    if math.isnan(value):
        return ""
    if value < 1:
        return f"{value:.2g}"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
