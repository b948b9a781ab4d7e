"""longtail baseline and longtail evaluate: a number to beat, and the metrics of predictions."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.options import DataOptions, DataPath, reads_data, show
from longtail.core.errors import SettingError

if TYPE_CHECKING:
    from longtail.core.values import Dataset, Predictions


@reads_data
def baseline(
    data: DataPath,
    options: DataOptions,
    out: Annotated[Path, typer.Option("--out", help="Predictions file to write: .npz or .jsonl.")],
    by: Annotated[str, typer.Option(help="Nearest labels, inputs, or both.")] = "both",
    k: Annotated[int, typer.Option("-k", help="Places a row; leave room for the filter.")] = 100,
) -> None:
    """Predict the labels of the nearest texts by tf-idf: no training, a number to beat."""
    from longtail.evaluation.baseline import nearest_text
    from longtail.evaluation.predictions import write_predictions

    if k < 1:
        raise SettingError(f"-k is {k}; wanted at least 1.")
    dataset = options.read(data)
    write_predictions(out, nearest_text(dataset, by=by, k=min(k, dataset.n_labels)))
    typer.echo(f"Wrote {out}. Next: longtail evaluate {out} {data}{options.split_flags}")


@reads_data
def evaluate(
    predictions: Annotated[
        Path, typer.Argument(help="Predictions for the test rows (JSON lines or .npz), or a model folder.", show_default=False)
    ],
    data: DataPath,
    options: DataOptions,
    out: Annotated[Path | None, typer.Option("--out", help="Write all metrics to this .json or .csv.", show_default=False)] = None,
    against: Annotated[Path | None, typer.Option(help="Other predictions to compare with, by a paired test.", show_default=False)] = None,
    ks: Annotated[str, typer.Option("-k", help="Places to measure at.")] = "1,3,5",
    a: Annotated[float | None, typer.Option("-A", help="Propensity constant; known for public data sets.", show_default=False)] = None,
    b: Annotated[float | None, typer.Option("-B", help="Propensity constant.", show_default=False)] = None,
    no_filter: Annotated[bool, typer.Option("--no-filter", help="Leave the test filter aside.")] = False,
    resamples: Annotated[int, typer.Option(help="For the bootstrap intervals; 0 for none.")] = 1000,
) -> None:
    """P, PSP, nDCG, PSnDCG, R, hits, coverage, macro-F1, by place and by label frequency."""
    from longtail.evaluation.evaluate import compare
    from longtail.evaluation.evaluate import evaluate as measure
    from longtail.evaluation.tables import difference_table, evaluation_table

    try:
        places = [int(part) for part in ks.split(",")]
    except ValueError:
        raise SettingError(f"-k is {ks!r}; wanted places such as 1,3,5.") from None
    dataset = options.read(data)
    measured = partial(measure, data=dataset, a=a, b=b, filtered=not no_filter, ks=places, resamples=resamples, seed=options.seed)
    result = measured(_predictions(predictions, dataset))
    show(evaluation_table(result))
    if against:
        other = measured(_predictions(against, dataset))
        show(difference_table(against.name, predictions.name, compare(other, result, resamples=max(resamples, 1), seed=options.seed)))
    if out:
        result.save(out)
        sys.stderr.write(f"Wrote {out}.\n")


def _predictions(source: Path, data: Dataset) -> Predictions:
    """Those of a predictions file, or made by a model for the test rows."""
    from longtail.evaluation.predictions import read_predictions

    if not source.is_dir():
        return read_predictions(source)
    from longtail.estimator import load

    return load(source).predict_test(data)
