"""A scorer as named tensors and a table that JSON can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from longtail.core.settings import from_table
from longtail.inference.retrieval import RETRIEVALS
from longtail.inference.scorer import Scorer
from longtail.inference.towers import SearchedTower
from longtail.models.encoders.base import EncoderSettings
from longtail.models.encoders.context import NeighbourIndex
from longtail.models.network import Network
from longtail.models.table import Table
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer

TABLE = "network.table.weight"


def pack_scorer(scorer: Scorer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All that the scorer answers with: tensors by name, and the rest as a table. Towers, which only training needs, are left out."""
    network, neighbours = scorer.network, scorer.network.neighbours
    tensors: dict[str, Tensor | None] = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("network.towers.")}
    tensors |= {"vectors": scorer.vectors, "bias": scorer.bias, **scorer.retrieval.tensors()}
    table = {
        "by": scorer.retrieval.name,
        "retrieval": scorer.retrieval.settings(),
        "towers": [asdict(tower) for tower in scorer.towers],
        "gives_cosines": scorer.gives_cosines,
        "slope": scorer.slope,
        "offset": scorer.offset,
        "width": network.width,
        "dim": network.dim,
        "architecture": network.encoder.architecture(),  # of a pretrained model, of which the settings have the name alone
        "has_cluster_encoder": network.cluster_encoder is not None,
    }
    if neighbours is not None:
        rows = neighbours.training
        tensors |= {"neighbours.ids": rows.ids, "neighbours.weights": rows.weights, "neighbours.offsets": rows.offsets}
        table["neighbours"] = {"n": neighbours.n, "n_tokens": rows.n_tokens, "n_bigrams": rows.n_bigrams}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items() if tensor is not None}, table


def pack_towers(scorer: Scorer) -> dict[str, Tensor]:
    """The weights of the towers that label vectors were made by, as far as they are in memory."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in scorer.network.towers.state_dict().items()}


def unpack_scorer(
    tensors: Mapping[str, Tensor],
    table: Mapping[str, Any],
    encoder: EncoderSettings,
    tokenizer: Tokenizer,
    device: torch.device,
    vectors_on_disk: bool,
) -> Scorer:
    """The scorer that `pack_scorer` packed.

    Args:
        tensors: on the device; on a CPU mapped from a file.
        encoder: settings that the encoder was built with.
        vectors_on_disk: leave label vectors in the file, of which a text needs a few rows.
    """
    if device.type == "cpu":
        # a mapped tensor begins anywhere in its file, and the last bit of a product depends on how its factors lie in memory
        mapped = {TABLE} | ({"vectors"} if vectors_on_disk or not RETRIEVALS[table["by"]].scores_all_labels else set())
        tensors = {name: tensor if name in mapped else tensor.clone() for name, tensor in tensors.items()}
    return Scorer(
        _unpack_network(tensors, table, encoder, tokenizer),
        tensors["vectors"],
        tensors.get("bias"),
        RETRIEVALS[table["by"]].restored(tensors, table["retrieval"]),
        tuple(from_table(SearchedTower, tower, "tower") for tower in table["towers"]),
        table["gives_cosines"],
        table["slope"],
        table["offset"],
    )


def _unpack_network(tensors: Mapping[str, Tensor], table: Mapping[str, Any], encoder: EncoderSettings, tokenizer: Tokenizer) -> Network:
    dim = tensors[TABLE].shape[1]
    token_table = Table(0, dim, 0.0)
    # no memory for a table that is replaced at once, nor random numbers, for which torch would load its compiler
    token_table.weight = nn.Parameter(torch.empty(tokenizer.n_tokens, dim, device="meta"))
    network = Network(token_table, encoder.rebuild(table["architecture"]), table["width"], table["dim"])
    if table["has_cluster_encoder"]:
        network.cluster_encoder = encoder.rebuild(table["architecture"])
    state = {name.removeprefix("network."): tensor for name, tensor in tensors.items() if name.startswith("network.")}
    network.load_state_dict(state, assign=True)
    network.eval().requires_grad_(False)
    if "neighbours" in table:
        ids, weights, offsets = (tensors[f"neighbours.{name}"] for name in ("ids", "weights", "offsets"))
        rows = TokenRows(ids, weights, offsets, table["neighbours"]["n_tokens"], table["neighbours"]["n_bigrams"])
        network.neighbours = NeighbourIndex(rows, table["neighbours"]["n"])
    return network
