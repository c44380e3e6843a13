"""Boosted trees and random forests as approximators (paper, section 2, F6).

Trees see a scene as one-hot codes of every value in every slot, and predict the principal axes of the embeddings that
they train on: with Z the centred training embeddings and W the right singular vectors of the largest singular values,

    targets = Z W        prediction = mean + (predicted targets) W^T

so that a few outputs stand for hundreds of dimensions. The axes keep their variances: an error counts as much as it
does in the embedding. A code that never varies in training is never split on, so a value that was not shown adds
nothing. Every fit is made on its own, by xgboost or scikit-learn, and does not depend on the others of its task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.approximators.base import Task
from conceptbind.provenance import versions
from conceptbind.scenes import ConceptSpace, check_scenes

Predictor = Callable[[Float[np.ndarray, "scene code"]], Float[np.ndarray, "scene axis"]]


@dataclass(frozen=True, eq=False)
class TreeApproximation:
    """Hold the trees of every fit; :class:`BoostedTrees` and :class:`RandomForest` make it."""

    space: ConceptSpace
    n_slots: int
    axes: tuple[_Axes, ...]
    predictors: tuple[Predictor, ...]
    n_parameters: Sequence[int]
    """Of every fit: leaves of all its trees, times the outputs that a leaf holds."""
    converged: Sequence[bool]
    details: Sequence[dict[str, Any]]

    def predict(self, fit: int, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Give one fit's embeddings of scenes.

        Raises ValueError for scenes of another space, or of another number of slots than were fitted.
        """
        check_scenes(self.space, scenes, may_be_empty=True)
        if scenes.shape[1] != self.n_slots:
            raise ValueError(
                f"the trees were fitted to scenes of {self.n_slots} slots; these have {scenes.shape[1]}: "
                "fit them to scenes like those to be predicted"
            )
        axes = self.axes[fit]
        if not len(scenes):
            return torch.zeros(0, len(axes.mean))
        return axes.rotate_back(self.predictors[fit](_codes(self.space, scenes)))


