"""longtail: extreme multi-label classification of short text."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Dataset": "longtail.core.values",
    "LabelGraph": "longtail.core.values",
    "Predictions": "longtail.core.values",
    "Split": "longtail.core.values",
    "Texts": "longtail.core.values",
    "LongtailError": "longtail.core.errors",
    "read": "longtail.data.read",
    "from_lists": "longtail.data.lists",
    "describe": "longtail.data.describe",
    "convert": "longtail.data.convert",
    "cooccurrence": "longtail.data.graph.cooccurrence",
    "walk": "longtail.data.graph.walks",
    "load_graph": "longtail.data.graph.store",
    "save_graph": "longtail.data.graph.store",
    "Gandalf": "longtail.data.augment.gandalf",
    "LabelMix": "longtail.data.augment.labelmix",
    "nearest_text": "longtail.evaluation.baseline",
    "evaluate": "longtail.evaluation.evaluate",
    "adaptive": "longtail.evaluation.adaptive",
    "read_predictions": "longtail.evaluation.predictions",
    "XMC": "longtail.estimator",
    "load": "longtail.estimator",
    "read_recipe": "longtail.recipes.read",
    "tune": "longtail.experiments.tuning.tune",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"longtail has no {name!r}. It has: {', '.join(__all__)}.")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
