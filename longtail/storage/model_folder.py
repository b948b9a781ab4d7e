"""A model folder: what a trained model needs to answer, and to be understood; no pickle.

model.json           recipe, numbers, which ranker each network is
weights.safetensors  token table, encoder, label vectors, cluster vectors
parts.safetensors    what label vectors were mixed from; not needed to predict
labels.npz           label texts, training counts, and which labels were removed
labels/              labels that were added or removed since, a file each time
graph.npz            the label graph, where the recipe has one
tokenizer.json       and tokenizer-1.json, ... of recipes beside it
index/               of label vectors, where `longtail index` built one
history.json         loss, validation and seconds of every epoch
rows.npz             training texts and their labels, to show beside predictions; only where asked for
README.md            the model card
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

import longtail
from longtail.core.errors import DataError, LongtailError
from longtail.core.values import LabelGraph, Texts
from longtail.data.files import new_folder
from longtail.data.graph.store import load_graph, save_graph
from longtail.inference.ensemble import Ensemble, Member
from longtail.inference.scorer import Scorer
from longtail.inference.search.all_labels import AllLabels
from longtail.inference.search.clusters import ClusterIndex, Neighbours
from longtail.inference.search.labels import Index
from longtail.models.encoders.transformer import TransformerEncoder
from longtail.models.network import Network
from longtail.models.table import Table
from longtail.recipes.recipe import Recipe, make_recipe
from longtail.storage.index_folder import FILES, open_index, read_labels
from longtail.tokens.load import load_tokenizer
from longtail.tokens.tokenizer import Tokenizer

FORMAT = 4
INDEX, ROWS = "index", "rows.npz"
MODEL, WEIGHTS, PARTS, LABELS, GRAPH, TOKENIZER, HISTORY, CARD = (
    "model.json",
    "weights.safetensors",
    "parts.safetensors",
    "labels.npz",
    "graph.npz",
    "tokenizer.json",
    "history.json",
    "README.md",
)


@dataclass(frozen=True)
class Stored:
    """A trained model, as it lies in its folder."""

    recipe: Recipe
    members: list[Member]  # of the recipe, then of those beside it
    label_texts: Texts | None
    label_counts: np.ndarray[Any, np.dtype[np.int64]]  # training rows of each label
    graph: LabelGraph | None
    about: dict[str, Any]  # data, counts, seeds, seconds: what the card tells
    history: list[dict[str, Any]]
    folder: Path | None = None  # where it lies
    index: Index | None = None  # of all networks' label vectors side by side, where they are joined

    @cached_property
    def ensemble(self) -> Ensemble:
        return Ensemble(self.members, self.index)

    @property
    def removed(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Ids of labels that are never named."""
        mask = self.scorers[0].removed
        return np.zeros(0, np.int64) if mask is None else torch.nonzero(mask).flatten().cpu().numpy()

    def without(self, labels: np.ndarray[Any, np.dtype[np.int64]]) -> Stored:
        """Never naming these labels again; all others keep their ids."""
        gone = torch.from_numpy(labels).to(self.scorers[0].vectors.device)
        members = [replace(member, scorers=[scorer.without(gone) for scorer in member.scorers]) for member in self.members]
        return replace(self, members=members)

    def retrieved(self) -> Stored:
        """Without recipes that count nothing in the sum; the first stays, by which the model is called."""
        kept = [place for place, member in enumerate(self.members) if place == 0 or member.weight > 0]
        if len(kept) in (1, len(self.members)):  # a voice alone is not weighed, and would tell other chances than the sum
            return self
        first = replace(self.members[0], offset=sum(member.offset for member in self.members))
        members = [first, *(replace(self.members[place], offset=0.0) for place in kept[1:])]
        beside = tuple(self.recipe.beside[place - 1] for place in kept[1:])
        about = {**self.about, "networks": sum(len(member.scorers) for member in members)}
        return replace(self, members=members, recipe=replace(self.recipe, beside=beside), about=about)

    @property
    def scorers(self) -> list[Scorer]:
        return [scorer for member in self.members for scorer in member.scorers]

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the recipe itself."""
        return self.members[0].tokenizer


def save_model(folder: Path, stored: Stored, rows: tuple[Texts, csr_matrix] | None = None) -> None:
    """Write the folder; it appears when it is whole.

    Args:
        rows: training texts and their labels, to be kept beside the model.
    """
    from safetensors.torch import save_file

    with new_folder(folder) as fresh:
        for place, member in enumerate(stored.members):
            member.tokenizer.save(fresh / _tokenizer_file(place))
        texts = stored.label_texts
        arrays: dict[str, Any] = {"counts": stored.label_counts}
        if texts is not None:
            arrays |= {"buffer": texts.buffer, "offsets": texts.offsets}
        if len(stored.removed):
            arrays["removed"] = stored.removed
        np.savez(fresh / LABELS, **arrays)
        if rows is not None:
            texts, labels = rows
            np.savez_compressed(fresh / ROWS, buffer=texts.buffer, offsets=texts.offsets, ids=labels.indices, ends=labels.indptr)
        if stored.graph is not None:
            save_graph(stored.graph, fresh / GRAPH)
        weights: dict[str, Tensor] = {}
        parts: dict[str, Tensor] = {}
        described = []
        for place, scorer in enumerate(stored.scorers):
            tensors, told = _packed(scorer)
            weights |= {f"{place}/{name}": tensor for name, tensor in tensors.items()}
            towers = scorer.network.towers.state_dict()
            parts |= {f"{place}/{name}": tensor.detach().cpu().contiguous() for name, tensor in towers.items()}
            described.append(told)
        save_file(weights, fresh / WEIGHTS)
        if parts:
            save_file(parts, fresh / PARTS)
        model = {
            "format": FORMAT,
            "longtail": longtail.__version__,
            "recipe": _told(stored.recipe),
            "beside": [_told(recipe) for recipe in stored.recipe.beside],
            "voices": [{"rankers": len(member.scorers), "weight": member.weight, "offset": member.offset} for member in stored.members],
            "rankers": described,
            "about": stored.about,
        }
        (fresh / MODEL).write_text(json.dumps(model, indent=1), encoding="utf-8")
        (fresh / HISTORY).write_text(json.dumps(stored.history), encoding="utf-8")
        (fresh / CARD).write_text(card(stored), encoding="utf-8")


def _told(recipe: Recipe) -> dict[str, Any]:
    return {"name": recipe.name, "tables": recipe.tables}


def _tokenizer_file(place: int) -> str:
    """tokenizer.json, tokenizer-1.json, ..."""
    return TOKENIZER if place == 0 else TOKENIZER.replace(".", f"-{place}.")


def _packed(scorer: Scorer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    network = scorer.network
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items() if not name.startswith("towers.")}
    tensors["vectors"] = scorer.vectors
    told: dict[str, Any] = {
        "way": scorer.way,
        "width": scorer.network.width,
        "dim": scorer.network.dim,
        "keep": scorer.keep,
        "beta": scorer.beta,
    }
    told |= {"towers": scorer.towers, "scales": scorer.scales, "chances": scorer.chances, "slope": scorer.slope, "offset": scorer.offset}
    told["has_cluster_encoder"] = scorer.network.cluster_encoder is not None
    if isinstance(network.encoder, TransformerEncoder):
        told["architecture"] = network.encoder.architecture()  # which the recipe tells by the name of a model alone
    optional: dict[str, Tensor | None] = {"bias": scorer.bias, "centroids": scorer.centroids}
    if scorer.clusters is not None:
        told["beam"] = scorer.clusters.beam
        optional |= {
            "clusters.vectors": scorer.clusters.vectors,
            "clusters.bias": scorer.clusters.bias,
            "clusters.members": scorer.clusters.members,
        }
        if scorer.clusters.graph is not None:
            optional |= {"clusters.graph.ids": scorer.clusters.graph.ids, "clusters.graph.weights": scorer.clusters.graph.weights}
    if scorer.graph is not None:
        optional |= {"graph.ids": scorer.graph.ids, "graph.weights": scorer.graph.weights}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, told


def load_model(folder: Path, device: torch.device, indexed: bool = True) -> Stored:
    """Read a model folder, ready to predict. On a CPU tables of which a text needs a few rows stay on disk until they are looked at.

    Args:
        indexed: answer with the index of label vectors where the folder has one and the device is a CPU; then vectors stay on disk, too.
    """
    from safetensors.torch import load_file

    if not (folder / MODEL).is_file():
        raise DataError(f"{folder} is not a model folder: {MODEL} is missing. `longtail train ... --out {folder}` makes one.")
    try:
        model = json.loads((folder / MODEL).read_text(encoding="utf-8"))
        made_by, number = model["longtail"], model["format"]
        if number != FORMAT:
            raise DataError(f"{folder} is of format {number} (longtail {made_by}); this longtail reads format {FORMAT}.")
        described, about, members = model["rankers"], model["about"], model["voices"]
        recipe = make_recipe(model["recipe"]["tables"], model["recipe"]["name"], f"{folder / MODEL}")
        beside = tuple(make_recipe(one["tables"], one["name"], f"{folder / MODEL}") for one in model["beside"])
        recipe = replace(recipe, beside=beside)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / MODEL} is not of a model that longtail saved ({type(error).__name__}: {error}).") from error
    for name in (WEIGHTS, LABELS, *(_tokenizer_file(place) for place in range(len(members)))):
        if not (folder / name).is_file():
            raise DataError(f"{folder} is not whole: {name} is missing. Copy it again, or train anew.")
    tokenizers = _tokenizers([folder / _tokenizer_file(place) for place in range(len(members))])
    tensors = _whole(folder / WEIGHTS, lambda path: load_file(path, device=str(device)))
    arrays = _whole(folder / LABELS, _arrays)
    graph = load_graph(folder / GRAPH) if (folder / GRAPH).is_file() else None
    history = _whole(folder / HISTORY, lambda path: json.loads(path.read_text("utf-8"))) if (folder / HISTORY).is_file() else []
    try:
        counts, texts = arrays["counts"], Texts(arrays["buffer"], arrays["offsets"]) if "buffer" in arrays else None
        has_index = indexed and device.type == "cpu" and (folder / INDEX).exists()
        on_disk = has_index or len(described) > 1  # of several networks vectors are joined
        made: list[Member] = []
        first = 0
        for own, tokenizer, member in zip((recipe, *recipe.beside), tokenizers, members, strict=True):
            places = range(first, first + member["rankers"])
            scorers = [_unpacked(_group(tensors, str(place)), described[place], own, tokenizer, device, on_disk) for place in places]
            made.append(Member(tokenizer, scorers, member["weight"], member["offset"]))
            first = places.stop
        all_vectors = [scorer.vectors for member in made for scorer in member.scorers]
        n_labels = {len(counts), *map(len, all_vectors), *([] if texts is None else [len(texts)])}
        if len(n_labels) != 1:
            raise ValueError(f"there are {' and '.join(map(str, sorted(n_labels)))} labels")
    except LongtailError:  # such as an extra that is missing
        raise
    except Exception as error:
        raise DataError(
            f"{folder} holds files of different models ({str(error).partition(chr(10))[0]}). Copy it again, or train anew."
        ) from error
    stored = Stored(recipe, made, texts, counts, graph, about, history, folder)
    if has_index:
        stored = _with_index(stored, folder / INDEX)
    return stored.without(arrays["removed"]) if "removed" in arrays else stored


def _tokenizers(paths: list[Path]) -> list[Tokenizer]:
    """One for each file; the same one for files that are alike, so that recipes which read alike read once."""
    known: dict[bytes, Tokenizer] = {}
    found = []
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).digest()
        if content not in known:
            known[content] = load_tokenizer(path)
        found.append(known[content])
    return found


def load_rows(folder: Path, n_labels: int) -> tuple[Texts, csr_matrix] | None:
    """Training texts and their labels, where the folder keeps them."""
    if not (folder / ROWS).is_file():
        return None
    arrays = _whole(folder / ROWS, _arrays)
    try:
        texts, ids = Texts(arrays["buffer"], arrays["offsets"]), arrays["ids"]
        return texts, csr_matrix((np.ones(len(ids), np.float32), ids, arrays["ends"]), shape=(len(texts), n_labels))
    except (KeyError, ValueError) as error:
        raise DataError(f"{folder / ROWS} is of another model ({error}). Delete it; predictions do not need it.") from error


def _with_index(stored: Stored, folder: Path) -> Stored:
    """Answering with the index in that folder."""
    searched = all_labels_of(stored)
    if searched is None:
        return stored
    if stored.ensemble.joined is not None:  # whose vectors lie side by side in that folder alone
        return replace(stored, index=open_index(folder, searched.mark(), lambda: read_labels(folder / FILES)))
    (member,) = stored.members
    (scorer,) = member.scorers
    index = open_index(folder, searched.mark(), searched.searched)
    return replace(stored, members=[replace(member, scorers=[replace(scorer, index=index)])])


def all_labels_of(stored: Stored) -> AllLabels | None:
    """What is searched for the best of all labels; None where labels are found in another way."""
    if stored.ensemble.joined is not None:
        return stored.ensemble.joined.all_labels
    first = stored.scorers[0]
    return first.all_labels if len(stored.scorers) == 1 and first.way == "all" else None


def _whole(path: Path, read: Callable[[Path], Any]) -> Any:
    """What is read from a file, or that it is damaged."""
    try:
        return read(path)
    except Exception as error:  # each library has errors of its own
        raise DataError(f"{path} is damaged ({str(error).partition(chr(10))[0]}). Copy it again, or train anew.") from error


def _arrays(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file, np.load(file) as arrays:
        return dict(arrays)


def _group(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(name + "/")}


def _unpacked(
    tensors: dict[str, Tensor], told: dict[str, Any], recipe: Recipe, tokenizer: Tokenizer, device: torch.device, on_disk: bool
) -> Scorer:
    if device.type == "cpu":
        # a mapped tensor begins anywhere in its file, and the last bit of a product depends on how its factors lie in memory
        mapped = {"network.table.weight"} | ({"vectors"} if told["way"] != "all" or on_disk else set())
        tensors = {name: tensor if name in mapped else tensor.clone() for name, tensor in tensors.items()}
    dim = tensors["network.table.weight"].shape[1]
    table = Table(0, dim, 0.0)
    # no memory for a table that is replaced at once, nor random numbers, for which torch would load its compiler
    table.weight = nn.Parameter(torch.empty(tokenizer.n_tokens, dim, device="meta"))
    encoder = recipe.encoder.rebuild(told["architecture"]) if "architecture" in told else recipe.encoder.build()
    network = Network(table, encoder, told["width"], told["dim"])
    if told["has_cluster_encoder"]:
        network.cluster_encoder = recipe.encoder.build()
    state = {name.removeprefix("network."): tensor for name, tensor in tensors.items() if name.startswith("network.")}
    network.load_state_dict(state, assign=True)
    network.eval().requires_grad_(False)
    clusters = None
    if "clusters.vectors" in tensors:
        clusters = ClusterIndex(
            tensors["clusters.vectors"],
            tensors.get("clusters.bias"),
            tensors["clusters.members"],
            _neighbours(tensors, "clusters.graph"),
            told["beam"],
        )
    return Scorer(
        network,
        tensors["vectors"],
        tensors.get("bias"),
        told["way"],
        clusters,
        _neighbours(tensors, "graph"),
        tensors.get("centroids"),
        told["keep"],
        told["beta"],
        tuple(told["towers"]),
        tuple(told["scales"]),
        told["chances"],
        told["slope"],
        told["offset"],
    )


def _neighbours(tensors: dict[str, Tensor], name: str) -> Neighbours | None:
    return Neighbours(tensors[f"{name}.ids"], tensors[f"{name}.weights"]) if f"{name}.ids" in tensors else None


def card(stored: Stored) -> str:
    """The model card: what it is, from what, and how good, in Markdown."""
    about = stored.about
    lines = [f"# {about['data']}: {stored.recipe.name}", "", stored.recipe.about, ""]
    lines += ["| | |", "|---|---|"]
    lines += [
        f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |"
        for name, value in about.items()
        if name != "metrics"
    ]
    if about.get("metrics"):
        lines += ["", "| metric | test |", "|---|---|"]
        lines += [f"| {name} | {value:.2f} |" for name, value in about["metrics"].items()]
    lines += ["", "Predict with it:", "", "    longtail predict FOLDER texts.txt -k 5", ""]
    return "\n".join(lines)
