"""A transformer that does not learn: each text is encoded once, and what stands behind it learns."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import longtail
from longtail.core import progress
from longtail.core.errors import SettingError
from longtail.core.values import Dataset
from longtail.estimator import XMC
from longtail.evaluation.evaluate import evaluate
from longtail.models.encoders.transformer import Adapter, Transformer, TransformerEncoder
from longtail.recipes.read import read_recipe
from longtail.storage.export import export
from longtail.tokens.rows import TokenRows
from longtail.training import loop
from tests.pretrained import save_model, save_rules
from tests.tensors import same_numbers as same_numbers

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    save_model(place)
    save_rules(place)
    return place


@pytest.fixture(scope="module")
def data() -> Dataset:
    """A text belongs to the label that comes after the one it names, which cannot be known without learning."""
    names = [f"{colour} {thing}" for colour in ("red", "green") for thing in ("tea", "teas", "cup", "cupful")]
    texts, labels = [], []
    for place, name in enumerate(names):
        first, second = name.split()
        for text in (name, f"a {name}", f"{name} !", f"{second} {first}", f"a {second} {first} !", f"{name} {name}"):
            texts.append(text)
            labels.append([names[(place + 1) % len(names)]])
    return longtail.from_lists(texts=texts, labels=labels, test=(texts[:3], labels[:3]))


def settings(folder: Path, *more: str) -> list[str]:
    return [
        f"encoder.model={folder}",
        "max_tokens=16",
        "adapter=32",
        "epochs=20",
        "min_steps=0",
        "batch_size=8",
        "learning_rate=1e-2",
        *more,
    ]


def test_rows_that_were_encoded_come_as_vectors() -> None:
    vectors = torch.arange(8.0).view(4, 2)
    rows = TokenRows.already_encoded(vectors.half(), 9)
    batch = rows.take(torch.tensor([3, 0, 3]))
    assert batch.encoded is not None and batch.encoded.dtype == torch.float32
    assert batch.encoded.tolist() == [[6, 7], [0, 1], [6, 7]] and len(batch.ids) == 0 and batch.offsets.tolist() == [0, 0, 0, 0]
    both = TokenRows.join([batch, rows.batch()])
    assert both.encoded is not None and both.encoded.tolist() == [[6, 7], [0, 1], [6, 7], *vectors.tolist()] and len(both.offsets) == 8


def test_an_adapter_begins_as_what_it_is_given_and_learns_at_once() -> None:
    torch.manual_seed(0)
    adapter = Adapter(6, 1, 9, 0.0)
    hidden = torch.randn(4, 6)
    found = adapter(hidden)
    assert torch.allclose(torch.nn.functional.cosine_similarity(found, hidden), torch.ones(4))
    assert torch.allclose(found.norm(dim=1), torch.full((4,), 6**0.5))
    (slope,) = torch.autograd.grad(found[:, 0].sum(), adapter.narrow.weight)
    assert slope[0].abs().min() > 0 and slope[1:].abs().max() == 0
    assert torch.equal(adapter(torch.zeros(1, 6)), torch.zeros(1, 6) + adapter.narrow(torch.nn.functional.gelu(adapter.widen.bias))[None])


def test_an_adapter_of_several_depths_begins_as_the_last_and_looks_at_all() -> None:
    torch.manual_seed(0)
    adapter = Adapter(6, 3, 9, 0.0)
    hidden = torch.randn(4, 18)
    assert torch.allclose(adapter(hidden), adapter(hidden * torch.tensor([5.0, 7.0, 2.0]).repeat_interleave(6)), atol=1e-6)
    assert torch.allclose(adapter(hidden), 6**0.5 * torch.nn.functional.normalize(hidden[:, 12:], dim=1))
    torch.nn.init.normal_(adapter.narrow.weight)
    for depth in range(3):
        other = hidden.clone()
        other[:, 6 * depth : 6 * depth + 6] *= -1
        assert not torch.allclose(adapter(hidden), adapter(other))


def test_what_learns_and_what_drops(folder: Path) -> None:
    encoder = Transformer(str(folder), frozen=True, adapter=8).build()
    assert encoder.training and encoder.adapter is not None and encoder.adapter.training and not encoder.model.training
    for wanted in (False, True):
        encoder.requires_grad_(wanted)
        assert {name.split(".")[0] for name, part in encoder.named_parameters() if part.requires_grad} == ({"adapter"} if wanted else set())
    free = Transformer(str(folder), adapter=8).build()
    assert free.model.training and all(part.requires_grad for part in free.parameters())


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("negatives.hard=2", "negatives.refresh=3", "depths=1"),
        ("labels.parts=encoded",),
        ("labels.parts=free", "labels.unit=false", "loss=bce", "objective=all-labels"),
    ],
)
def test_it_learns_and_the_transformer_stays_as_it_is(folder: Path, data: Dataset, more: tuple[str, ...]) -> None:
    model = XMC.from_recipe("frozen", settings(folder, *more)).fit(data)
    network = model.trained.scorers[0].network  # type: ignore[union-attr]
    assert isinstance(network.encoder, TransformerEncoder)
    given = Transformer(str(folder)).build()
    assert given.word_vectors is not None and torch.equal(network.table.weight[1:], given.word_vectors)
    learnt = network.encoder.model.state_dict()
    assert all(torch.equal(tensor, learnt[name]) for name, tensor in given.model.state_dict().items())
    losses = [entry["loss"] for entry in model.history]
    assert losses[-1] < 0.8 * losses[0]


def test_learning_is_better_than_not(folder: Path, data: Dataset) -> None:
    """The rows that it learnt from are found again by more than the model's own vectors find."""
    rows = Dataset(data.name, data.train, data.train, data.label_texts)
    as_it_is, learnt = (
        evaluate(XMC.from_recipe("frozen", settings(folder, *more)).fit(rows).predict_test(rows), rows, resamples=0).metrics["P@1"]
        for more in (["learning_rate=1e-12"], ["epochs=300", "temperature=0.02", "adapter=64", "encoder.dropout=0"])
    )
    assert learnt > as_it_is + 40