@dataclass(frozen=True)
class BoostedTrees:
    """Boost trees whose leaves hold all outputs; validation objects choose the number of rounds.

    Rounds are added until the squared error on the validation scenes has not fallen for ``patience`` rounds; then as
    many as were best are fitted to all training scenes. Nothing is drawn at random: seeds change nothing.
    Needs xgboost (Chen and Guestrin 2016): ``pip install 'conceptbind[trees]'``.
    """

    max_depth: int = 3
    learning_rate: float = 0.1
    max_rounds: int = 2000
    patience: int = 20
    rounds_unvalidated: int = 100
    """Rounds of a fit that has no validation objects, at most ``max_rounds``."""
    n_components: int = 32
    """Principal axes that are predicted, at most."""
    n_jobs: int = 1
    """Threads."""

    def __post_init__(self) -> None:
        _at_least_one(
            self, "max_depth", "max_rounds", "patience", "rounds_unvalidated", "n_components", "n_jobs"
        )
        if not 0 < self.learning_rate <= 1:
            raise ValueError(f"learning_rate is above 0 and at most 1; got {self.learning_rate}")

    @property
    def name(self) -> str:
        """What figures call it."""
        return "boosted trees"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines a fit beside the task, ready for JSON."""
        return _settings(self)

    def fit(self, task: Task) -> TreeApproximation:
        """Fit every split of the task. Raises ModuleNotFoundError when xgboost is not installed."""
        # Named in full: what a chapter depends on is read off its imports.
        try:
            import xgboost
        except ModuleNotFoundError as error:
            raise _missing("BoostedTrees needs xgboost") from error
        return _fit_each(task, self.n_components, lambda fit, codes: self._fit_one(xgboost, task, fit, codes))

    def _fit_one(self, xgboost: Any, task: Task, fit: int, codes: np.ndarray) -> _OneFit:
        parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "multi_strategy": "multi_output_tree",
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "base_score": 0.0,  # targets are centred
            "nthread": self.n_jobs,
            "seed": task.seeds[fit],
            "verbosity": 1,
        }

        def matrix(axes: _Axes, rows: Bool[Tensor, "scene"]) -> Any:
            targets = axes.rotate(task.embeddings[rows])
            return xgboost.DMatrix(codes[rows.cpu().numpy()], targets, nthread=self.n_jobs)

        inner, validation = task.inner[fit], task.validation[fit]
        details: dict[str, Any] = {}
        if bool(inner.any()) and bool(validation.any()):
            axes = _Axes.of(task.embeddings[inner], self.n_components)
            booster = xgboost.train(
                parameters,
                matrix(axes, inner),
                self.max_rounds,
                evals=[(matrix(axes, validation), "validation")],
                early_stopping_rounds=self.patience,
                verbose_eval=False,
            )
            rounds = booster.best_iteration + 1
            converged = booster.num_boosted_rounds() < self.max_rounds
        else:
            rounds, converged = min(self.rounds_unvalidated, self.max_rounds), True
            details["note"] = "no validation objects: the number of rounds is that of rounds_unvalidated"

        axes = _Axes.of(task.embeddings[task.train[fit]], self.n_components)
        booster = xgboost.train(parameters, matrix(axes, task.train[fit]), rounds)
        trees = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]["trees"]
        leaves = sum(child == -1 for tree in trees for child in tree["left_children"])

        def predict(some: Float[np.ndarray, "_scene code"]) -> Float[np.ndarray, "_scene axis"]:
            found = booster.predict(xgboost.DMatrix(some, nthread=self.n_jobs))
            return found.reshape(len(some), -1)  # one output comes as a vector

        details = {"rounds": rounds, "library": f"xgboost {xgboost.__version__}", **details}
        return _OneFit(axes, predict, leaves, converged, details)


@dataclass(frozen=True)
class RandomForest:
    """Average deep trees, each fitted to a resample of the training scenes; validation objects choose nothing.

    A forest keeps the outputs of every leaf in float64: 100 trees fitted to 100,000 scenes take about 5 GB.
    Needs scikit-learn (Breiman 2001): ``pip install 'conceptbind[trees]'``.
    """

    n_trees: int = 100
    max_features: float | str = "sqrt"
    """Codes that are tried at every split: "sqrt" or "log2" of their number, or a share of them."""
    min_samples_leaf: int = 1
    n_components: int = 32
    """Principal axes that are predicted, at most."""
    n_jobs: int = 1
    """Processor cores."""

    def __post_init__(self) -> None:
        _at_least_one(self, "n_trees", "min_samples_leaf", "n_components", "n_jobs")
        share = self.max_features
        if share not in ("sqrt", "log2") if isinstance(share, str) else not 0 < share <= 1:
            raise ValueError(
                f"max_features is 'sqrt', 'log2', or a share above 0 and at most 1; got {share!r}"
            )

    @property
    def name(self) -> str:
        """What figures call it."""
        return "random forest"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines a fit beside the task, ready for JSON."""
        return _settings(self)

    def fit(self, task: Task) -> TreeApproximation:
        """Fit every split of the task. Raises ModuleNotFoundError when scikit-learn is not installed."""
        try:
            import sklearn.ensemble as ensemble
        except ModuleNotFoundError as error:
            raise _missing("RandomForest needs scikit-learn") from error
        return _fit_each(
            task, self.n_components, lambda fit, codes: self._fit_one(ensemble, task, fit, codes)
        )

    def _fit_one(self, ensemble: Any, task: Task, fit: int, codes: np.ndarray) -> _OneFit:
        rows = task.train[fit]
        axes = _Axes.of(task.embeddings[rows], self.n_components)
        forest = ensemble.RandomForestRegressor(
            self.n_trees,
            # a whole number would be a count, not a share
            max_features=share if isinstance(share := self.max_features, str) else float(share),
            min_samples_leaf=self.min_samples_leaf,
            random_state=task.seeds[fit],
            n_jobs=self.n_jobs,
        )
        targets = axes.rotate(task.embeddings[rows])
        forest.fit(codes[rows.cpu().numpy()], targets[:, 0] if targets.shape[1] == 1 else targets)
        leaves = sum(tree.get_n_leaves() for tree in forest.estimators_)
        details = {"library": f"scikit-learn {versions('scikit-learn')['scikit-learn']}"}

        def predict(some: Float[np.ndarray, "_scene code"]) -> Float[np.ndarray, "_scene axis"]:
            return forest.predict(some).reshape(len(some), -1)

        return _OneFit(axes, predict, int(leaves), True, details)


