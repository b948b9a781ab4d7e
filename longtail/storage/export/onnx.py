"""ONNX: a network as text.onnx, from tokens to text vectors, and labels.onnx, from text vectors to scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.errors import MissingExtra, SettingError
from longtail.core.values import Texts
from longtail.inference.scorer import Scorer
from longtail.inference.towers import search_vectors
from longtail.inference.trained_model import TrainedModel
from longtail.models.encoders.base import OnnxText
from longtail.storage.export.files import file_name, quiet
from longtail.storage.export.vectors import label_vectors
from longtail.tokens.tokenizer import Tokenizer

TOLERANCE = 1e-4  # between onnxruntime and torch
CHECKED_LABELS = 64  # whose texts are encoded by both
TEXT, LABELS = "text", "labels"  # .onnx

Run = Callable[[Path, dict[str, Tensor]], Tensor]  # an ONNX file and its inputs -> its output


class _Projection(nn.Module):
    """From the encoder's output to the vectors that labels are searched with."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.encoder, self.fit, self.towers = scorer.network.encoder, scorer.network.fit, scorer.towers

    def forward(self, hidden: Tensor) -> Tensor:
        return search_vectors(self.towers, lambda tower: self.fit(self.encoder.project(hidden, tower)))


class _Scores(nn.Module):
    """From text vectors to the scores of all labels."""

    def __init__(self, vectors: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.vectors, self.bias = vectors, bias

    def forward(self, text: Tensor) -> Tensor:
        return functional.linear(text, self.vectors, self.bias)


def export_onnx(model: TrainedModel, folder: Path) -> None:
    """text.onnx, from tokens to text vectors, and labels.onnx, from text vectors to scores before any sigmoid; of each network.

    A bag takes `ids`, `weights` and `offsets`, as the model's tokenizer gives them; a transformer `ids` alone, (texts, tokens), with 0
    behind the end of a text. What onnxruntime makes of label texts is compared with torch before anything is written.
    """
    run = _runner()
    sample = Texts.of(["a", "b c"]) if model.label_texts is None else model.label_texts[:CHECKED_LABELS]
    networks = [(member.tokenizer, scorer) for member in model.members for scorer in member.scorers]
    for place, (tokenizer, scorer) in enumerate(networks):
        if scorer.vectors.device.type != "cpu":
            raise SettingError('The model is on a GPU; load it with device="cpu" to export it.')
        text, wanted = _traceable(scorer, tokenizer, sample)
        _write(text, folder / file_name(TEXT, place, "onnx"), "vectors", wanted, run)
        vectors, bias = label_vectors(scorer)
        scores = OnnxText(_Scores(vectors, bias), {"text": wanted}, {"text": {0: "texts"}})
        _write(scores, folder / file_name(LABELS, place, "onnx"), "scores", functional.linear(wanted, vectors, bias), run)


def _traceable(scorer: Scorer, tokenizer: Tokenizer, sample: Texts) -> tuple[OnnxText, Tensor]:
    """The network from tokens to text vectors as ONNX can hold it, and the vectors of the sample that it should give."""
    rows = tokenizer(sample)
    some = torch.nonzero(rows.lengths).flatten()
    if not len(some):
        raise SettingError("The model reads none of its label texts; wanted some to compare torch and onnxruntime with.")
    batch, encoder, table = rows.take(some), scorer.network.encoder, scorer.network.table.weight.detach()
    text = encoder.onnx(table, _Projection(scorer), batch)
    if text is None:
        raise SettingError(f"The encoder {type(encoder).__name__} cannot be exported to ONNX; wanted a bag or a transformer.")
    with torch.no_grad():
        return text, scorer.search_vectors(encoder(batch, table))  # in float32, as ONNX has it


def _runner() -> Run:
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


def _write(text: OnnxText, path: Path, output: str, wanted: Tensor, run: Run) -> None:
    """Write a file, if it gives what was wanted for the inputs."""
    with quiet(), torch.no_grad():
        torch.onnx.export(
            text.module.eval(),
            tuple(text.inputs.values()),
            str(path),
            input_names=list(text.inputs),
            output_names=[output],
            dynamic_shapes=tuple(text.axes.values()),
            dynamo=True,
            verbose=False,
        )
    finite = torch.isfinite(wanted)  # removed labels have no score
    far = float((run(path, text.inputs) - wanted)[finite].abs().max())
    if not far <= TOLERANCE * max(1.0, float(wanted[finite].abs().max())):
        raise SettingError(f"onnxruntime and torch differ by {far:.1e} in {path.name}; nothing was written.")
