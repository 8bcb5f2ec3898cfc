"""A small GPT as one ``nn.Sequential``, so that a pipeline stage is a slice of it.

Tokens go in, logits come out. The same seed gives the same weights however the model is cut, because the
whole model is always built before it is sliced.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 64
CONTEXT = 64
HEADS = 4


class Embedding(nn.Module):
    """Token plus position embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(CONTEXT, width)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: Tensor = self.token(tokens) + self.position(positions)
        return embedded


class Block(nn.Module):
    """Causal self-attention and an MLP, each with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self._attend(self.norm_1(x)))
        result: Tensor = x + self.mlp(self.norm_2(x))
        return result

    def _attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, length, width)


class Head(nn.Module):
    """Normalised projection to logits, one row per token: FSDP warns about outputs that are views."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.project(self.norm(x).flatten(0, 1))
        return logits


def build(*, width: int, layers: int) -> nn.Sequential:
    """Return embedding, blocks and head in order; draws from torch's global generator."""
    return nn.Sequential(Embedding(width), *(Block(width) for _ in range(layers)), Head(width))


def blocks(model: nn.Module) -> list[Block]:
    """Return the blocks of a model or of a stage, first to last."""
    return [module for module in model.modules() if isinstance(module, Block)]


def stage(model: nn.Sequential, index: int, count: int) -> nn.Sequential:
    """Return the modules of one of ``count`` pipeline stages; the blocks are split as evenly as they go."""
    layers = len(model) - 2
    first, last = (layers * position // count for position in (index, index + 1))
    start = 0 if index == 0 else first + 1
    end = len(model) if index == count - 1 else last + 1
    return nn.Sequential(*list(model)[start:end])


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of the next token."""
    return functional.cross_entropy(logits, targets.flatten())
