"""Sources of real data sets that a machine already has, so that anyone can rebuild what results are measured on."""

from __future__ import annotations
