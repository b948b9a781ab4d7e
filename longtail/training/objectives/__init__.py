"""Objectives of a training stage: which labels are scored for a batch, and the loss over them. One file a kind."""
