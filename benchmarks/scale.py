"""Time per training row as labels grow from 10 K to 1 M, where rows are scored against shortlists.

    python benchmarks/scale.py [--labels 10000 100000 1000000] [--rows 20000]

Rows and labels are generated (`longtail data synth`). Each recipe is trained for one epoch a stage; the time of the last stage,
which learns labels from shortlists, is divided by its rows. sqrt is what the time would be if it grew with the square root of labels.
"""

from __future__ import annotations

import argparse
import math

from longtail import XMC
from longtail.data.synth import shape_of, synth

RECIPES = {
    "default, pool": ("default", ["score=pool", "dim=128", "epochs=2"]),
    "inceptionxml-like, clusters": ("inceptionxml", ["encoder.kind=bag", "dim=128", "epochs=2"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    for name, (recipe, settings) in RECIPES.items():
        first = None
        print(f"{name:<30}{'labels':>12}{'us a row':>12}{'grew':>8}{'sqrt':>8}")
        for n_labels in options.labels:
            data = synth(shape_of(train=options.rows, test=10, labels=n_labels, labels_per_point=3.0))
            model = XMC.from_recipe(recipe, settings).fit(data)
            last = model.history[-1]  # the second epoch: kernels are compiled
            per_row = 1e6 * float(last["seconds"]) / options.rows
            first = first or per_row
            print(
                f"{'':<30}{n_labels:>12,}{per_row:>12.0f}{per_row / first:>8.1f}{math.sqrt(n_labels / options.labels[0]):>8.1f}", flush=True
            )


if __name__ == "__main__":
    main()