@dataclass(frozen=True, eq=False)
class _Axes:
    """Hold the mean and the first principal axes of some embeddings, float64, on the CPU."""

    mean: Float[Tensor, "dim"]
    basis: Float[Tensor, "axis dim"]
    share: float
    """Of the variance, on these axes."""

    @classmethod
    def of(cls, embeddings: Float[Tensor, "scene dim"], n_components: int) -> _Axes:
        z = embeddings.detach().cpu().double()
        mean = z.mean(0)
        z = z - mean
        if len(z) > z.shape[1]:
            z = torch.linalg.qr(z, mode="r").R  # the same right singular vectors, of a small matrix
        _, singular, basis = torch.linalg.svd(z, full_matrices=False)
        variance = singular.square()
        # Axes without variance hold rounding errors only.
        n = int((variance > variance[0] * torch.finfo(torch.float32).eps ** 2).sum())
        n = min(n_components, max(n, 1))
        total = float(variance.sum())
        share = float(variance[:n].sum()) / total if total > 0 else 1.0
        return cls(mean, basis[:n], share)

    def rotate(self, embeddings: Float[Tensor, "scene dim"]) -> Float[np.ndarray, "scene axis"]:
        return ((embeddings.detach().cpu().double() - self.mean) @ self.basis.T).numpy()

    def rotate_back(self, targets: Float[np.ndarray, "scene axis"]) -> Float[Tensor, "scene dim"]:
        return (torch.from_numpy(targets).double() @ self.basis + self.mean).float()


@dataclass(frozen=True, eq=False)
class _OneFit:
    axes: _Axes
    predict: Predictor
    n_leaves: int
    converged: bool
    details: dict[str, Any]


def _fit_each(
    task: Task, n_components: int, fit_one: Callable[[int, np.ndarray], _OneFit]
) -> TreeApproximation:
    codes = _codes(task.space, task.scenes)
    fits = [fit_one(fit, codes) for fit in range(task.n_fits)]
    return TreeApproximation(
        task.space,
        task.scenes.shape[1],
        tuple(f.axes for f in fits),
        tuple(f.predict for f in fits),
        n_parameters=[f.n_leaves * len(f.axes.basis) for f in fits],
        converged=[f.converged for f in fits],
        details=[
            {"n_components": len(f.axes.basis), "variance_kept": f.axes.share, **f.details} for f in fits
        ],
    )


def _codes(space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"]) -> Float[np.ndarray, "scene code"]:
    """Give the one-hot codes of every value: of slot 1 concept 1, slot 1 concept 2, ..., slot 2 concept 1, ...."""
    scenes = scenes.cpu()
    offsets = torch.tensor([sum(space.n_values[:k]) for k in range(space.n_concepts)])
    codes = torch.zeros(*scenes.shape[:2], sum(space.n_values))
    return codes.scatter_(2, scenes + offsets, 1.0).flatten(1).numpy()


def _settings(approximator: BoostedTrees | RandomForest) -> dict[str, Any]:
    # Threads change how long a fit takes, not what it finds.
    fields = {name: value for name, value in vars(approximator).items() if name != "n_jobs"}
    return {"approximator": approximator.name, **fields}


def _at_least_one(approximator: BoostedTrees | RandomForest, *names: str) -> None:
    for name in names:
        if getattr(approximator, name) < 1:
            raise ValueError(f"{name} is at least 1; got {getattr(approximator, name)}")


def _missing(needs: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"{needs}: pip install 'conceptbind[trees]'")
