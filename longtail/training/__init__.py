"""Training: the trainer, its loop, objectives, negatives, optimizers, schedules and checkpoints."""
