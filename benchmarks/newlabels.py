"""Labels that were never trained: a tenth of the labels is hidden in training, then added by text; how well are they found?

    python benchmarks/newlabels.py DATA [--share 0.1] [--seed 0] [--sweep] [KEY=VALUE ...]

The recipe default, one network, four epochs unless settings say otherwise. Test rows are evaluated against all labels (generalised
zero-shot), and those that carry hidden labels once more by the hidden ones alone, while all labels compete. The blend of both is compared
with the label's own text alone, its neighbours' classifiers alone, and the model without the labels, which cannot find them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import longtail
from longtail import XMC, Dataset, Predictions
from longtail.core.values import Split, Texts
from longtail.data.augment.choose import validation_split
from longtail.evaluation.metrics import find_matches, precision_at
from longtail.evaluation.predictions import drop_filtered
from longtail.inference.new_labels import Blend, NewLabelMaker, with_labels

KS = (1, 3, 5)


def hide(data: Dataset, share: float, seed: int) -> tuple[Dataset, Texts]:
    """The data with hidden labels behind the known ones, and their texts; training rows do not carry them."""
    assert data.label_texts is not None
    n_hidden = round(share * data.n_labels)
    order = np.random.default_rng(seed).permutation(data.n_labels)
    known, hidden = np.sort(order[n_hidden:]), np.sort(order[:n_hidden])
    columns = np.concatenate([known, hidden])
    train = data.train.labels[:, known]
    rows = np.flatnonzero(np.diff(train.indptr))
    moved = np.argsort(columns)
    left = data.test.filter
    if left is not None:
        left = np.column_stack([left[:, 0], moved[left[:, 1]]]).astype(np.int32)
    assert data.train.texts is not None
    kept = Split(data.train.texts.take(rows), csr_matrix(train[rows]))
    test = replace(data.test, labels=csr_matrix(data.test.labels[:, columns]).sorted_indices(), filter=left)
    return Dataset(data.name, kept, test, data.label_texts.take(known)), data.label_texts.take(hidden)


def precisions(found: Predictions, truth: csr_matrix, rows: np.ndarray) -> list[float]:
    """In percent, of these rows."""
    matches = find_matches(replace(found, ids=found.ids[rows], scores=found.scores[rows]), truth[rows])
    return [100 * float(precision_at(k, matches).mean()) for k in KS]


def report(model: XMC, data: Dataset, texts: Texts, sweep: bool) -> None:
    """Compare the ways to make vectors for hidden labels."""
    base = model.trained
    assert base is not None and data.test.texts is not None
    n_known, test = len(base.label_counts), data.test
    hidden = test.labels.copy()
    hidden.data = hidden.data * (hidden.indices >= n_known)
    hidden.eliminate_zeros()
    everyone, carrying = np.arange(len(test)), np.flatnonzero(np.diff(hidden.indptr))
    print(f"{data.name}: {n_known:,} labels trained, {len(texts):,} hidden, in {len(carrying):,} rows")
    heads = ["all rows, all labels", "rows with hidden labels", "the hidden ones alone"]
    print(f"{'':<50}" + "".join(f"{head:>27}" for head in heads) + "   share of hidden in first places")
    print(f"{'':<50}" + "".join(f"{'P@' + str(k):>9}" for _ in heads for k in KS))

    def show(name: str, blend: Blend | None) -> None:
        model.trained = base if blend is None else with_labels(base, texts, NewLabelMaker(base, blend).make(texts))
        found = model.predict(test.texts or [], 25)
        found = found if test.filter is None else drop_filtered(found, test.filter)
        numbers = precisions(found, test.labels, everyone) + precisions(found, test.labels, carrying) + precisions(found, hidden, carrying)
        print(
            f"{name:<50}" + "".join(f"{number:>9.2f}" for number in numbers) + f"{100 * float((found.ids[:, 0] >= n_known).mean()):>9.1f}",
            flush=True,
        )

    chosen = Blend()
    show("without them", None)
    show("(a) text alone", replace(chosen, own=1.0, others=0.0))
    show("(b) neighbours' classifiers alone", replace(chosen, own=0.0))
    show("(c) both", chosen)
    if sweep:
        for neighbours in (1, 3, 10):
            for own in (0.25, 0.5, 0.75, 1.0):
                show(f"own {own}, neighbours {neighbours}", replace(chosen, own=own, neighbours=neighbours))
        for others in (0.5, 1.5):
            show(f"others {others}", replace(chosen, others=others))
        for shrink in (-0.5, 0.25, 1.0):
            show(f"shrink {shrink}", replace(chosen, shrink=shrink))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("settings", nargs="*", default=[])
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", action="store_true", help="other blends too, on validation rows: what a blend is chosen by")
    options = parser.parse_args()
    read = longtail.read(options.data)
    data, texts = hide(validation_split(read, 0.15, options.seed) if options.sweep else read, options.share, options.seed)
    settings = ["ensemble=1", "members=[]", "validation=0", "epochs=4", *options.settings]
    model = XMC.from_recipe("default", settings, seed=options.seed).fit(data)
    report(model, data, texts, options.sweep)


if __name__ == "__main__":
    main()
