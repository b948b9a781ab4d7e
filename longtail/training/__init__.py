"""TRAIN: the loop, what it minimises, optimizers, schedules, checkpoints."""
