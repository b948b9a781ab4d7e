"""Effect of label rows on a small network, by how their targets are made: the ablation behind `Gandalf(targets="calibrated")`.

    python benchmarks/gandalf.py DATA [--seeds 3] [--epochs 25] [--forms "none;plain"]

The probe is a tf-idf bag of 512-dimensional word vectors, one residual layer and a one-vs-all classifier over all labels,
trained by binary cross-entropy. `choose` picks a form on validation rows held out of the training rows; only then is every
form trained on all training rows and evaluated on the test rows. Needs torch; a GPU makes it a matter of minutes.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional

import longtail
from longtail import Dataset, Predictions, Texts
from longtail.data.augment.choose import CANDIDATES, CRITERIA, choose, no_augmentation
from longtail.data.augment.gandalf import LABEL_MARK, Gandalf
from longtail.data.augment.rows import Augmented

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORD = re.compile(r"\w+|[^\w\s]")
PLACES = 100
FORMS = {
    **CANDIDATES,
    "one-hot": Gandalf(targets="onehot"),
    "shrunk by 3": Gandalf(shrink=3.0),
    "shrunk by 3, marked": Gandalf(shrink=3.0, mark=LABEL_MARK),
}


class Bags:
    """Texts as unit-length tf-idf rows over the words of the training rows, on the device."""

    def __init__(self, texts: Texts) -> None:
        self.words: dict[str, int] = {}
        rows = [WORD.findall(text.lower()) for text in texts]
        for row in rows:
            for word in row:
                self.words.setdefault(word, len(self.words))
        seen = np.zeros(len(self.words))
        for row in rows:
            seen[[self.words[word] for word in set(row)]] += 1
        self.rarity = np.log((1 + len(rows)) / (1 + seen)) + 1

    def __call__(self, texts: Texts) -> csr_matrix:
        ids: list[int] = []
        ends = [0]
        for text in texts:
            ids += [self.words[word] for word in WORD.findall(text.lower()) if word in self.words]
            ends.append(len(ids))
        matrix = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(texts), len(self.words)))
        matrix.sum_duplicates()
        matrix.data *= self.rarity[matrix.indices]
        norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        matrix.data /= np.repeat(np.maximum(norms, 1e-9), np.diff(matrix.indptr))
        return matrix


class DeviceRows:
    """A csr matrix on the device, of which rows are taken without leaving it."""

    def __init__(self, matrix: csr_matrix) -> None:
        self.ends = torch.as_tensor(matrix.indptr.astype(np.int64), device=DEVICE)
        self.ids = torch.as_tensor(matrix.indices.astype(np.int64), device=DEVICE)
        self.values = torch.as_tensor(matrix.data.astype(np.float32), device=DEVICE)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(row within the batch, ids, values, start of each row)."""
        lengths = self.ends[rows + 1] - self.ends[rows]
        starts = torch.cumsum(lengths, 0) - lengths
        row = torch.repeat_interleave(torch.arange(len(rows), device=DEVICE), lengths)
        place = torch.arange(len(row), device=DEVICE) + (self.ends[rows] - starts)[row]
        return row, self.ids[place], self.values[place], starts


class Probe(nn.Module):
    def __init__(self, n_words: int, n_labels: int, dim: int = 512, dropout: float = 0.4) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n_words, dim, mode="sum")
        self.residual = nn.Linear(dim, dim)
        self.labels = nn.Linear(dim, n_labels)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.words.weight, 0, 0.1)
        nn.init.normal_(self.labels.weight, 0, 0.02)
        nn.init.constant_(self.labels.bias, -6.0)  # nearly every label is wrong for a row

    def forward(self, ids: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        text = self.dropout(functional.relu(self.words(ids, starts, per_sample_weights=weights)))  # (b, dim)
        return self.labels(self.dropout(text + functional.relu(self.residual(text))))  # (b, n_labels)


def fit_predict(rows: Augmented, label_texts: Texts, texts: Texts, epochs: int, seed: int) -> Predictions:
    """Train the probe on `rows` and predict for `texts`. Words come from training inputs and label texts alone."""
    batch, rate = 256, 2e-3
    torch.manual_seed(seed)
    assert rows.split.texts is not None
    bags = Bags(Texts.join([rows.split.texts, label_texts]))
    inputs, targets = DeviceRows(bags(rows.split.texts)), DeviceRows(rows.split.labels)
    weights = torch.as_tensor(rows.row_weights, device=DEVICE)
    probe = Probe(len(bags.words), int(rows.split.labels.shape[1])).to(DEVICE)
    optimizer = torch.optim.Adam(probe.parameters(), lr=rate, fused=DEVICE == "cuda")
    n = len(rows)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * -(-n // batch), pct_start=0.1)
    for _ in range(epochs):
        for part in torch.randperm(n, device=DEVICE).split(batch):
            _, ids, values, starts = inputs.take(part)
            row, labels, relevance, _ = targets.take(part)
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                scores = probe(ids, values, starts)
            negative = functional.softplus(scores.float()).sum(dim=1)  # (b,)
            positive = torch.zeros_like(negative).index_add(0, row, scores[row, labels].float() * relevance)
            loss = ((negative - positive) * weights[part]).sum() / len(part)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
    probe.eval()
    queries = DeviceRows(bags(texts))
    found: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    with torch.no_grad():
        for part in torch.arange(len(texts), device=DEVICE).split(1024):
            _, ids, values, starts = queries.take(part)
            best = probe(ids, values, starts).float().topk(min(PLACES, probe.labels.out_features), dim=1)
            found.append((best.values.cpu().numpy(), best.indices.cpu().numpy()))
    return Predictions(np.concatenate([ids for _, ids in found]).astype(np.int32), np.concatenate([scores for scores, _ in found]))


def measure(found: Predictions, data: Dataset) -> dict[str, float]:
    return longtail.evaluate(found, data, resamples=0).metrics


def show(name: str, values: dict[str, float]) -> None:
    print(f"  {name:<22}" + "".join(f"{values[metric]:>12.2f}" for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5")), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--forms", help="only these forms on the test rows, parted by ';'; leaves out the choice")
    options = parser.parse_args()
    data = longtail.read(options.data)
    header = f"  {'':<22}" + "".join(f"{metric:>12}" for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5"))
    chosen = ""
    if options.forms is None:
        choice = choose(data, lambda rows, labels, texts: fit_predict(rows, labels, texts, options.epochs, 0), measure)
        chosen = choice.name
        print(f"{data.name}, validation rows\n{header}")
        for name, reached in choice.reached.items():
            show(name, reached)
        print(f"  chosen by {', '.join(CRITERIA)}: {chosen}", flush=True)
    print(f"{data.name}, test rows, mean of {options.seeds} seeds\n{header}")
    assert data.label_texts is not None and data.test.texts is not None
    for name in FORMS if options.forms is None else options.forms.split(";"):
        form = FORMS[name]
        rows = no_augmentation(data.train) if form is None else form.augment(data.train, data.label_texts)
        runs = [measure(fit_predict(rows, data.label_texts, data.test.texts, options.epochs, seed), data) for seed in range(options.seeds)]
        means = {metric: float(np.mean([run[metric] for run in runs])) for metric in runs[0]}
        show(name + (" *" if name == chosen else ""), means)


if __name__ == "__main__":
    main()
