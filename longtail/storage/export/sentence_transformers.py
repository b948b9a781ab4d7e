"""A sentence-transformers folder: transformer, pooling, and projection and normalisation where the recipe has them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from longtail.core.errors import SettingError
from longtail.inference.trained_model import TrainedModel
from longtail.models.encoders.base import PooledTransformer
from longtail.storage.export.files import quiet, write_json
from longtail.tokens.pretrained import PretrainedCutter

POOLINGS = ("cls_token", "mean_tokens", "max_tokens")


def export_sentence_transformers(model: TrainedModel, folder: Path) -> None:
    """A folder that `SentenceTransformer(folder)` loads; its vectors are those that the first network searches labels with."""
    scorer, cutter = model.scorers[0], model.tokenizer.cutter
    tower = scorer.towers[0]
    transformer = scorer.network.encoder.pooled_transformer(tower.name)
    if transformer is None or not isinstance(cutter, PretrainedCutter):
        raise SettingError(
            "A sentence-transformers folder holds a transformer with its own tokens; "
            f"this model has the encoder {model.members[0].encoder} and the tokens {model.tokenizer.settings}."
        )
    table = scorer.network.table.weight
    config = {**transformer.config, "vocab_size": len(table) - 1}
    _write_transformer(folder, transformer, table[1:], config)
    _write_tokenizer(folder, cutter, config.get("pad_token_id"), model.tokenizer.settings.max_tokens)
    modules = ["Transformer", "Pooling"]
    pooling: dict[str, object] = {"word_embedding_dimension": transformer.dim}
    pooling |= {f"pooling_mode_{name}": name.split("_")[0] == transformer.pooling for name in POOLINGS}
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", pooling)
    if transformer.dense is not None:
        _write_dense(folder / "2_Dense", transformer.dense, transformer.activation)
        modules.append("Dense")
    if tower.scale > 0:
        modules.append("Normalize")
        (folder / f"{len(modules) - 1}_Normalize").mkdir()
    listed = [
        {"idx": place, "name": str(place), "path": "" if place == 0 else f"{place}_{name}", "type": f"sentence_transformers.models.{name}"}
        for place, name in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)


def _write_transformer(folder: Path, transformer: PooledTransformer, word_embeddings: Tensor, config: dict[str, object]) -> None:
    """config.json and model.safetensors as the library writes them, with word embeddings back in their place."""
    from transformers import AutoConfig, AutoModel

    rest = dict(config)
    with quiet(), torch.random.fork_rng(devices=[]):
        model = AutoModel.from_config(AutoConfig.for_model(rest.pop("model_type"), **rest))
        model.load_state_dict(transformer.weights, strict=False)
        model.get_input_embeddings().weight.data.copy_(word_embeddings)
        if hasattr(model, "pooler"):
            model.pooler = None  # never trained here
        model.save_pretrained(folder)


def _write_tokenizer(folder: Path, cutter: PretrainedCutter, pad_token_id: object, max_tokens: int) -> None:
    (folder / "tokenizer.json").write_text(cutter.library, encoding="utf-8")
    # any token would do for padding: nothing looks at what stands behind the end
    padding = cutter.names[1 + (pad_token_id if isinstance(pad_token_id, int) else 0)]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_tokens, "pad_token": padding}
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})


def _write_dense(folder: Path, dense: nn.Linear, activation: str) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    sizes = {"in_features": dense.in_features, "out_features": dense.out_features}
    write_json(folder / "config.json", {**sizes, "bias": True, "activation_function": activation})
    state = {f"linear.{name}": tensor.detach().cpu().contiguous() for name, tensor in dense.state_dict().items()}
    save_file(state, folder / "model.safetensors")
