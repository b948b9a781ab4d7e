"""Adam that updates, of a big table, the rows that a step touched and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from longtail.core.kernels.adam import adam_rows

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Adam:
    """Adam of Kingma and Ba. Parameters whose gradient is sparse are updated lazily: untouched rows keep value and moments.

    Dense parameters go through torch's own fused version. State is plain tensors by name, so a checkpoint needs no pickle.

    Args:
        factors: by how much the rate of some parameters differs from that of the rest, by name.
        momenta: parameters with dense gradients that are learnt by plain gradient descent with so much momentum, by name.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        factors: Mapping[str, float] | None = None,
        momenta: Mapping[str, float] | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self.factors, self.momenta = factors or {}, momenta or {}
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.steps = 0

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        self.steps += 1
        dense: dict[float, list[str]] = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is None:
                continue
            if name not in self.moments:
                self.moments[name] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            own = rate * self.factors.get(name, 1.0)
            if parameter.grad.is_sparse:
                self._lazily(name, own)
            elif name in self.momenta:
                self._down(name, own)
            else:
                dense.setdefault(own, []).append(name)
        for own, names in dense.items():
            self._densely(names, own)

    def _down(self, name: str, rate: float) -> None:
        """Down the gradient, with momentum."""
        parameter = self.parameters[name]
        assert parameter.grad is not None
        speed = self.moments[name][0].mul_(self.momenta[name]).add_(parameter.grad)
        parameter.sub_(speed, alpha=rate)

    def _lazily(self, name: str, rate: float) -> None:
        parameter = self.parameters[name]
        first, second = self.moments[name]
        assert parameter.grad is not None
        rows, values = touched(parameter.grad)
        # the bias of the second moment is taken out of step and epsilon, not of every number: the same as the dense version
        unbiased = (1 - BETAS[1] ** self.steps) ** 0.5
        step, epsilon = rate * unbiased / (1 - BETAS[0] ** self.steps), EPSILON * unbiased
        tensors = (parameter.detach(), first, second, rows, values)
        if parameter.device.type == "cpu":
            adam_rows(*map(np.asarray, tensors), step, *BETAS, epsilon)
        else:
            adam_rows_anywhere(*tensors, step, *BETAS, epsilon)

    def _densely(self, names: list[str], rate: float) -> None:
        parameters: list[Tensor] = [self.parameters[name] for name in names]
        steps_before = float(self.steps - 1)  # torch counts this one itself
        adamw(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [self.moments[name][0] for name in names],
            [self.moments[name][1] for name in names],
            [],
            [torch.tensor(steps_before, device=parameter.device) for parameter in parameters],
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Moments by name, and the number of `steps`."""
        named = {f"{which}.{name}": both[place] for name, both in self.moments.items() for place, which in enumerate(("first", "second"))}
        return {**named, "steps": torch.tensor(self.steps)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from here; the state is copied."""
        self.steps = int(state["steps"])
        self.moments = {}
        for name, parameter in self.parameters.items():
            if f"first.{name}" in state:
                first, second = (state[f"{which}.{name}"].to(parameter.device, copy=True) for which in ("first", "second"))
                self.moments[name] = first, second


def adam_rows_anywhere(
    table: Tensor,
    first: Tensor,
    second: Tensor,
    rows: Tensor,
    gradient: Tensor,
    step: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Update rows as `kernels.adam.adam_rows` does, on any device."""
    mean = first[rows].lerp_(gradient, 1 - beta1)
    square = second[rows].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    first[rows], second[rows] = mean, square
    table[rows] = table[rows].addcdiv_(mean, square.sqrt_().add_(epsilon), value=-step)


def touched(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that a sparse gradient has, once each, and their values, (m, dim) float32.

    Autograd forgets that a gradient came coalesced. To look is cheap on a CPU, to sort what is sorted is not.
    """
    rows = gradient._indices()[0]
    if gradient.device.type != "cpu" or not bool((rows[1:] > rows[:-1]).all()):
        gradient = gradient.coalesce()
    return gradient._indices()[0], gradient._values().float().contiguous()
