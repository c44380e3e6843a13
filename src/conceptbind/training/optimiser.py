"""AdamW over stacked parameters, every model with its own rate and decay; warm-up, then a cosine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from conceptbind.training.config import TrainingConfig
from conceptbind.training.models import Parameters

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class StackedAdamW:
    """Take steps of torch's fused AdamW (Loshchilov and Hutter 2019) in place, and hold its moments.

    Models of one rate and decay are one group over the stacked tensors; where they differ, every model's slices are a
    group.
    """

    def __init__(
        self,
        configs: Sequence[TrainingConfig],
        parameters: Parameters,
        moments: Mapping[str, Tensor] | None = None,
        n_done: int = 0,
    ) -> None:
        self.parameters, self.config = parameters, configs[0]
        self.moments = dict(moments) if moments is not None else zero_moments(parameters)
        one = len({(c.rate, c.weight_decay) for c in configs}) == 1
        self.slices = [slice(None)] if one else [slice(m, m + 1) for m in range(len(configs))]
        groups, self.rates, self.pieces = [], [], []
        for config, models in zip(configs, self.slices, strict=False):
            for decays in (True, False):
                names = [n for n, p in parameters.items() if _decays(p) == decays]
                pieces = [(n, models, parameters[n][models]) for n in names]
                decay = config.weight_decay if decays else 0.0
                groups.append({"params": [piece for *_, piece in pieces], "weight_decay": decay})
                self.rates.append(config.rate)
                self.pieces += pieces
        self._adamw = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON, fused=True)
        for name, models, piece in self.pieces:
            self._adamw.state[piece] = {
                "step": torch.tensor(float(n_done), device=piece.device),
                "exp_avg": self.moments[f"first.{name}"][models],
                "exp_avg_sq": self.moments[f"second.{name}"][models],
            }

    def step(self, n_done: int, gradients: Mapping[str, Tensor]) -> None:
        """Take the step after ``n_done`` others."""
        progress = progress_of(self.config, n_done)
        for group, rate in zip(self._adamw.param_groups, self.rates, strict=True):
            group["lr"] = rate * progress
        for name, models, piece in self.pieces:
            piece.grad = gradients[name][models]
        self._adamw.step()
        self._adamw.zero_grad()


def zero_moments(parameters: Mapping[str, Tensor]) -> Parameters:
    """Give the moments before the first step."""
    return {
        f"{which}.{n}": torch.zeros_like(p) for which in ("first", "second") for n, p in parameters.items()
    }


def progress_of(config: TrainingConfig, n_done: int) -> float:
    """Give the rate of the step after ``n_done`` others, as a share of the highest.

    It rises in a line over the warm-up, then falls along half a cosine to ``final_rate``.
    """
    warm = round(config.warm_up * config.n_steps)
    if n_done < warm:
        return (n_done + 1) / warm
    share = (n_done - warm) / max(1, config.n_steps - 1 - warm)
    return config.final_rate + (1 - config.final_rate) * (1 + math.cos(math.pi * share)) / 2


def _decays(parameter: Float[Tensor, "model *weight"]) -> bool:
    """Say whether a weight is a matrix or a table: biases are (model, 1, size), the temperature (model,)."""
    return parameter.ndim > 2 and parameter.shape[1] > 1
