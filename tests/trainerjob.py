"""Training by the Trainer of the transformers library: accumulated gradients, evaluations, several epochs."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from torch import nn
from torch.utils.data import Dataset

from pairs import home, tell

ITEMS, BATCH, ACCUMULATED, EPOCHS, EVALUATE_EVERY = 424, 2, 4, 2, 20
STEPS = EPOCHS * -(-ITEMS // (BATCH * ACCUMULATED))


class Pairs(Dataset[dict[str, torch.Tensor]]):
    """Numbers and twice those numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x = torch.full((4,), index / self._count)
        return {"x": x, "labels": 2 * x}


class Model(nn.Module):
    """A line."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss, as the Trainer wants it."""
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def main() -> None:
    """Train, and tell the losses and how many steps the Trainer itself counted."""
    # The Trainer must not take us for a job of several ranks.
    taken = {name: os.environ.pop(name, "0") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    from transformers import Trainer, TrainingArguments, set_seed

    set_seed(1)
    usual: dict[str, Any] = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments(
        output_dir=str(home() / "out"),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        num_train_epochs=EPOCHS,
        eval_strategy="steps",
        eval_steps=EVALUATE_EVERY,
        logging_steps=1,
        **usual,
    )
    trainer = Trainer(model=Model(), args=arguments, train_dataset=Pairs(ITEMS), eval_dataset=Pairs(40))
    trainer.train()
    os.environ.update(taken)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    tell({"losses": losses, "steps": trainer.state.global_step})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
