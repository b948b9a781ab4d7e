"""A model folder: all that a trained model needs to answer, and to be understood; no pickle.

model.json           members: settings, weights in the ensemble, networks; the recipe of each, for the record
weights.safetensors  token table, encoder, label vectors, cluster vectors of every network
parts.safetensors    towers that label vectors were made by; not needed to predict
labels.npz           label texts, training counts, and which labels were removed
labels/              labels that were added or removed since, a file each time
graph.npz            the label graph, where the recipe has one
tokenizer.json       and tokenizer-1.json, ... of further members
index/               of label vectors, where `longtail index` built one
history.json         loss, validation and seconds of every epoch
rows.npz             training texts and their labels, to explain predictions with; only where asked for
README.md            the model card
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

import longtail
from longtail.core.errors import DataError, LongtailError
from longtail.core.registry import load, name_of
from longtail.core.settings import from_table
from longtail.core.values import Texts
from longtail.data.files import new_folder
from longtail.data.graph.store import load_graph, save_graph
from longtail.inference.ensemble import Member
from longtail.inference.scorer import Scorer
from longtail.inference.trained_model import TowerWeights, TrainedModel
from longtail.models.encoders.base import EncoderSettings
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.storage.index_folder import FILES, open_index, read_labels
from longtail.storage.packing import pack_scorer, pack_towers, unpack_scorer
from longtail.tokens.load import load_tokenizer
from longtail.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
AGAIN = "Copy it again, or train anew."

Table = dict[str, Any]  # as JSON holds it


# ---- writing


def save_model(folder: Path, model: TrainedModel, rows: tuple[Texts, csr_matrix] | None = None) -> TrainedModel:
    """Write the folder; it appears when it is whole. The model that lives in it from then on is returned.

    Args:
        rows: training texts and their labels, to be kept with the model.
    """
    from safetensors.torch import save_file

    with new_folder(folder) as fresh:
        for place, member in enumerate(model.members):
            member.tokenizer.save(fresh / _tokenizer_file(place))
        _save_labels(fresh / LABELS, model)
        if rows is not None:
            texts, labels = rows
            np.savez_compressed(fresh / ROWS, buffer=texts.buffer, offsets=texts.offsets, ids=labels.indices, ends=labels.indptr)
        if model.graph is not None:
            save_graph(model.graph, fresh / GRAPH)
        packed = [pack_scorer(scorer) for scorer in model.scorers]
        save_file(_by_place([tensors for tensors, _ in packed]), fresh / WEIGHTS)
        towers = _by_place([pack_towers(scorer) for scorer in model.scorers])
        if towers:
            save_file(towers, fresh / PARTS)
        tables = iter([table for _, table in packed])
        members = [_describe(member, [next(tables) for _ in member.scorers]) for member in model.members]
        described = {"format": FORMAT, "longtail": longtail.__version__, "members": members, "about": model.about}
        (fresh / MODEL).write_text(json.dumps(described, indent=1), encoding="utf-8")
        (fresh / HISTORY).write_text(json.dumps(model.history), encoding="utf-8")
        (fresh / CARD).write_text(card(model), encoding="utf-8")
    return replace(model, folder=folder, tower_weights=_tower_weights(folder))


def _save_labels(path: Path, model: TrainedModel) -> None:
    arrays: dict[str, Any] = {"counts": model.label_counts}
    if model.label_texts is not None:
        arrays |= {"buffer": model.label_texts.buffer, "offsets": model.label_texts.offsets}
    if len(model.removed):
        arrays["removed"] = model.removed
    np.savez(path, **arrays)


def _describe(member: Member, scorers: list[Table]) -> Table:
    """A member for model.json."""
    assert member.encoder is not None
    return {
        "name": member.name,
        "about": member.about,
        "weight": member.weight,
        "offset": member.offset,
        "encoder": {"kind": name_of("encoders", type(member.encoder)), **asdict(cast("DataclassInstance", member.encoder))},
        "label_vectors": {tower: asdict(settings) for tower, settings in member.label_vectors.items()},
        "scorers": scorers,
        "tables": dict(member.tables),
    }


def _by_place(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of all networks, the place of each before their names."""
    return {f"{place}/{name}": tensor for place, own in enumerate(tensors) for name, tensor in own.items()}


def _tokenizer_file(place: int) -> str:
    """tokenizer.json, tokenizer-1.json, ..."""
    return TOKENIZER if place == 0 else TOKENIZER.replace(".", f"-{place}.")


# ---- reading


def load_model(folder: Path, device: torch.device, indexed: bool = True) -> TrainedModel:
    """Read a model folder, ready to predict. On a CPU tables of which a text needs a few rows stay on disk until they are looked at.

    Args:
        indexed: answer with the index of label vectors where the folder has one and the device is a CPU; then vectors stay on disk, too.
    """
    described, about = _read_description(folder)
    settings = [_read_settings(member, folder / MODEL) for member in described]
    for name in (WEIGHTS, LABELS, *(_tokenizer_file(place) for place in range(len(described)))):
        if not (folder / name).is_file():
            raise DataError(f"{folder} is not whole: {name} is missing. {AGAIN}")
    tokenizers = _tokenizers([folder / _tokenizer_file(place) for place in range(len(described))])
    tensors = _read_tensors(folder / WEIGHTS, device)
    arrays = _whole(folder / LABELS, _arrays)
    graph = load_graph(folder / GRAPH) if (folder / GRAPH).is_file() else None
    history = _whole(folder / HISTORY, lambda path: json.loads(path.read_text("utf-8"))) if (folder / HISTORY).is_file() else []
    has_index = indexed and device.type == "cpu" and (folder / INDEX).exists()
    n_networks = sum(len(member["scorers"]) for member in described)
    on_disk = has_index or n_networks > 1  # vectors of several networks are concatenated, which copies them
    try:
        texts = Texts(arrays["buffer"], arrays["offsets"]) if "buffer" in arrays else None
        members: list[Member] = []
        place = 0
        for table, own, tokenizer in zip(described, settings, tokenizers, strict=True):
            scorers = []
            for scorer in table["scorers"]:
                scorers.append(unpack_scorer(_of_place(tensors, place), scorer, own[0], tokenizer, device, on_disk))
                place += 1
            members.append(_member(table, own, tokenizer, scorers))
        model = TrainedModel(members, texts, arrays["counts"], graph, about, history, folder, tower_weights=_tower_weights(folder))
        _check_sizes(model)
    except LongtailError:  # such as an extra that is missing
        raise
    except Exception as error:
        raise DataError(f"{folder} holds files of different models ({str(error).partition(chr(10))[0]}). {AGAIN}") from error
    if has_index:
        model = _with_index(model, folder / INDEX)
    return model.without(arrays["removed"]) if "removed" in arrays else model


