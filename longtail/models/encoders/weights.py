"""Transformers of the Hugging Face library, without their word embeddings: those are the network's token table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from longtail.core.errors import MissingExtra, SettingError
from longtail.tokens.folder import CONFIG, first_line, read_settings

WIDTHS = ("hidden_size", "dim", "n_embd", "d_model")  # names for the same
# of a config, what says nothing of the model that we take out of it: where it lay, what others did with it, how many words it knew
LEFT_OUT = {"_name_or_path", "architectures", "transformers_version", "id2label", "label2id", "vocab_size"}
NARROW = 4  # the inner layers of a transformer are so many times as wide


def widths(folder: Path) -> tuple[int, int]:
    """Dimensions of the word embeddings and of what comes out, without loading anything."""
    config = read_settings(folder / CONFIG)
    hidden = next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)
    if hidden is None:
        raise SettingError(f"{folder / CONFIG} has no hidden_size; wanted the folder of a transformer.")
    inner = config.get("embedding_size")
    return inner if isinstance(inner, int) else hidden, hidden


def from_folder(folder: Path) -> tuple[Any, Tensor]:
    """The model and its word vectors, (n, dim), in float32."""
    if not any(folder.glob("*.safetensors")):
        raise SettingError(f"{folder} holds no weights; wanted model.safetensors.")
    with _quiet():
        from transformers import AutoConfig, AutoModel

        local = {"local_files_only": True, "trust_remote_code": False}
        try:
            config = AutoConfig.from_pretrained(str(folder), **local)
            model, report = AutoModel.from_pretrained(str(folder), config=config, use_safetensors=True, output_loading_info=True, **local)
        except Exception as error:  # of files, of JSON, of shapes, of kinds that the library does not know
            raise SettingError(f"The model in {folder} cannot be loaded ({first_line(error)}).") from error
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise SettingError(f"The model in {folder} is not whole: {len(missing)} weights are missing, the first is {missing[0]}.")
    return _without_words(model.float())


def from_config(architecture: Mapping[str, object]) -> Any:
    """The model that a config describes, with weights drawn from torch's generator."""
    rest: dict[str, Any] = dict(architecture)
    kind = rest.pop("model_type", None)
    rest["vocab_size"] = (rest.get("pad_token_id") or 0) + 1  # word embeddings are taken out at once: no need to make many
    with _quiet():
        from transformers import AutoConfig, AutoModel

        try:
            model = AutoModel.from_config(AutoConfig.for_model(kind, **rest))
        except Exception as error:
            raise SettingError(f"A transformer of kind {kind!r} cannot be made ({first_line(error)}).") from error
    return _without_words(model.float())[0]


def attend_by(model: Any, way: str) -> None:
    """Switch a model to another computation of the same attention; versions of the library that cannot are left as they are."""
    if getattr(model.config, "_attn_implementation", way) != way and hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation(way)


def config_of(model: Any) -> dict[str, Any]:
    """All that `from_config` needs, as JSON can hold it."""
    config: dict[str, Any] = model.config.to_dict()
    return {name: value for name, value in config.items() if name not in LEFT_OUT}


def bert_config(hidden: int, layers: int, attention_heads: int) -> dict[str, Any]:
    """A BERT of this shape."""
    return {
        "model_type": "bert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": attention_heads,
        "intermediate_size": NARROW * hidden,
    }


def max_positions(model: Any) -> int | None:
    """Tokens of a text that the model has positions for; None where it takes any number."""
    positions = getattr(model.config, "max_position_embeddings", None)
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding) and part.padding_idx is not None:
            return part.num_embeddings - part.padding_idx - 1  # RoBERTa counts from behind the number of padding
    return positions if isinstance(positions, int) and positions > 0 else None


def _without_words(model: Any) -> tuple[Any, Tensor]:
    if model.config.is_encoder_decoder:
        raise SettingError(
            f"The model is a {model.config.model_type}, an encoder with a decoder behind it; wanted an encoder, such as BERT."
        )
    vectors = model.get_input_embeddings().weight.detach()
    model.set_input_embeddings(nn.Identity())  # never called: the model is handed vectors
    if "add_pooling_layer" in signature(type(model)).parameters:
        model.pooler = None  # of no use to us
    return model, vectors


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the library says while it loads; what matters of it is raised as an error."""
    try:
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtra("The transformer encoder", "encoders") from error
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