def test_texts_are_encoded_once(folder: Path, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    forward = TransformerEncoder.forward

    def noted(self: TransformerEncoder, batch, table, context=None):  # type: ignore[no-untyped-def]
        encoded.append(0 if batch.encoded is not None else len(batch))
        return forward(self, batch, table, context)

    monkeypatch.setattr(TransformerEncoder, "forward", noted)
    model = XMC.from_recipe("frozen", settings(folder, "negatives.hard=2", "negatives.refresh=3")).fit(data)
    assert sum(encoded) == len(data.train) + data.n_labels
    assert model.trained is not None and encoded.count(0) > 20


def test_vectors_of_training_are_those_of_prediction(folder: Path, data: Dataset) -> None:
    """Encoded in half precision for training, in full for prediction."""
    model = XMC.from_recipe("frozen", settings(folder, "labels.parts=encoded")).fit(data)
    assert model.trained is not None and data.label_texts is not None
    scorer, tokenizer = model.trained.scorers[0], model.trained.tokenizer
    rows = tokenizer(data.label_texts)
    assert torch.allclose(scorer.encode(rows), scorer.vectors, atol=2e-2)


def test_a_new_label_that_is_its_text_alone_is_found_by_it(folder: Path, data: Dataset) -> None:
    model = XMC.from_recipe("frozen", settings(folder, "labels.parts=encoded")).fit(data)
    assert model.add_labels(["green tea cups"]) == [data.n_labels]
    assert model.predict(["green tea cups"], k=1).ids.tolist() == [[data.n_labels]]


def test_saved_resumed_and_given_new_labels(folder: Path, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = XMC.from_recipe("frozen", settings(folder), seed=1).fit(data)
    whole.save(tmp_path / "kept")
    texts = ["red tea", "a green cup"]
    again = longtail.load(tmp_path / "kept")
    assert np.array_equal(again.predict(texts).ids, whole.predict(texts).ids)
    assert again.add_labels(["green tea cups"]) == [data.n_labels]
    assert data.n_labels in again.predict(["green tea cups"], k=data.n_labels + 1).ids

    calls = []

    def stopped(*args, **kwargs):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return train_step(*args, **kwargs)

    train_step = loop.backward
    monkeypatch.setattr(loop, "backward", stopped)
    parted = XMC.from_recipe("frozen", settings(folder), seed=1)
    with pytest.raises(KeyboardInterrupt):
        parted.fit(data, checkpoint=tmp_path / "checkpoint", minutes=0)
    monkeypatch.undo()
    assert (tmp_path / "checkpoint").exists()
    parted.fit(data, checkpoint=tmp_path / "checkpoint")
    assert parted.trained is not None and whole.trained is not None
    assert torch.equal(parted.trained.scorers[0].vectors, whole.trained.scorers[0].vectors)


def test_what_cannot_be(folder: Path, data: Dataset, tmp_path: Path) -> None:
    nothing = ["adapter=0", "depths=1"]
    with pytest.raises(SettingError, match="the encoder is frozen, and nothing behind it learns; wanted encoder.adapter = 1024"):
        read_recipe("frozen", [*nothing, "labels.parts=encoded"])
    read_recipe("frozen", nothing)
    for more in ("projection=16", "labels.bias=true"):
        read_recipe("frozen", [*nothing, "labels.parts=encoded", more])
    with pytest.raises(SettingError, match="adapter came as -1"):
        Transformer(adapter=-1)
    model = XMC.from_recipe("frozen", settings(folder, "epochs=1")).fit(data)
    assert model.trained is not None
    with pytest.raises(SettingError, match="no place for the adapter behind the transformer; wanted --to onnx"):
        export(model.trained, "sentence-transformers", tmp_path / "out")


def test_encoding_that_takes_long_is_shown(
    folder: Path, data: Dataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_S", 0.0)
    XMC.from_recipe("frozen", settings(folder, "epochs=1")).fit(data)
    shown = capsys.readouterr().err
    assert "Encoding label texts: 100 %" in shown and "Encoding training texts: 100 %" in shown


def test_ctrl_c_while_texts_are_encoded_ends_at_once(
    folder: Path, data: Dataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TokenRows, "already_encoded", pressed)
    with pytest.raises(KeyboardInterrupt):
        XMC.from_recipe("frozen", settings(folder)).fit(data)
    assert "epoch 1" not in capsys.readouterr().err
