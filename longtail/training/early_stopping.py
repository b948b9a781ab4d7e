"""Early stopping: a stage ends when validation has not become better for some epochs, with the weights of the best one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass
class EarlyStopping:
    """Keeps the weights of the best epoch of a stage.

    Args:
        patience: epochs without a better validation after which the stage ends; 0 never ends one, and keeps nothing.
    """

    patience: int

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the stage before."""
        self.best: float | None = None
        self.best_epoch = 0
        self.weights: dict[str, Tensor] | None = None

    def is_over(self, value: float, epoch: int, network: nn.Module) -> bool:
        """Note the validation of an epoch; whether the stage should end."""
        if not self.patience:
            return False
        if self.best is None or value > self.best:
            self.best, self.best_epoch = value, epoch
            self.weights = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        return epoch - self.best_epoch >= self.patience

    def state(self) -> tuple[dict[str, Tensor], list[float]]:
        """Weights and notes, for a checkpoint; empty where nothing is kept."""
        if self.weights is None or self.best is None:
            return {}, []
        return self.weights, [self.best, self.best_epoch]

    def load(self, weights: dict[str, Tensor], notes: list[float]) -> None:
        """Go on from a checkpoint."""
        if notes:
            self.best, self.best_epoch, self.weights = notes[0], int(notes[1]), weights
