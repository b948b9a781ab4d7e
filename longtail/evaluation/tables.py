"""Results as tables: for the terminal, and as plain text where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from longtail.data.frequency import TAIL_MOST, TORSO_MOST
from longtail.data.zipf import sparkline

if TYPE_CHECKING:  # results print themselves through this module, so they cannot be imported here
    from longtail.core.values import LabelGraph
    from longtail.data.augment.choose import Choice
    from longtail.data.describe import Description, Faulty
    from longtail.data.graph.inspect import GraphStats, Neighbour
    from longtail.evaluation.evaluate import Difference, Evaluation

NO_LIMIT = -1  # how a graph's settings write None
SOURCES = {"itself": "itself", "direct": "the same rows", "walk": "over other labels"}
RANKED = ("P", "nDCG", "PSP", "PSnDCG", "R", "hits", "coverage")


def to_text(content: RenderableType, width: int = 120) -> str:
    """The table as plain text without colours."""
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(content)
    return captured.get().rstrip("\n")


def evaluation_table(result: Evaluation) -> RenderableType:
    """Metrics by place, the frequency bins, and the counts that they rest on."""
    ks = sorted({int(name.split("@")[1]) for name in result.metrics if name.split("@")[0] in RANKED})
    table = Table(title=f"{result.about['data']}, {result.about['test_rows']:,} test rows", title_justify="left")
    table.add_column("%")
    for k in ks:
        table.add_column(f"@{k}", justify="right")
    for family in RANKED:
        table.add_row(family, *(_cell(result, f"{family}@{k}") for k in ks))
    return Group(table, _bins_table(result), *_footnotes(result))


def _cell(result: Evaluation, name: str) -> str:
    if name not in result.metrics:
        return ""
    value = result.metrics[name]
    if name not in result.intervals:
        return f"{value:.2f}"
    low, high = result.intervals[name]
    return f"{value:.2f} ±{(high - low) / 2:.2f}"


def _bins_table(result: Evaluation) -> Table:
    place = next(name for name in result.bins[0] if name.startswith("P@"))
    table = Table(title=f"What labels add to {place}, in bins of equal training volume", title_justify="left")
    for column in ("bin", "labels", "points per label", place):
        table.add_column(column, justify="right")
    for row in result.bins:
        table.add_row(f"{row['bin']:.0f}", f"{row['labels']:,.0f}", f"{row['points_per_label']:,.1f}", f"{row[place]:.2f}")
    return table


def _footnotes(result: Evaluation) -> list[Text]:
    about = result.about
    macro = ", ".join(f"{name.removeprefix('macroF1')} {value:.2f}" for name, value in result.metrics.items() if name.startswith("macroF1"))
    lines = [
        f"macro-F1: {macro}",
        f"Propensity A = {about['A']}, B = {about['B']}, from {about['train_rows']:,} training rows. "
        f"{about['filtered_pairs']:,} pairs filtered. {about['rows_without_labels']:,} rows without labels.",
    ]
    if result.intervals:
        lines.append(f"± is half of the 95 % bootstrap interval over test rows ({about['resamples']:,} resamples).")
    return [Text(line, style="dim") for line in lines] + [Text(note, style="yellow") for note in result.notes]


def difference_table(first: str, second: str, rows: Sequence[Difference]) -> RenderableType:
    """The metrics of two sets of predictions, with the paired test."""
    table = Table(title="Paired comparison over the same test rows", title_justify="left")
    for column in ("%", first, second, "difference", "95 % interval", "p"):
        table.add_column(column, justify="left" if column == "%" else "right")
    for row in rows:
        sure = row.p_value < 0.05
        style = ("green" if row.second > row.first else "red") if sure else None
        table.add_row(
            row.name,
            f"{row.first:.2f}",
            f"{row.second:.2f}",
            Text(f"{row.second - row.first:+.2f}{' *' if sure else ''}", style=style or ""),
            f"{row.low:+.2f} to {row.high:+.2f}",
            f"{row.p_value:.4f}",
        )
    return Group(table, Text("* p below 0.05, sign-flip test; not corrected for the number of metrics.", style="dim"))


def description_table(seen: Description) -> RenderableType:
    """The description of a data set, as `longtail check` prints it."""
    sizes = Table(title=seen.name, title_justify="left", show_header=False)
    sizes.add_column()
    sizes.add_column()
    for name, value in _sizes(seen):
        sizes.add_row(name, value)
    groups = Table(title="Labels by training points", title_justify="left")
    for column in ("group", "points", "labels", "of labels", "of pairs"):
        groups.add_column(column, justify="left" if column == "group" else "right")
    points = {"head": f"> {TORSO_MOST}", "torso": f"{TAIL_MOST + 1}-{TORSO_MOST}", "tail": f"1-{TAIL_MOST}", "unseen": "0"}
    for group in seen.groups:
        groups.add_row(group.name, points[group.name], f"{group.labels:,}", f"{group.label_share:.1%}", f"{group.pair_share:.1%}")
    warnings = [Text(f"! {line}", style="yellow") for line in (*seen.notes, *seen.warnings())]
    clean = [] if warnings else [Text("No faults, no leaks.", style="green")]
    return Group(sizes, groups, *warnings, *clean)


def _sizes(seen: Description) -> list[tuple[str, str]]:
    per_point, per_label, gandalf, leaks = seen.labels_per_point, seen.points_per_label, seen.gandalf, seen.leaks
    support = ", ".join(f"{value:.0%} where the label was seen {name}x" for name, value in gandalf.precision_by_support.items())
    measured = f"\n{gandalf.precision:.0%} of what it would teach is right ({support})" if gandalf.twins else ""
    return [
        ("rows", f"{seen.train_rows:,} train, {seen.test_rows:,} test"),
        ("rows without labels", f"{seen.train.without_labels:,} train, {seen.test.without_labels:,} test"),
        ("labels", f"{seen.labels:,}, {seen.labels_without_points:,} without a training point"),
        ("labels per point", f"mean {per_point.mean:.2f}, median {per_point.median:g}, at most {per_point.largest:,}"),
        ("points per label", f"mean {per_label.mean:.2f}, median {per_label.median:g}, at most {per_label.largest:,}"),
        ("", f"{sparkline(seen.counts)}  from head to tail, log over log"),
        ("words", f"{seen.words_per_text:.1f} per text, {seen.words_per_label:.1f} per label"),
        ("train texts", _texts(seen.train)),
        ("test texts", _texts(seen.test)),
        ("label texts", _texts(seen.label_texts)),
        ("filters", f"train {_pairs(leaks.train_filter)}, test {_pairs(leaks.test_filter)}"),
        ("label texts that are inputs", f"{gandalf.label_texts_that_are_inputs:.1%}"),
        ("label words that inputs use", f"{gandalf.words_shared:.1%}"),
        ("Gandalf's assumption", f"{gandalf.verdict}{measured}"),
    ]


def graph_table(name: str, graph: LabelGraph, stats: GraphStats) -> RenderableType:
    """Statistics of a label graph."""
    table = Table(title=Text(f"{name}, {graph.kind} graph"), title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    to_others = stats.edges - stats.self_loops
    rows = [
        ("labels", f"{stats.labels:,}, {stats.isolated:,} isolated ({_share(stats.isolated, stats.labels)}): they point to no other label"),
        ("weights", f"{stats.edges:,}, {to_others:,} of them to other labels"),
        ("neighbours of a label", f"mean {stats.degree_mean:.2f}, median {stats.degree_median:g}, at most {stats.degree_max:,}"),
        ("rest on one training row", f"{stats.on_one_row:,} ({_share(stats.on_one_row, to_others)} of the weights to other labels)"),
    ]
    if stats.on_no_row:
        rows.append(("rest on no training row", f"{stats.on_no_row:,} ({_share(stats.on_no_row, to_others)}): reached over other labels"))
    rows.append(("made with", ", ".join(f"{key} {value}" for key, value in graph.settings.items() if value != NO_LIMIT)))
    for row in rows:
        table.add_row(*row)
    return table


WORDS = {"from", "text"}  # columns of words; the others are numbers


def neighbours_table(label: int, text: str, graph: LabelGraph, found: Sequence[Neighbour]) -> RenderableType:
    """The labels that one label points to, strongest first."""
    count = int(graph.counts[label])
    table = Table(title=Text(f"{text or 'label'} ({label}), {count:,} training row{'s' * (count != 1)}"), title_justify="left")
    for column in ("weight", "common rows", "from", "label", "text"):
        table.add_column(column, justify="left" if column in WORDS else "right")
    for one in found:
        table.add_row(f"{one.weight:.4f}", f"{one.common_rows:,}", SOURCES[one.source], f"{one.label}", Text(one.text))
    empty = [] if found else [Text("It points to no label, not even itself.", style="dim")]
    return Group(table, *empty)


def _share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.1%}"


def _texts(rows: Faulty) -> str:
    return f"{rows.rows:,}: {rows.empty:,} empty, {rows.duplicates:,} duplicates"


def _pairs(count: int | None) -> str:
    return "none" if count is None else f"{count:,} pairs"


def choice_table(choice: Choice) -> RenderableType:
    """Metrics of each candidate on validation rows, and which was chosen."""
    table = Table(title="Nearest rows on validation rows held out of the training rows", title_justify="left")
    shown = ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5")
    table.add_column("label rows")
    for metric in shown:
        table.add_column(metric, justify="right")
    for name, reached in choice.reached.items():
        style = "bold" if name == choice.name else ""
        table.add_row(name + (" *" if name == choice.name else ""), *(f"{reached[metric]:.2f}" for metric in shown), style=style)
    return Group(table, Text(f"* chosen: {choice.name}", style="dim"))
