"""What other programs read gives the same numbers."""

from __future__ import annotations

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow.parquet
import pytest
import torch

from longtail import XMC
from longtail.core.errors import MissingExtra, SettingError, UnknownName
from longtail.inference.new_labels import without_labels
from longtail.inference.trained_model import TrainedModel
from longtail.storage.export import FORMATS, export
from tests.pretrained import save_model, save_rules
from tests.spelled import N_LABELS, label_names, small_model, spelled_out, trained
from tests.tensors import same_numbers as same_numbers

TEXTS = [*label_names(N_LABELS)[:3], "morv nalk bush ment"]


def stored_of(recipe: str) -> TrainedModel:
    stored = trained(recipe).trained
    assert stored is not None
    return stored


def vectors_of(stored: TrainedModel, texts: list[str]) -> np.ndarray[Any, Any]:
    """In float32, as files have it; prediction rounds a transformer's products to bfloat16 where the machine has units for it."""
    tokens, scorer = stored.tokenizer(texts).batch(), stored.scorers[0]
    with torch.no_grad():
        found: np.ndarray[Any, Any] = scorer.search_vectors(scorer.network.encoder(tokens, scorer.network.table.weight)).numpy()
    return found


def run(path: Path, **inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    return found


@pytest.mark.parametrize("recipe", ["default", "eclare", "decaf", "siamesexml"])
def test_a_bag_as_onnx(recipe: str, tmp_path: Path) -> None:
    stored = stored_of(recipe)
    assert "text.onnx" in export(stored, "onnx", tmp_path / "out")
    for texts in (TEXTS, TEXTS[:1]):  # of any number
        rows = stored.tokenizer(texts)
        found = run(tmp_path / "out" / "text.onnx", ids=rows.ids.long().numpy(), weights=rows.weights.numpy(), offsets=rows.offsets.numpy())
        assert np.allclose(found, vectors_of(stored, texts), atol=1e-4)


@pytest.mark.parametrize("recipe", ["renee", "unidec"])
def test_a_transformer_as_onnx(recipe: str, tmp_path: Path) -> None:
    stored = stored_of(recipe)
    export(stored, "onnx", tmp_path / "out")
    for texts in (TEXTS, TEXTS[:1]):
        rows = stored.tokenizer(texts)
        ids = np.zeros((len(texts), int(np.diff(rows.offsets).max()) + 2), np.int64)  # longer than need be
        for row, (start, stop) in enumerate(zip(rows.offsets, rows.offsets[1:], strict=False)):
            ids[row, : stop - start] = rows.ids[start:stop]
        assert np.allclose(run(tmp_path / "out" / "text.onnx", ids=ids), vectors_of(stored, texts), atol=1e-4)


def test_scores_as_onnx_are_what_is_predicted(tmp_path: Path) -> None:
    stored = without_labels(stored_of("default"), np.array([3]))
    export(stored, "onnx", tmp_path / "out")
    scores = run(tmp_path / "out" / "labels.onnx", text=vectors_of(stored, TEXTS))
    model = XMC(trained("default").recipe, device="cpu")
    model.trained = stored
    found = model.predict(TEXTS, 4)
    assert np.argsort(-scores, axis=1)[:, :4].tolist() == found.ids.tolist()
    assert np.allclose(
        1 / (1 + np.exp(np.sort(-scores, axis=1)[:, :4])), found.scores, atol=5e-3
    )  # all labels may be scored with fewer digits
    assert np.isneginf(scores[:, 3]).all()


def test_label_vectors_as_npy(tmp_path: Path) -> None:
    stored = without_labels(stored_of("default"), np.array([3]))
    assert export(stored, "npy", tmp_path / "out") == ["label-bias.npy", "label-vectors.npy"]
    vectors, bias = np.load(tmp_path / "out" / "label-vectors.npy"), np.load(tmp_path / "out" / "label-bias.npy")
    kept = np.arange(N_LABELS) != 3
    assert np.array_equal(vectors[kept], stored.scorers[0].vectors.numpy()[kept]) and not vectors[3].any()
    assert stored.scorers[0].bias is not None
    assert np.array_equal(bias[kept], stored.scorers[0].bias.numpy()[kept]) and np.isneginf(bias[3])


def test_networks_have_a_file_each(tmp_path: Path) -> None:
    stored = stored_of("siamesexml")
    twice = replace(stored, members=[replace(stored.members[0], scorers=stored.scorers * 2)])
    assert export(twice, "npy", tmp_path / "out") == ["label-vectors-1.npy", "label-vectors.npy"]


def test_label_vectors_as_parquet(tmp_path: Path) -> None:
    stored = without_labels(stored_of("default"), np.array([3]))
    assert export(stored, "parquet", tmp_path / "out") == ["labels.parquet"]
    table = pyarrow.parquet.read_table(tmp_path / "out" / "labels.parquet")
    assert table.column_names == ["id", "text", "vector", "bias"] and table.num_rows == N_LABELS - 1
    row = table.slice(3, 1).to_pylist()[0]
    assert row["id"] == 4 and row["text"] == label_names(N_LABELS)[4]
    assert np.array_equal(np.float32(row["vector"]), stored.scorers[0].vectors[4].numpy())


@pytest.mark.parametrize("settings", [("encoder.pooling=mean",), ("encoder.pooling=cls", "projection=8"), ("labels.unit=false",)])
def test_a_sentence_transformers_folder(settings: tuple[str, ...], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    save_model(tmp_path / "pretrained")
    save_rules(tmp_path / "pretrained")
    own = ("tokens.max_tokens=8", f"encoder.model={tmp_path / 'pretrained'}", "epochs=1", "batch_size=64", *settings)
    model = XMC.from_recipe("dpr", own, device="cpu").fit(spelled_out())
    assert model.trained is not None
    files = export(model.trained, "sentence-transformers", tmp_path / "out")
    assert {"modules.json", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    texts = ["red tea", "Green TEAS!", "a cup of tea, cupful a a a a a a a a", "blue"]  # one of them is cut
    with torch.no_grad():
        found = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    assert np.allclose(found, vectors_of(model.trained, texts), atol=1e-5)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds a transformer with its own tokens; this model has the encoder Bag"):
        export(stored_of("default"), "sentence-transformers", tmp_path / "out")
    with pytest.raises(SettingError, match="InceptionEncoder cannot be exported to ONNX; wanted a bag or a transformer"):
        export(small("inceptionxml"), "onnx", tmp_path / "out")
    with pytest.raises(UnknownName, match="No export format called 'onx'. Did you mean 'onnx'?"):
        export(stored_of("default"), "onx", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(SettingError, match="full already exists"):
        export(stored_of("default"), "npy", tmp_path / "full")
    assert not (tmp_path / "out").exists() and list(FORMATS) == ["onnx", "npy", "parquet", "sentence-transformers"]


def small(recipe: str) -> TrainedModel:
    stored = small_model(recipe, "epochs=1").fit(spelled_out()).trained
    assert stored is not None
    return stored


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnxruntime"), ("parquet", "pyarrow")])
def test_missing_extras(to: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=rf"pip install 'longtail\[{to}\]'"):
        export(stored_of("default"), to, tmp_path / "out")


def test_onnx_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "longtail.models.encoders.bag.OnnxBag.forward",
        lambda self, ids, weights, offsets: weights[:1, None] + self.table[: len(offsets) - 1],
    )
    with pytest.raises(SettingError, match="onnxruntime and torch differ by .* in text.onnx; nothing was written"):
        export(stored_of("default"), "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()
