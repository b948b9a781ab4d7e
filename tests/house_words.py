"""Words of our own that the field has better words for. They are gone from code, settings, messages and documentation, and stay out.

The word to use stands behind each. Lower case matches any case, a capital only itself; all match whole words.
"""

from __future__ import annotations

import re

HOUSE_WORDS = (
    "choir",  # ensemble
    "voice",  # member
    "voices",
    "hear",  # retrieve
    "hears",
    "heard",  # retrieved
    "told",  # message, log, probability; "default: 5" for "5 unless told"
    "Course",  # trainer
    "Material",  # training data
    "weighing",  # stacking weights
    "ranker",  # scorer
    "rankers",
    "beside",  # members, next to, baselines, with
    "Borrowed",  # pretrained
    "insides",  # activations
    "least_steps",  # min_steps
    "n_hard",  # hard_negatives
    "n_random",  # random_negatives
    "classifier_loss",  # classifier_losses
    "what each counts",  # stacking weights
    "near labels",  # hard negatives
    "systems of others",  # baselines
    "stage that is on",  # current stage
)

# in prose alone: as the name of an option or a folder they are right
IN_PROSE = (
    "peer",  # baseline
    "peers",
    "reads texts",  # encodes texts
    "read texts",
    "how it was run",  # benchmark setup
    "system of others",
    "other people's systems",
)


def found_in(text: str, words: tuple[str, ...] = HOUSE_WORDS) -> list[str]:
    """The words of the list that stand in a text.

    >>> found_in("A choir of voices, of course"), found_in("Course")
    (['choir', 'voices'], ['Course'])
    """
    return [word for word in words if re.search(rf"\b{re.escape(word)}\b", text, 0 if word != word.lower() else re.IGNORECASE)]
