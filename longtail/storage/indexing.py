"""INDEX: an index of a model's label vectors, chosen by measured recall and latency, in the model's folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.core.values import Texts
from longtail.inference.search.kinds import KINDS, kind_of
from longtail.inference.search.labels import Floats, Labels
from longtail.inference.search.tune import Tuned, tune
from longtail.inference.trained_model import TrainedModel
from longtail.storage.index_folder import FILES, describe_index, replaced_folder, write_labels
from longtail.storage.model_folder import INDEX, load_model

SAMPLE = 500  # texts that recall is measured with
DROPPED = 0.3  # share of a label text's words that are left out
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Tried:
    """All kinds of index that were measured for a model, and the one that was chosen."""

    kinds: list[Tuned]
    chosen: Tuned


def index_model(
    folder: Path,
    kind: str | None = None,
    recall: float = 0.98,
    k: int = 10,
    seed: int = 0,
    texts: Sequence[str] | Texts | None = None,
) -> Tried:
    """Build an index in the model's folder; from then on the model answers with it.

    Args:
        kind: "exact", "int8", "binary" or "hnsw"; None tries all that are installed and takes the fastest that reaches the recall.
        recall: wanted share of the k best labels.
        texts: typical queries, to measure recall with; unless given, label texts of which some words are left out.
    """
    if k < 1:
        raise SettingError(f"k came as {k}; wanted 1 or more.")
    kinds = list(KINDS) if kind is None else [kind_of(kind).kind]
    model = load_model(folder, CPU, indexed=False)
    searched = model.all_labels
    if searched is None:
        names = " and ".join(sorted({scorer.retrieval.name for scorer in model.scorers if not scorer.retrieval.scores_all_labels}))
        raise SettingError(f"{folder} finds labels by {names}, which needs no index; an index is for models that score all labels.")
    if texts is None and model.label_texts is not None:
        texts = shortened(model.label_texts, SAMPLE, seed)
    labels, mark = searched.searched(), searched.mark()
    queries = near_labels(labels, SAMPLE, seed) if texts is None else encoded(model, Texts.of(texts))
    measured = []
    with replaced_folder(folder / INDEX) as fresh:
        for name in kinds:
            own = fresh / name
            own.mkdir()
            try:
                measured.append(tune(labels.vectors, labels.bias if len(labels.bias) else None, queries, name, own, recall, k, seed))
            except MissingExtra:
                if kind is not None:
                    raise
        chosen = fastest(measured, recall)
        (fresh / chosen.kind).rename(fresh / FILES)
        for name in set(kinds) - {chosen.kind}:
            shutil.rmtree(fresh / name)
        if model.ensemble.concatenated is not None:
            write_labels(labels, fresh / FILES)
        describe_index(fresh, mark, chosen)
    return Tried(measured, chosen)


def index_table(tried: Tried) -> Table:
    """The measurements, a row for each kind; the chosen one is marked."""
    table = Table(title="Indexes of label vectors", title_justify="left")
    for column in ("", "kind", f"recall@{tried.chosen.k}", "p50 ms", "p99 ms", "MB on disk", "built in s"):
        table.add_column(column, justify="left" if column in ("", "kind") else "right")
    for measured in tried.kinds:
        measures = (f"{measured.recall:.3f}", f"{measured.p50_ms:.2f}", f"{measured.p99_ms:.2f}")
        size, seconds = f"{measured.n_bytes / 1e6:,.1f}", f"{measured.build_s:.1f}"
        table.add_row("*" if measured is tried.chosen else "", measured.kind, *measures, size, seconds)
    return table


def fastest(measured: Sequence[Tuned], recall: float) -> Tuned:
    """The fastest of those that reach the recall."""
    good = [one for one in measured if one.recall >= recall]
    if not good:
        best = max(measured, key=lambda one: one.recall)
        raise SettingError(
            f"{best.kind} reaches a recall@{best.k} of {best.recall:.3f}; {recall:g} was wanted. Type a lower --recall, or --kind exact."
        )
    return min(good, key=lambda one: one.p50_ms)


def shortened(texts: Texts, n: int, seed: int) -> list[str]:
    """Up to n of the texts, each without some of its words, as people ask for things."""
    random = np.random.default_rng(seed)
    queries = []
    for place in random.permutation(len(texts))[:n]:
        words = texts[int(place)].split()
        left = [word for word, draw in zip(words, random.random(len(words)), strict=True) if draw >= DROPPED]
        queries.append(" ".join(left or words))
    return queries


def encoded(model: TrainedModel, texts: Texts) -> Floats:
    """(n, dim): the vectors that the model searches labels with."""
    if not len(texts):
        raise DataError("No texts came to measure recall with; wanted some hundreds.")
    if model.ensemble.concatenated is not None:
        found = model.ensemble.concatenated.encode(texts, CPU)
    else:
        found = model.scorers[0].encode(model.tokenizer(texts))
    made: Floats = found.numpy()
    return made


def near_labels(labels: Labels, n: int, seed: int) -> Floats:
    """(n, dim): queries for a model without label texts: vectors of labels with as much noise as they are long."""
    random = np.random.default_rng(seed)
    some: Floats = labels.vectors[np.sort(random.permutation(len(labels))[:n])]
    lengths = np.linalg.norm(some, axis=1, keepdims=True)
    some += (lengths / np.sqrt(labels.dim) * random.standard_normal(some.shape)).astype(np.float32)
    return some
