"""longtail: extreme multi-label classification of short text."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Dataset": "longtail.values",
    "LabelGraph": "longtail.values",
    "Predictions": "longtail.values",
    "Split": "longtail.values",
    "Texts": "longtail.values",
    "LongtailError": "longtail.errors",
    "read": "longtail.data.read",
    "from_lists": "longtail.data.lists",
    "describe": "longtail.data.describe",
    "convert": "longtail.data.convert",
    "cooccurrence": "longtail.graph.cooccurrence",
    "walk": "longtail.graph.walks",
    "load_graph": "longtail.graph.store",
    "save_graph": "longtail.graph.store",
    "Gandalf": "longtail.augment.gandalf",
    "LabelMix": "longtail.augment.labelmix",
    "nearest_text": "longtail.nearest",
    "evaluate": "longtail.evaluation",
    "adaptive": "longtail.adapt",
    "read_predictions": "longtail.predictions",
    "XMC": "longtail.estimator",
    "load": "longtail.estimator",
    "read_recipe": "longtail.recipe",
    "tune": "longtail.tuning",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"longtail has no {name!r}. It has: {', '.join(__all__)}.")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