def _read_description(folder: Path) -> tuple[list[Table], Table]:
    """Members and the card's table from model.json, or one line that tells what is wrong with it."""
    path = folder / MODEL
    if not path.is_file():
        raise DataError(f"{folder} is not a model folder: {MODEL} is missing. `longtail train ... --out {folder}` makes one.")
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
        version, number = model["longtail"], model["format"]
        if number != FORMAT:
            raise DataError(
                f"{folder} is a model of format {number}, written by longtail {version}; this longtail reads format {FORMAT}. "
                f"Train it again, or type pip install longtail=={version}."
            )
        members, about = model["members"], dict(model["about"])
        if not members or not all(isinstance(member["scorers"], list) and member["scorers"] for member in members):
            raise ValueError("it has no members")
        return members, about
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not of a model that longtail saved ({type(error).__name__}: {error}).") from error


Settings = tuple[EncoderSettings, dict[str, LabelVectors]]


def _read_settings(member: Table, path: Path) -> Settings:
    """Settings of a member's encoder and label vectors, or which of them this longtail does not know."""
    try:
        table = dict(member["encoder"])
        encoder = from_table(load("encoders", table.pop("kind")), table, "encoder")
        vectors = {tower: from_table(LabelVectors, settings, tower) for tower, settings in member["label_vectors"].items()}
        return encoder, vectors
    except LongtailError as error:
        raise DataError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not of a model that longtail saved ({type(error).__name__}: {error}).") from error


def _member(table: Table, settings: Settings, tokenizer: Tokenizer, scorers: list[Scorer]) -> Member:
    encoder, label_vectors = settings
    name, about, tables = table["name"], table["about"], table["tables"]
    return Member(tokenizer, scorers, table["weight"], table["offset"], name, about, encoder, label_vectors, tables)


def _check_sizes(model: TrainedModel) -> None:
    """Raise where files do not have the same number of labels."""
    n_labels = {len(model.label_counts), *(len(scorer.vectors) for scorer in model.scorers)}
    n_labels |= set() if model.label_texts is None else {len(model.label_texts)}
    if len(n_labels) != 1:
        raise ValueError(f"there are {' and '.join(map(str, sorted(n_labels)))} labels")


def _tokenizers(paths: list[Path]) -> list[Tokenizer]:
    """One for each file; the same one for files that are alike, so that members with the same tokens tokenise once."""
    known: dict[bytes, Tokenizer] = {}
    found = []
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).digest()
        if content not in known:
            known[content] = load_tokenizer(path)
        found.append(known[content])
    return found


def _tower_weights(folder: Path) -> TowerWeights:
    """Reads weights of towers from the folder when they are asked for."""

    def read(place: int, tower: str) -> dict[str, Tensor] | None:
        from safetensors import safe_open

        path, prefix = folder / PARTS, f"{place}/{tower}."
        if not path.is_file():
            return None
        with safe_open(path, "pt") as file:
            return {name.removeprefix(prefix): file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}

    return read


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


def _with_index(model: TrainedModel, folder: Path) -> TrainedModel:
    """The model, answering with the index in that folder."""
    searched = model.all_labels
    if searched is None:
        return model
    if model.ensemble.concatenated is not None:  # whose vectors lie concatenated in that folder alone
        return replace(model, index=open_index(folder, searched.mark(), lambda: read_labels(folder / FILES)))
    (member,) = model.members
    (scorer,) = member.scorers
    index = open_index(folder, searched.mark(), searched.searched)
    return replace(model, members=[replace(member, scorers=[replace(scorer, index=index)])])


def _read_tensors(path: Path, device: torch.device) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    found: dict[str, Tensor] = _whole(path, lambda path: load_file(path, device=str(device)))
    return found


def _whole(path: Path, read: Callable[[Path], Any]) -> Any:
    """Read a file, or raise that it is damaged."""
    try:
        return read(path)
    except Exception as error:  # each library has errors of its own
        raise DataError(f"{path} is damaged ({str(error).partition(chr(10))[0]}). {AGAIN}") from error


def _arrays(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file, np.load(file) as arrays:
        return dict(arrays)


def _of_place(tensors: Mapping[str, Tensor], place: int) -> dict[str, Tensor]:
    """The tensors of one network."""
    prefix = f"{place}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


# ---- card


def card(model: TrainedModel) -> str:
    """The model card: what it is, from what, and how good, in Markdown."""
    about, first = model.about, model.members[0]
    lines = [f"# {about['data']}: {first.name}", "", first.about, ""]
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
