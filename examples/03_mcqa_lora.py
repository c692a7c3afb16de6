"""Calibrate a small model on the built-in questions from Python, and compare both distributions on held-out ones.

python examples/03_mcqa_lora.py --steps 20
"""

from __future__ import annotations

import argparse

from peft import LoraConfig

from calmtune import CalmConfig, CalmTrainer
from calmtune.data.facts import facts
from calmtune.data.splits import split_rows
from calmtune.metrics import accuracy, expected_calibration_error
from calmtune.modeling.loading import BUILT_IN, load_model
from calmtune.scoring.options import score_items


def main() -> None:
    """Train for some steps and print accuracy and conf-ECE of raw and adjusted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--test_items", type=int, default=100)
    parser.add_argument("--output_dir", default="runs/example")
    options = parser.parse_args()

    splits = split_rows(facts(["capitals", "currencies", "continents"]), {"train": 0.5, "upper": 0.25, "test": 0.25})
    model, tokenizer = load_model(BUILT_IN)
    trainer = CalmTrainer(
        model,
        CalmConfig(
            options.output_dir,
            max_steps=options.steps,
            per_device_train_batch_size=8,
            learning_rate=2e-4,
            lr_scheduler_type="constant",
            adjustment="scalar",
            alpha_learning_rate=0.1,
            template="plain",
            save_strategy="no",
        ),
        train_dataset=splits["train"],
        upper_dataset=splits["upper"],
        processing_class=tokenizer,
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()

    test = splits["test"][: options.test_items]
    said = score_items(trainer.model, test, trainer.renderer, adjustment=trainer.adjustment)
    for adjusted in (False, True):
        confidence, correct = said.confidence_and_correct(adjusted=adjusted)
        name = "adjusted" if adjusted else "raw"
        ece = expected_calibration_error(confidence, correct)
        print(f"{name:>9}: n {len(test)}, accuracy {accuracy(correct):.3f}, conf-ECE {ece:.3f}")


if __name__ == "__main__":
    main()
