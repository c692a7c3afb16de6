"""Calibration while anything trains: a callback for transformers' ``Trainer`` and every trainer made from it.

Five lines beside a training that is already there::

    from calmtune import CalibrationCallback

    rows = [{"question": "2 + 2?", "choices": ["3", "4"], "answer": "4"}, ...]  # not trained on
    trainer = SFTTrainer(model, args, train_dataset=...)
    trainer.add_callback(CalibrationCallback(trainer, rows, every_n_steps=50))
    trainer.train()

Invariant: training is the same with and without it, bit for bit. It computes no gradient, puts every module back into
its mode, and gives the random number generators back as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback

from calmtune import metrics
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.modeling.reading import Normalisation, check_readable, eval_mode
from calmtune.training.datasets import Collator, as_rows, encode, refuse_bare
from calmtune.training.holdout import HeldOut, HeldOutScores

FOLDER = "calibration"


class CalibrationCallback(TrainerCallback):
    """Logs conf-ECE, cw-ECE, NLL, accuracy and overconfidence gap on multiple-choice rows, and draws the diagram.

    It measures at the start, at every evaluation, every ``every_n_steps`` steps, and at the end. The figures go where
    the trainer's own go: its log history, its ``report_to``, and the metrics of an evaluation, so that
    ``metric_for_best_model="eval_mcqa_nll"`` works. Diagrams are ``output_dir/calibration/step-000050.png``.

    Args:
        trainer: the one it is added to; what it logs with.
        rows: multiple-choice rows (a list of dicts, a ``datasets.Dataset``), none of them trained on.
        every_n_steps: None for evaluations, start and end alone.
        tokenizer: None for the trainer's ``processing_class``.
        scoring: ``"letter"`` or ``"text"``. template, system_prompt: see :class:`calmtune.data.prompts.PromptStyle`.
        normalisation: of text scores: ``"sum"``, or mean per ``"token"`` or ``"byte"``.
        max_length: most tokens that a prompt with one option may have.
        batch_size: items in one forward pass; None for the trainer's ``per_device_eval_batch_size``.
        prefix: of the names in the log; must begin with ``eval_`` for ``metric_for_best_model``.
        n_bins: of the binned errors. n_resamples: of the conf-ECE's interval.
        draw: whether to write diagrams.

    Attributes:
        history: the figures of every measurement, each with its ``step``.

    Raises:
        ValueError: a row that is no multiple choice, a setting that cannot work, or (at the start of training) a row
            that cannot be encoded, sharded weights, or a model whose logits cannot be read.
    """

    def __init__(
        self,
        trainer: Trainer,
        rows: Iterable[Any],
        *,
        every_n_steps: int | None = None,
        tokenizer: Any = None,
        scoring: str = "text",
        template: str = "auto",
        system_prompt: str | None = None,
        normalisation: Normalisation = "sum",
        max_length: int = 1024,
        batch_size: int | None = None,
        prefix: str = "eval_mcqa",
        n_bins: int = 10,
        n_resamples: int = 200,
        draw: bool = True,
    ) -> None:
        for name, value in (("every_n_steps", every_n_steps), ("batch_size", batch_size), ("n_bins", n_bins),
                            ("n_resamples", n_resamples)):  # fmt: skip
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}: expected a whole number >= 1, got {value!r}")
        self.trainer = trainer
        self.rows = as_rows(rows, "rows")
        refuse_bare(self.rows, "CalibrationCallback")
        self.style = PromptStyle(scoring, template, system_prompt)  # type: ignore[arg-type]
        self.every_n_steps, self.tokenizer, self.normalisation = every_n_steps, tokenizer, normalisation
        self.max_length, self.batch_size, self.prefix = max_length, batch_size, prefix
        self.n_bins, self.n_resamples, self.draw = n_bins, n_resamples, draw
        self.history: list[dict[str, float]] = []
        self._held_out: HeldOut | None = None
        self._training = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Encode the rows, and measure where training starts from."""
        self.held_out(model, kwargs.get("processing_class"))
        self._measure(args, state, control, model)
        self._training = True

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Measure every ``every_n_steps`` steps."""
        if self.every_n_steps and state.global_step % self.every_n_steps == 0:
            self._measure(args, state, control, model)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, model: Any = None, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Measure at an evaluation, and put the figures among its metrics."""
        self.held_out(model, kwargs.get("processing_class"))
        # outside of training the weights may have changed while the step did not
        figures = self._measure(args, state, control, model, again=not self._training)
        if metrics is not None:
            metrics.update(figures)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Measure where training ended: the last step, or the checkpoint that was loaded as the best."""
        self._training = False
        self._measure(args, state, control, model, again=args.load_best_model_at_end)

    def held_out(self, model: Any, processing_class: Any = None) -> HeldOut:
        """The rows, encoded once for the model that is trained.

        Raises:
            ValueError: there is no tokenizer, weights are sharded, or the model's logits cannot be read.
        """
        if self._held_out is None:
            _refuse_sharded(self.trainer)
            tokenizer = self.tokenizer or processing_class
            tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a processor has one
            if tokenizer is None:
                raise ValueError("CalibrationCallback: the trainer has no processing_class; give tokenizer=")
            items: list[Any] = encode(self.rows, Renderer(tokenizer, self.style), "options", self.max_length)
            pad_id = tokenizer.pad_token_id or 0  # nothing reads it
            size = self.batch_size or self.trainer.args.per_device_eval_batch_size
            prepare, autocast = self._to_device, self.trainer.accelerator.autocast
            self._held_out = HeldOut(items, "options", self.normalisation, size, pad_id, prepare, autocast)
            with eval_mode(model), torch.no_grad(), autocast():
                check_readable(model, prepare(Collator(pad_id)(items[:1])))
        return self._held_out

    def _to_device(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        device = self.trainer.args.device
        return {key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}

    def _measure(self, args: Any, state: Any, control: Any, model: Any, *, again: bool = False) -> dict[str, float]:
        """The figures at this step under their names in the log; measured and logged if that was not done yet."""
        if again or not self.history or self.history[-1]["step"] != state.global_step:
            devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            with torch.random.fork_rng(devices):
                scores = self.held_out(model).score(model, None)
            figures, table = self._figures(scores)
            self.history.append({"step": state.global_step, **figures})
            if state.is_world_process_zero:
                self._log(figures, control)
                if self.draw:
                    self._draw(figures, table, Path(args.output_dir) / FOLDER / f"step-{state.global_step:06d}.png")
        return {f"{self.prefix}_{name}": value for name, value in self.history[-1].items() if name != "step"}

    def _figures(self, scores: HeldOutScores) -> tuple[dict[str, float], metrics.ReliabilityTable]:
        p, labels = scores.raw, scores.labels
        confidence, correct = p.max(axis=1), p.argmax(axis=1) == labels
        ece = metrics.bootstrap_interval(
            lambda c, o: metrics.expected_calibration_error(c, o, self.n_bins),
            confidence,
            correct,
            n_resamples=self.n_resamples,
            method="bca" if len(labels) > 1 else "percentile",
        )
        figures = {
            "conf_ece": ece.estimate,
            "conf_ece_low": ece.low,
            "conf_ece_high": ece.high,
            "cw_ece": metrics.classwise_ece(p, labels, self.n_bins, scores.n_options),
            "nll": metrics.negative_log_likelihood(p, labels),
            "accuracy": metrics.accuracy(correct),
            "gap": metrics.overconfidence_gap(confidence, correct),
            "n": float(len(labels)),
        }
        return figures, metrics.reliability_table(confidence, correct, self.n_bins)

    def _log(self, figures: Mapping[str, float], control: Any) -> None:
        """Into the log history and to the trackers, past what a subclass adds to its own training log."""
        wanted = control.should_log
        Trainer.log(self.trainer, {f"{self.prefix}_{name}": value for name, value in figures.items()})
        # a log of ours is not the one that the loop is about to write
        control.should_log = wanted

    def _draw(self, figures: Mapping[str, float], table: metrics.ReliabilityTable, path: Path) -> None:
        from calmtune.report.figures import report_style, to_png
        from calmtune.report.numbers import Estimate
        from calmtune.report.reliability import plot_reliability

        ends = (figures[name] for name in ("conf_ece", "conf_ece_low", "conf_ece_high"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with report_style():
            picture = to_png(plot_reliability(table, Estimate(*ends, int(figures["n"])), path.stem.replace("-", " ")))
        path.write_bytes(picture)


def _refuse_sharded(trainer: Trainer) -> None:
    """Raise where no process holds the whole model.

    Raises:
        ValueError: DeepSpeed or FSDP.
    """
    for name, what in (("is_deepspeed_enabled", "DeepSpeed"), ("is_fsdp_enabled", "FSDP")):
        if getattr(trainer, name, False):
            raise ValueError(f"CalibrationCallback reads the whole model, which {what} may shard; train without {what}")
