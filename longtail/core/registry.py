"""Short name -> class or function, imported on first use."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from longtail.core.checks import OWN_NAME
from longtail.core.errors import SettingError, UnknownName

# name -> (where it lives, what it is); formats stand in the order in which they are tried on a path
FORMATS = {
    "xc": ("longtail.data.formats.xc:XCRaw", "XC repository raw text: trn.json.gz, tst.json.gz, lbl.json.gz"),
    "sparse": ("longtail.data.formats.sparse:XCSparse", "XC repository sparse text: trn_X_Y.txt, trn_X.txt, Y.txt, .npz"),
    "parquet": ("longtail.data.formats.parquet:ParquetTable", "Parquet with a text and a labels column"),
    "pecos": ("longtail.data.formats.pecos:Pecos", "PECOS text2text: ids<TAB>text lines and labels.txt"),
    "fasttext": ("longtail.data.formats.fasttext:FastText", "fastText: __label__ lines"),
    "table": ("longtail.data.formats.table:Table", "CSV, TSV or JSON lines with a text and a labels column"),
}

GRAPHS = {
    "cooccurrence": ("longtail.data.graph.cooccurrence:cooccurrence", "P(i|j): the share of a label's rows that carry another label too"),
    "symmetric": ("longtail.data.graph.cooccurrence:symmetric_cooccurrence", "0.5 (P(i|j) + P(j|i)), the S of the GLaS regulariser"),
    "walk": ("longtail.data.graph.walks:walk", "labels that random walks with restart reach, ECLARE's graph"),
    "ppr": ("longtail.data.graph.pagerank:pagerank", "personalised PageRank: where such a walk rests in the long run"),
}

AUGMENTATIONS = {
    "gandalf": ("longtail.data.augment.gandalf:Gandalf", "a row for each label: its text, annotated with what it co-occurs with"),
    "labelmix": ("longtail.data.augment.labelmix:LabelMix", "training texts with the text of one of their labels behind them"),
    "synonyms": ("longtail.data.augment.synonyms:Synonyms", "training texts with words replaced by their nearest"),
    "mixup": ("longtail.data.augment.mixup:MixUp", "two rows' vectors combined; a hook for trainers, or rows with features"),
    "label-mixup": (
        "longtail.data.augment.mixup:LabelMixUp",
        "a row's vector and one of its labels'; a hook for trainers, or rows with features",
    ),
    "manifold-mixup": ("longtail.data.augment.mixup:ManifoldMixUp", "hidden vectors combined at a random layer; a hook for trainers"),
}

TOKENS = {
    "words": ("longtail.tokens.words:Words", "words in lower case, with or without bigrams"),
    "wordpiece": ("longtail.tokens.wordpiece:WordPiece", "pieces of words, learnt from the training texts"),
    "words+pieces": ("longtail.tokens.both:WordsAndPieces", "words and their pieces, side by side"),
    "pretrained": ("longtail.tokens.pretrained:Pretrained", "the tokens that a pretrained encoder was trained with"),
}

ENCODERS = {
    "bag": ("longtail.models.encoders.bag:Bag", "weighted sum of token vectors through one residual block: Astec, DECAF, ECLARE"),
    "inception": ("longtail.models.encoders.inception:Inception", "convolutions along the embedding axis: InceptionXML"),
    "experts": (
        "longtail.models.encoders.experts:InceptionExperts",
        "the same as a mixture of experts with a head per task: InceptionXML-LF",
    ),
    "transformer": (
        "longtail.models.encoders.transformer:Transformer",
        "a pretrained transformer, or one of random weights: NGAME, Renee, UniDEC",
    ),
}

LOSSES = {
    "bce": ("longtail.models.losses.rowwise:bce", "every label a yes or no of its own: Astec, DECAF, ECLARE, InceptionXML, Renee"),
    "softmax": (
        "longtail.models.losses.rowwise:softmax",
        "every right label against everything else, added up: better than bce from the second place on",
    ),
    "info-nce": ("longtail.models.losses.rowwise:info_nce", "one right label, drawn at random, against everything else: DPR"),
    "sup-con": ("longtail.models.losses.rowwise:sup_con", "every right label against everything else: SupCon, UniDEC"),
    "decoupled": (
        "longtail.models.losses.rowwise:decoupled_softmax",
        "every right label against the wrong ones alone: DEXML, DePSL, UniDEC",
    ),
    "soft-top-k": ("longtail.models.losses.rowwise:soft_top_k", "every right label among the k best: DEXML"),
    "triplet": (
        "longtail.models.losses.rowwise:triplet",
        "cosines of right labels lead those of the hardest wrong ones by a margin: NGAME",
    ),
    "semi-hard": (
        "longtail.models.losses.rowwise:semi_hard",
        "the same against wrong labels that are behind already: where triplet gives all texts one vector",
    ),
    "probabilistic": (
        "longtail.models.losses.rowwise:probabilistic_contrastive",
        "chances that fall with the cosine, hardest wrong one only: SiameseXML",
    ),
}

OBJECTIVES = {
    "all-labels": ("longtail.training.objectives.all_labels:AllLabels", "every label is scored for every row: most exact, best on a GPU"),
    "pool": ("longtail.training.objectives.pool:Pool", "a pool of labels for the whole batch, with the hardest negatives of the moment"),
    "shortlist": ("longtail.training.objectives.shortlist:Shortlist", "each row's own shortlist of hard negatives: Astec, DECAF, ECLARE"),
    "contrastive": (
        "longtail.training.objectives.contrastive:Contrastive",
        "in-batch and hard negatives, texts against labels: DPR, ANCE, NGAME, DePSL",
    ),
    "joint": ("longtail.training.objectives.contrastive:Joint", "encoded label texts and classifiers in one pass: UniDEC"),
    "clusters": ("longtail.training.objectives.clusters:ClusterLabels", "clusters of labels, a surrogate that is quick to learn"),
    "synchronised": ("longtail.training.objectives.clusters:Synchronised", "clusters and labels together: InceptionXML"),
}

NEGATIVES = {
    "in-batch": ("longtail.training.negatives.in_batch:InBatch", "no hard negatives besides the labels of the batch: DPR"),
    "mined": (
        "longtail.training.negatives.mined:Mined",
        "wrong labels that the encoder puts near a row, and batches of like rows: ANCE, NGAME",
    ),
    "clusters": ("longtail.training.negatives.shortlists:ClusterShortlists", "labels of the clusters that score highest: DECAF, ECLARE"),
    "nearest-centroids": ("longtail.training.negatives.shortlists:NearestCentroids", "labels whose training rows lie nearest: Astec"),
}

KINDS = {
    "formats": FORMATS,
    "graphs": GRAPHS,
    "augmentations": AUGMENTATIONS,
    "tokens": TOKENS,
    "encoders": ENCODERS,
    "losses": LOSSES,
    "objectives": OBJECTIVES,
    "negatives": NEGATIVES,
}
SINGULAR = {"losses": "loss", "negatives": "source of hard negatives"}
CLOSED = ("formats",)  # kinds that take nothing of the user's own: the format of files is recognised, not named


def recipes() -> dict[str, Path]:
    """The recipes that come with longtail, by name."""
    found = {path.stem: path for path in (Path(__file__).parents[1] / "recipes").glob("*.toml")}
    return dict(sorted(found.items()))


def tables() -> dict[str, Path]:
    """The tables of papers that `longtail compare --table` fills, by name."""
    found = {path.stem: path for path in (Path(__file__).parents[1] / "experiments" / "compare" / "papers").glob("*.toml")}
    return dict(sorted(found.items()))


def load(kind: str, name: str) -> Any:
    """The class or function that is registered under `name`, or one of the user's own by its place, 'package.module:Name'.

    >>> load("formats", "xc").__name__
    'XCRaw'
    >>> load("augmentations", "longtail.data.augment.gandalf:Gandalf").__name__
    'Gandalf'
    """
    table = KINDS[kind]
    takes_own = kind not in CLOSED
    if name in table:
        return _found(table[name][0])
    if takes_own and OWN_NAME.fullmatch(name):
        try:
            return _found(name)
        except (ImportError, AttributeError) as error:
            raise SettingError(f"{name!r} came for one of the {kind}: {error}. Wanted 'package.module:Name' to import.") from error
    raise UnknownName(SINGULAR.get(kind, kind.removesuffix("s")), name, table, takes_own)


def name_of(kind: str, found: type) -> str:
    """The name by which `load` finds a class again: its short name, or its place where it is one of the user's own.

    >>> name_of("formats", load("formats", "xc")), name_of("encoders", Path)[-5:]
    ('xc', ':Path')
    """
    place = f"{found.__module__}:{found.__qualname__}"
    return next((name for name, (own, _) in KINDS[kind].items() if own == place), place)


def _found(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _in_files(paths: dict[str, Path]) -> list[tuple[str, str]]:
    return [(name, str(tomllib.loads(path.read_text(encoding="utf-8")).get("about", ""))) for name, path in paths.items()]


def _peers() -> list[tuple[str, str]]:
    return [(name, peer.what) for name, peer in import_module("longtail.experiments.compare.peers.table").PEERS.items()]


# kinds of names that are no parts: what to call for their names and lines
OTHERS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "recipes": lambda: _in_files(recipes()),
    "tables": lambda: _in_files(tables()),
    "peers": _peers,
}
LISTED = (*KINDS, *OTHERS)


def describe_names(kind: str) -> list[tuple[str, str]]:
    """Each name of a kind with one line of what it is."""
    return OTHERS[kind]() if kind in OTHERS else [(name, what) for name, (_, what) in KINDS[kind].items()]
