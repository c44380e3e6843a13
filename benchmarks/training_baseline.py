"""A plain version of the training step, as one would write it first; the baseline of training.py, nothing else uses it.

Scenes and queries are lists of Python numbers, drawn and turned into tokens one after the other. Queries, of a value or
of an object, are padded to one length and encoded together with a padding mask. Labels are filled in by two loops, over
scenes and over queries. The encoders are torch.nn.TransformerEncoder, the optimiser is torch.optim.AdamW, and dropout
is off, so that losses can be compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from conceptbind.kernels.transformer import Transformer
from conceptbind.training.config import TrainingConfig

Object = tuple[int, ...]


@dataclass
class PlainBatch:
    """Hold the scenes and queries of a step."""

    scenes: list[list[Object]]
    values: list[tuple[int, int]]
    """Concept and value of every value query."""
    objects: list[Object]


class PlainEncoder(nn.Module):
    """Encode token sequences; the embedding is read at a given place."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.n_tokens, shape.width)
        self.position = nn.Embedding(shape.n_positions, shape.width)
        layer = nn.TransformerEncoderLayer(
            shape.width,
            shape.n_heads,
            shape.feed_forward,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(shape.width)
        self.blocks = nn.TransformerEncoder(layer, shape.depth, norm=norm, enable_nested_tensor=False)
        self.out = nn.Linear(shape.width, shape.dim)

    def forward(self, tokens: Tensor, padding: Tensor | None, ends: Tensor) -> Tensor:
        """Embed sequences (sequence, token); ``padding`` is true where there is no token."""
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        x = self.blocks(x, src_key_padding_mask=padding)
        return self.out(x[torch.arange(len(x)), ends])

    def load(self, weights: dict[str, Tensor]) -> None:
        """Take the weights of one of our models."""
        with torch.no_grad():
            self.token.weight.copy_(weights["E"])
            self.position.weight.copy_(weights["P"])
            for i, layer in enumerate(self.blocks.layers):
                layer.self_attn.in_proj_weight.copy_(weights[f"A{i}"].T)
                layer.self_attn.in_proj_bias.copy_(weights[f"a{i}"][0])
                pairs = {"O": layer.self_attn.out_proj, "F": layer.linear1, "G": layer.linear2}
                for name, linear in pairs.items():
                    linear.weight.copy_(weights[f"{name}{i}"].T)
                    linear.bias.copy_(weights[f"{name.lower()}{i}"][0])
            self.out.weight.copy_(weights["C"].T)
            self.out.bias.copy_(weights["c"][0])


class PlainTrainer:
    """Make batches and take steps."""

    def __init__(self, config: TrainingConfig, shapes: dict[str, Transformer]) -> None:
        self.config = config
        self.scene, self.query = PlainEncoder(shapes["scene"]), PlainEncoder(shapes["query"])
        self.log_scale = nn.Parameter(torch.zeros(()))
        parameters = [*self.scene.parameters(), *self.query.parameters(), self.log_scale]
        self.optimiser = torch.optim.AdamW(parameters, lr=config.rate, weight_decay=config.weight_decay)
        self.first = [sum(config.sizes[:k]) for k in range(len(config.sizes))]
        self.start, self.end, self.end_of_scene = range(sum(config.sizes), sum(config.sizes) + 3)
        self.train_objects = [tuple(o) for o in config.split.train_objects.tolist()]
        self.is_train = set(self.train_objects)

    def make_batch(self, rng: random.Random) -> PlainBatch:
        """Draw scenes, and from them the queries."""
        c = self.config
        scenes = [rng.sample(self.train_objects, c.n_objects) for _ in range(c.batch)]
        objects: set[Object] = set()
        for scene in scenes[: c.object_queries // c.n_objects]:
            objects.update(scene)
            i, j = rng.sample(range(c.n_objects), 2)
            k = rng.randrange(len(c.sizes))
            for a, b in ((scene[i], scene[j]), (scene[j], scene[i])):
                swapped = (*a[:k], b[k], *a[k + 1 :])
                if swapped in self.is_train:
                    objects.add(swapped)
        values = [(k, v) for k, size in enumerate(c.sizes) for v in range(size)]
        return PlainBatch(scenes, values, sorted(objects))

    def tokens_of_scenes(self, batch: PlainBatch) -> Tensor:
        """Write scenes as tokens."""
        return torch.tensor([self._tokens(scene) for scene in batch.scenes])

    def tokens_of_queries(self, batch: PlainBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Write queries as tokens, padded to one length; give the padding and the last token's place, too."""
        rows = [[self.first[k] + v, self.end_of_scene] for k, v in batch.values]
        rows += [self._tokens([obj]) for obj in batch.objects]
        longest = max(map(len, rows))
        tokens = torch.zeros(len(rows), longest, dtype=torch.int64)
        padding = torch.ones(len(rows), longest, dtype=torch.bool)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = torch.tensor(row)
            padding[i, : len(row)] = False
        return tokens, padding, torch.tensor([len(row) - 1 for row in rows])

    def labels(self, batch: PlainBatch) -> tuple[Tensor, Tensor]:
        """Mark which values and which objects are true of each scene, and share a mass of 1 among them."""
        values = torch.zeros(len(batch.scenes), len(batch.values))
        objects = torch.zeros(len(batch.scenes), len(batch.objects))
        for i, scene in enumerate(batch.scenes):
            for j, (k, v) in enumerate(batch.values):
                if any(obj[k] == v for obj in scene):
                    values[i, j] = 1.0
            for j, obj in enumerate(batch.objects):
                if obj in scene:
                    objects[i, j] = 1.0
        return values / values.sum(1, keepdim=True), objects / objects.sum(1, keepdim=True).clamp(min=1)

    def loss(self, batch: PlainBatch) -> Tensor:
        """Give the loss of a batch."""
        tokens = self.tokens_of_scenes(batch)
        scenes = self.scene(tokens, None, torch.full((len(tokens),), tokens.shape[1] - 1))
        queries = self.query(*self.tokens_of_queries(batch))
        scores = functional.normalize(scenes, dim=1) @ functional.normalize(queries, dim=1).T
        scores = scores * self.log_scale.exp()
        values, objects = self.labels(batch)
        n_values = len(batch.values)
        some = objects.sum(1) > 0
        of_objects = functional.cross_entropy(scores[some, n_values:], objects[some])
        return of_objects + self.config.concept_weight * functional.cross_entropy(
            scores[:, :n_values], values
        )

    def step(self, batch: PlainBatch) -> float:
        """Take a step."""
        self.optimiser.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def _tokens(self, scene: list[Object]) -> list[int]:
        row = []
        for obj in scene:
            row += [self.start, *(self.first[k] + v for k, v in enumerate(obj)), self.end]
        return [*row, self.end_of_scene]
