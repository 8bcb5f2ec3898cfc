"""Hugging Face's Trainer on CPU, as its documentation has it: ``torchrun --nproc-per-node 2 trainer.py``."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from watched.sabotage import Sabotage, SlowDataset

LENGTH = 32


class Examples(torch.utils.data.Dataset[Any]):
    """Random tokens, the same for everybody."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(0, 64, (count, LENGTH), generator=generator)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._tokens[index]}


class EndStep(TrainerCallback):  # type: ignore[misc]
    """Tells the sabotage that a step is over."""

    def __init__(self, sabotage: Sabotage) -> None:
        self._sabotage = sabotage

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Hear of it."""
        self._sabotage.end_step()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--op-ms", type=float, default=10.0)
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    torch.set_num_threads(1)
    sabotage = Sabotage()
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, use_cache=False)
    )
    if options.op_ms:
        model.transformer.h[0].register_forward_hook(lambda *_: time.sleep(options.op_ms / 1000))
    sabotage.attach(model.transformer.h[1])
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                max_steps=options.steps,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                eval_strategy="steps" if options.evaluate_every else "no",
                eval_steps=options.evaluate_every or None,
                save_strategy="steps" if options.save_every else "no",
                save_steps=options.save_every or 500,
                report_to=[],
                disable_tqdm=True,
                logging_steps=1000,
                seed=options.seed,
            ),
            train_dataset=SlowDataset(Examples(4096), sabotage, 8),
            eval_dataset=Examples(64),
            callbacks=[EndStep(sabotage)],
        )
        trainer.train()


if __name__ == "__main__":
    main()
