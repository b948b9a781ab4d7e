"""Training and prediction time of a recipe, compared with PECOS XR-Linear on the same rows and machine: start to saved model.

    python benchmarks/train.py DATA [--recipe default] [--augment gandalf] [KEY=VALUE ...]

Both see the same rows: with `--augment none` the training rows alone, otherwise PECOS gets Gandalf rows with every target above 0.1
made 1, as it knows no soft ones. PECOS lives in a virtual environment of its own under build/. Seconds of longtail are of the whole
command, reading and the model folder included; those of PECOS are of tf-idf, tree and training, read from the inside, without its
imports. Prediction is five labels for every test row: of longtail from the texts, tokenisation included, without and with an index;
of PECOS from tf-idf rows that are there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import longtail
from longtail.data.augment.gandalf import Gandalf
from longtail.data.augment.rows import to_dataset
from longtail.data.convert import write
from longtail.storage.indexing import index_model

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

PECOS = """
import sys, time, json
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from exported import K, read_folder, write_found
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
start = time.perf_counter()
features, labels, test = read_folder(Path(sys.argv[1]))
model = XLinearModel.train(features, labels, C=Indexer.gen(LabelEmbeddingFactory.create(labels, features)))
trained = time.perf_counter()
model.save(sys.argv[2] + ".model")
model = XLinearModel.load(sys.argv[2] + ".model", is_predict_only=True)  # laid out for speed, as its manual advises
found = model.predict(test, only_topk=K)
model.predict(test[:64], only_topk=5)
asked = time.perf_counter()
model.predict(test, only_topk=5)
print(json.dumps([trained - start, (time.perf_counter() - asked) / test.shape[0]]))
rows = [slice(first, last) for first, last in zip(found.indptr, found.indptr[1:])]
write_found(Path(sys.argv[2]), [found.indices[row] for row in rows], [found.data[row] for row in rows])
"""
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "coverage@5")


def main() -> None:
    from side_by_side import environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--augment", default="gandalf")
    options = parser.parse_args()
    data = longtail.read(options.data)
    print(f"{data.name}\n{'':<30}{'seconds':>9}{'of PECOS':>10}" + "".join(f"{name:>12}" for name in SHOWN))
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        build = Path(__file__).parent.parent / "build"
        python = environment(build / "venv-pecos", ["libpecos==1.2.8", "numpy==1.26.4", "scipy==1.13.1", "scikit-learn", "torch==2.13.0"])
        label_rows = options.augment != "none"
        rows = to_dataset(Gandalf().augment(data.train, data.label_texts), data, binary=True) if label_rows else data
        write(rows, work / "rows", "pecos")
        (work / "run_pecos.py").write_text(PECOS)
        arguments = [work / "rows", work / "pecos.npz", Path(__file__).parent.parent / "examples"]
        done = subprocess.run([python, work / "run_pecos.py", *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        pecos, pecos_a_text = json.loads(done.stdout.splitlines()[-1])
        show(
            "PECOS XR-Linear + Gandalf" if label_rows else "PECOS XR-Linear",
            pecos,
            pecos,
            longtail.evaluate(longtail.read_predictions(work / "pecos.npz"), data, resamples=0).metrics,
        )
        start = time.perf_counter()
        command = [sys.executable, "-m", "longtail.cli.main", "train", options.recipe, str(options.data), *options.settings]
        done = subprocess.run([*command, "--augment", options.augment, "--out", str(work / "model")], capture_output=True, text=True)
        took = time.perf_counter() - start
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        show(
            f"{options.recipe}, {options.augment}",
            took,
            pecos,
            json.loads((work / "model" / "model.json").read_text())["about"]["metrics"],
        )
        print(f"\n{'':<30}{'ms a text':>11}{'of PECOS':>10}{'P@1':>8}{'one text, p50 ms':>18}{'p99 ms':>8}")
        print(f"{'PECOS XR-Linear, from tf-idf':<30}{1000 * pecos_a_text:>11.3f}{1:>9.1f}x")
        show_prediction("exact", work / "model", data, pecos_a_text)
        index_model(work / "model")
        show_prediction("with an index", work / "model", data, pecos_a_text)


def show_prediction(name: str, folder: Path, data: longtail.Dataset, pecos: float) -> None:
    model, texts = longtail.load(folder), data.test.texts
    assert texts is not None
    model.predict(texts[:64], k=5)
    start = time.perf_counter()
    model.predict(texts, k=5)
    a_text = (time.perf_counter() - start) / len(texts)
    one_by_one = []
    for text in texts[:1000]:
        start = time.perf_counter()
        model.predict([text], k=5)
        one_by_one.append(1000 * (time.perf_counter() - start))
    right = longtail.evaluate(model.predict_test(data), data, resamples=0).metrics["P@1"]
    p50, p99 = np.percentile(one_by_one, [50, 99])
    print(f"{name:<30}{1000 * a_text:>11.3f}{a_text / pecos:>9.2f}x{right:>8.2f}{p50:>18.2f}{p99:>8.2f}", flush=True)


def show(name: str, seconds: float, pecos: float, metrics: dict[str, float]) -> None:
    print(f"{name:<30}{seconds:>9.0f}{seconds / pecos:>9.1f}x" + "".join(f"{metrics[metric]:>12.2f}" for metric in SHOWN), flush=True)


if __name__ == "__main__":
    main()
