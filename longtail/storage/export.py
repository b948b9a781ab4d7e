"""A model for other programs: ONNX, label vectors as .npy or Parquet, a sentence-transformers folder.

Text vectors and label vectors of one network fit together: their products and the label's bias are its scores.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.errors import MissingExtra, SettingError, UnknownName
from longtail.core.values import Texts
from longtail.data.files import new_folder
from longtail.inference.label_parts import rows_of
from longtail.inference.scorer import Scorer
from longtail.models.encoders.bag import BagEncoder
from longtail.models.encoders.transformer import TransformerEncoder
from longtail.storage.model_folder import Stored
from longtail.tokens.pretrained import PretrainedCutter

CLOSE = 1e-4  # what onnxruntime and torch may differ by
CHECKED = 64  # label texts that are encoded by both
TEXT, LABELS = "text", "labels"  # .onnx
VECTORS, BIAS, TABLE = "label-vectors", "label-bias", "labels"


def export(stored: Stored, to: str, folder: str | Path) -> list[str]:
    """Write a folder in one of the WAYS; it appears when it is whole. The names of its files."""
    if to not in WAYS:
        raise UnknownName("form of an export", to, WAYS)
    with new_folder(Path(folder)) as fresh:
        WAYS[to](stored, fresh)
        return sorted(path.relative_to(fresh).as_posix() for path in fresh.rglob("*") if path.is_file())


def _name(stem: str, place: int, ending: str) -> str:
    """label-vectors.npy, label-vectors-1.npy, ...: one a network."""
    return f"{stem}.{ending}" if place == 0 else f"{stem}-{place}.{ending}"


# ---- label vectors


def _vectors(scorer: Scorer) -> tuple[Tensor, Tensor | None]:
    """(n_labels, dim) and (n_labels,), zeros and -inf for labels that were removed."""
    vectors = scorer.vectors.float().cpu()
    bias = None if scorer.bias is None else scorer.bias.float().cpu() * scorer.share_of_bias
    if scorer.removed is not None:
        gone = scorer.removed.cpu()
        vectors = vectors.masked_fill(gone[:, None], 0.0)
        bias = torch.zeros(len(vectors)) if bias is None else bias
        bias = bias.masked_fill(gone, -torch.inf)
    return vectors, bias


def export_npy(stored: Stored, folder: Path) -> None:
    """label-vectors.npy and label-bias.npy, row i of label i; -1 and so on behind the name for further networks."""
    for place, scorer in enumerate(stored.scorers):
        vectors, bias = _vectors(scorer)
        np.save(folder / _name(VECTORS, place, "npy"), vectors.numpy())
        if bias is not None:
            np.save(folder / _name(BIAS, place, "npy"), bias.numpy())


def export_parquet(stored: Stored, folder: Path) -> None:
    """labels.parquet with id, text, vector and bias; labels that were removed are left out."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("Writing Parquet", "parquet") from error
    kept = np.setdiff1d(np.arange(len(stored.label_counts)), stored.removed)
    texts = None if stored.label_texts is None else list(stored.label_texts.take(kept))
    for place, scorer in enumerate(stored.scorers):
        vectors, bias = _vectors(scorer)
        flat = pyarrow.array(vectors.numpy()[kept].ravel())
        columns = {"id": pyarrow.array(kept), "text": pyarrow.nulls(len(kept), pyarrow.string()) if texts is None else pyarrow.array(texts)}
        columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        if bias is not None:
            columns["bias"] = pyarrow.array(bias.numpy()[kept])
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / _name(TABLE, place, "parquet"))


# ---- ONNX


