"""Plain second versions of what the package computes fast. Slow, obvious, and written from the definitions."""

from __future__ import annotations

from math import log2


def precision(found: list[int], true: set[int], k: int) -> float:
    return sum(label in true for label in first_only(found)[:k]) / k


def recall(found: list[int], true: set[int], k: int) -> float:
    return sum(label in true for label in first_only(found)[:k]) / len(true) if true else 0.0


def ndcg(found: list[int], true: set[int], k: int) -> float:
    if not true:
        return 0.0
    gain = sum(1 / log2(place + 2) for place, label in enumerate(first_only(found)[:k]) if label in true)
    return gain / sum(1 / log2(place + 2) for place in range(min(k, len(true))))


def first_only(found: list[int]) -> list[int]:
    """A label named again becomes an empty place."""
    return [label if label not in found[:place] else -1 for place, label in enumerate(found)]


def psp(rows: list[tuple[list[int], set[int]]], weights: list[float], k: int) -> float:
    gained = sum(weights[label] for found, true in rows for label in first_only(found)[:k] if label in true)
    possible = sum(sum(sorted((weights[label] for label in true), reverse=True)[:k]) for _, true in rows)
    return gained / possible if possible else 0.0


def coverage(rows: list[tuple[list[int], set[int]]], k: int) -> float:
    present = {label for _, true in rows for label in true}
    hit = {label for found, true in rows for label in found[:k] if label in true}
    return len(hit) / len(present) if present else 0.0
