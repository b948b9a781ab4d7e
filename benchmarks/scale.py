"""Time per training row as labels grow from 10 K to 1 M, where rows are scored against shortlists.

    python benchmarks/scale.py [--labels 10000 100000 1000000] [--all]

Rows and labels are generated (`longtail data synth`), half as many rows as labels. `default` is trained for two epochs, and the
time of the second divided by its rows; sqrt is how much it would grow with the square root of the labels. --all scores all
labels instead, up to 100 K.
"""

from __future__ import annotations

import argparse
import math

from longtail import XMC
from longtail.data.synth import shape_of, synth

RECIPES = {
    "default: pool": ("default", ["ensemble=1", "members=[]", "validation=0", "dim=128", "epochs=2"]),
    "default: all labels": ("default", ["ensemble=1", "members=[]", "validation=0", "dim=128", "epochs=2", "objective=all-labels"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    for name, (recipe, settings) in RECIPES.items():
        if name.endswith("all labels") and not options.all:
            continue
        first = None
        print(f"{name:<30}{'labels':>12}{'us a row':>12}{'grew':>8}{'sqrt':>8}")
        for n_labels in options.labels if name.endswith("pool") else [n for n in options.labels if n <= 100_000]:
            rows = max(20_000, n_labels // 2)  # every label has a row
            data = synth(shape_of(train=rows, test=10, labels=n_labels, labels_per_point=3.0))
            model = XMC.from_recipe(recipe, settings).fit(data)
            last = model.history[-1]  # the second epoch: kernels are compiled
            per_row = 1e6 * float(last["seconds"]) / rows
            first = first or per_row
            print(
                f"{'':<30}{n_labels:>12,}{per_row:>12.0f}{per_row / first:>8.1f}{math.sqrt(n_labels / options.labels[0]):>8.1f}", flush=True
            )


if __name__ == "__main__":
    main()