class _Ends(nn.Module):
    """From what an encoder gives to the vector that labels are scored with: heads side by side."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.fit = scorer.network.fit
        self.towers, self.scales, self.shares = scorer.towers, scorer.scales, scorer.shares
        self.tower: Callable[[Tensor, str], Tensor] = scorer.network.encoder.project  # type: ignore[assignment]

    def forward(self, hidden: Tensor) -> Tensor:
        found = []
        for task, scale, share in zip(self.towers, self.scales, self.shares, strict=True):
            own = self.fit(self.tower(hidden, task))
            own = own / own.norm(dim=1, keepdim=True).clamp(min=1e-12) if scale > 0 else own
            found.append(own * (share * (scale or 1.0)))
        return torch.cat(found, dim=1)


class _BagText(nn.Module):
    """The bag in operations that ONNX has: rows are summed by a product with 0 and 1."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        encoder = scorer.network.encoder
        assert isinstance(encoder, BagEncoder)
        self.table, self.ends, self.encoder = scorer.network.table.weight.detach(), _Ends(scorer), encoder
        self.matrix = None if encoder.residual is None else encoder.residual.linear.normed_weight().detach()

    def forward(self, ids: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        places = torch.arange(ids.shape[0])
        inside = (places[None] >= offsets[:-1, None]) & (places[None] < offsets[1:, None])  # (b, n)
        text = inside.float() @ (weights[:, None] * functional.embedding(ids, self.table))
        if self.encoder.residual is None:
            text = functional.relu(text)
            assert self.encoder.block is not None
            text = text + functional.relu(self.encoder.block(text))
        else:
            assert self.matrix is not None
            changed = functional.linear(functional.relu(text), self.matrix)
            weight = self.encoder.residual.weight
            gates = torch.sigmoid(weight) if self.encoder.residual.gate == "gated" else (weight, 1.0)
            text = functional.relu(gates[0] * changed + gates[1] * text)
        found: Tensor = self.ends(text)
        return found


class _TransformerText(nn.Module):
    """The transformer on ids in a table; 0 behind the end of a text."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        assert isinstance(scorer.network.encoder, TransformerEncoder)
        self.table, self.ends, self.encoder = scorer.network.table.weight.detach(), _Ends(scorer), scorer.network.encoder

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.ends(self.encoder._pooled(ids, ids > 0, self.table))
        return found


class _Scores(nn.Module):
    """Text vectors to the scores of all labels."""

    def __init__(self, vectors: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.vectors, self.bias = vectors, bias

    def forward(self, text: Tensor) -> Tensor:
        return functional.linear(text, self.vectors, self.bias)


def export_onnx(stored: Stored, folder: Path) -> None:
    """text.onnx, from tokens to text vectors, and labels.onnx, from text vectors to scores before any sigmoid; of each network.

    A bag takes `ids`, `weights` and `offsets`, as the model's tokenizer gives them; a transformer `ids` alone, (texts, tokens), with 0
    behind the end of a text. What onnxruntime makes of label texts is compared with torch before anything is written.
    """
    run = _runner()
    members = [(member, scorer) for member in stored.members for scorer in member.scorers]
    for place, (member, scorer) in enumerate(members):
        if scorer.vectors.device.type != "cpu":
            raise SettingError('The model is on a GPU; load it with device="cpu" to export it.')
        sample = Texts.of(["a", "b c"]) if stored.label_texts is None else stored.label_texts[:CHECKED]
        rows = rows_of(member.tokenizer, sample, torch.device("cpu"))
        some = torch.tensor([row for row, length in enumerate(rows.offsets.diff().tolist()) if length])
        if not len(some):
            raise SettingError("The model reads none of its label texts; wanted some to compare torch and onnxruntime with.")
        batch, encoder = rows.take(some), scorer.network.encoder
        if isinstance(encoder, BagEncoder):
            inputs = {"ids": batch.ids, "weights": batch.weights, "offsets": batch.offsets}
            axes: dict[str, Any] = {"ids": {0: "tokens"}, "weights": {0: "tokens"}, "offsets": {0: "ends"}}
            module: nn.Module = _BagText(scorer)
        elif isinstance(encoder, TransformerEncoder):
            lengths = batch.offsets.diff()
            padded = torch.zeros(len(lengths), int(lengths.max()), dtype=torch.int64)
            padded[torch.arange(padded.shape[1]) < lengths[:, None]] = batch.ids.long()
            inputs, axes = {"ids": padded}, {"ids": {0: "texts", 1: "tokens"}}
            module = _TransformerText(scorer)
        else:
            raise SettingError(f"The encoder {type(encoder).__name__} cannot be exported to ONNX; wanted a bag or a transformer.")
        with torch.no_grad():
            wanted = scorer.in_towers(encoder(batch, scorer.network.table.weight))  # in float32, as ONNX has it
        _written(module, inputs, axes, folder / _name(TEXT, place, "onnx"), wanted, run)
        vectors, bias = _vectors(scorer)
        scores = functional.linear(wanted, vectors, bias)
        _written(_Scores(vectors, bias), {"text": wanted}, {"text": {0: "texts"}}, folder / _name(LABELS, place, "onnx"), scores, run)


def _runner() -> Callable[[Path, dict[str, Tensor]], Tensor]:
    """What an ONNX file makes of inputs."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # which torch writes ONNX with
    except ImportError as error:
        raise MissingExtra("Export to ONNX", "onnx") from error

    def run(path: Path, inputs: dict[str, Tensor]) -> Tensor:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return torch.from_numpy(found)

    return run


def _written(module: nn.Module, inputs: dict[str, Tensor], axes: dict[str, Any], path: Path, wanted: Tensor, run: Any) -> None:
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=["vectors" if TEXT in path.stem else "scores"],
            dynamic_shapes=tuple(axes.values()),
            dynamo=True,
            verbose=False,
        )
    finite = torch.isfinite(wanted)  # what is removed has no score
    far = float((run(path, inputs) - wanted)[finite].abs().max())
    if not far <= CLOSE * max(1.0, float(wanted[finite].abs().max())):
        raise SettingError(f"onnxruntime and torch differ by {far:.1e} in {path.name}; nothing was written.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


# ---- sentence-transformers


def export_sentence_transformers(stored: Stored, folder: Path) -> None:
    """What `SentenceTransformer(folder)` loads: transformer, pooling, and head and normalisation where the recipe has them."""
    from safetensors.torch import save_file

    scorer, cutter = stored.scorers[0], stored.tokenizer.cutter
    network, encoder = scorer.network, scorer.network.encoder
    if not isinstance(encoder, TransformerEncoder) or not isinstance(cutter, PretrainedCutter):
        raise SettingError(
            "A sentence-transformers folder holds a transformer with its own tokens; "
            f"this model has the encoder {stored.recipe.encoder} and the tokens {stored.recipe.tokens}."
        )
    if encoder.adapter is not None:
        raise SettingError("A sentence-transformers folder has no place for the adapter behind the transformer; wanted --to onnx.")
    config = {**encoder.architecture(), "vocab_size": len(network.table.weight) - 1}
    _write_transformer(folder, encoder, network.table.weight[1:], config)
    (folder / "tokenizer.json").write_text(cutter.library, encoding="utf-8")
    most = stored.tokenizer.settings.max_tokens
    padding = cutter.names[1 + (config.get("pad_token_id") or 0)]  # any token would do: what stands behind the end is not looked at
    _json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": most, "pad_token": padding})
    _json(folder / "sentence_bert_config.json", {"max_seq_length": most, "do_lower_case": False})
    modules = ["Transformer", "Pooling"]
    pooling = {"word_embedding_dimension": encoder.hidden}
    pooling |= {
        f"pooling_mode_{name}": name.split("_")[0] == encoder.settings.pooling for name in ("cls_token", "mean_tokens", "max_tokens")
    }
    (folder / "1_Pooling").mkdir()
    _json(folder / "1_Pooling" / "config.json", pooling)
    task, scale = scorer.towers[0], scorer.scales[0]
    if encoder.projections:
        name = task if task in encoder.projections else "labels"
        linear = encoder.projections[name][0]  # type: ignore[index]
        activation = "torch.nn.modules.activation.Tanh" if name == "labels" else "torch.nn.modules.linear.Identity"
        (folder / "2_Dense").mkdir()
        told = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": True, "activation_function": activation}
        _json(folder / "2_Dense" / "config.json", told)
        state = {"linear.weight": linear.weight.detach().cpu().contiguous(), "linear.bias": linear.bias.detach().cpu().contiguous()}
        save_file(state, folder / "2_Dense" / "model.safetensors")
        modules.append("Dense")
    if scale > 0:
        modules.append("Normalize")
        (folder / f"{len(modules) - 1}_Normalize").mkdir()
    listed = [
        {"idx": place, "name": str(place), "path": "" if place == 0 else f"{place}_{name}", "type": f"sentence_transformers.models.{name}"}
        for place, name in enumerate(modules)
    ]
    _json(folder / "modules.json", listed)


def _write_transformer(folder: Path, encoder: TransformerEncoder, words: Tensor, config: dict[str, Any]) -> None:
    """config.json and model.safetensors as the library writes them, with word embeddings back in their place."""
    from transformers import AutoConfig, AutoModel

    rest = dict(config)
    with _quiet(), torch.random.fork_rng(devices=[]):
        model = AutoModel.from_config(AutoConfig.for_model(rest.pop("model_type"), **rest))
        model.load_state_dict(encoder.model.state_dict(), strict=False)
        model.get_input_embeddings().weight.data.copy_(words)
        if hasattr(model, "pooler"):
            model.pooler = None  # never trained here
        model.save_pretrained(folder)


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


WAYS: dict[str, Callable[[Stored, Path], None]] = {
    "onnx": export_onnx,
    "npy": export_npy,
    "parquet": export_parquet,
    "sentence-transformers": export_sentence_transformers,
}
