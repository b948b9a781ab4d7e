"""Small models in folders, as the Hugging Face library writes them: random weights, twelve tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "tea", "##s", "green", "cup", "##ful", "!", "a"]
SHAPE = {"vocab_size": 12, "max_position_embeddings": 16, "initializer_range": 0.5}
BERT = {**SHAPE, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", BERT),
    "distilbert": ("DistilBertConfig", {**SHAPE, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32}),
    "roberta": ("RobertaConfig", {**BERT, "pad_token_id": 1, "type_vocab_size": 1}),  # positions begin behind the number of padding
    # a token sees its neighbours' vectors, and where there is none zeros
    "mobilebert": ("MobileBertConfig", {**BERT, "embedding_size": 8, "intra_bottleneck_size": 16, "initializer_range": 0.1}),
    "albert": ("AlbertConfig", {**BERT, "embedding_size": 8, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}),
}


def save_model(folder: Path, kind: str = "bert", **changes: Any) -> Any:
    """Write a model of random weights and give it back."""
    import transformers

    name, settings = CONFIGS[kind]
    config = getattr(transformers, name)(**{**settings, **changes})
    model = transformers.AutoModel.from_config(config).eval()
    model.save_pretrained(folder)
    return model


def save_rules(folder: Path) -> Tokenizer:
    """Write a tokenizer.json that pads and cuts texts, as those of sentence encoders do; give back one that does neither."""
    rules = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    rules.normalizer = normalizers.BertNormalizer(lowercase=True)
    rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rules.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    rules.enable_padding(length=10)
    rules.enable_truncation(3)
    folder.mkdir(exist_ok=True)
    rules.save(str(folder / "tokenizer.json"))
    rules.no_padding()
    rules.no_truncation()
    return rules
