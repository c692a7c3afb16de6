"""CalmTrainer: transformers' Trainer with the bilevel step in the place of loss.backward().

Batches go in, gradients come out. One optimizer step is computed at once, over all its micro-batches, because lambda is
not linear in them: :meth:`CalmTrainer.training_step` waits for the last micro-batch and then runs the method's step,
which leaves the joint direction in ``.grad`` of theta and of alpha.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, Trainer
from transformers.trainer_utils import rotate_checkpoints

from calmtune.data.prompts import Renderer
from calmtune.modeling.calibration_files import load_calibration, save_calibration, write_json
from calmtune.modeling.loading import describe_base
from calmtune.modeling.reading import check_readable
from calmtune.training.answer_levels import RegularisedAnswerLevel
from calmtune.training.arguments import CalmConfig
from calmtune.training.before_seen import BeforeSeen
from calmtune.training.callbacks import StepHooks
from calmtune.training.checkpoint import (
    STATE_FILE,
    describe_files,
    differences,
    last_complete_checkpoint,
    read_state,
    run_identity,
)
from calmtune.training.datasets import Collator, as_rows, encode
from calmtune.training.e_step import EStep
from calmtune.training.holdout import HeldOut
from calmtune.training.levels import letter_summary, mean_losses
from calmtune.training.optimizer import PairedOptimizer
from calmtune.training.passes import NonFiniteError, assign_gradients
from calmtune.training.prepare import prepare_data, refuse_unsupported, with_adapter
from calmtune.training.processes import Processes, checksum
from calmtune.training.setup import make_adjustment, make_controller, make_lower, make_own_answers
from calmtune.training.sharding import shard_base, wants_sharding, without_accelerates_own
from calmtune.training.steps import MethodStep
from calmtune.training.streams import EpochSampler, micro_batches, rank_loader
from calmtune.training.watch import Watch
from calmtune.training.window import LogWindow

logger = logging.getLogger(__name__)


class CalmTrainer(Trainer):
    """Fine-tunes a causal language model and calibrates it meanwhile.

    Args:
        model: a causal language model, with or without PEFT adapters.
        args: :class:`CalmConfig`.
        train_dataset: S_T: rows (a list of dicts, a ``datasets.Dataset``, calmtune rows) of multiple choice or
            instructions.
        upper_dataset: S_V: held-out rows of the same kinds, disjoint from S_T; needed by ``method="calm"``.
        calibration_dataset: labelled multiple-choice rows, disjoint from both: ``eta="auto"`` follows their
            overconfidence gap, and ``load_best_model_at_end`` chooses the checkpoint by them.
        eval_dataset: rows whose loss :meth:`evaluate` gives; no part of training.
        processing_class: the tokenizer.
        peft_config: wraps the model in these adapters.
        model_name, model_revision: recorded with what is saved, for loading; default: the model's own name.
        kwargs: callbacks, optimizers, ... as for ``transformers.Trainer``.

    Raises:
        ValueError: anything that can't work, before the first step.

    Example:
        ``CalmTrainer(model, CalmConfig("out"), train_dataset=train, upper_dataset=held_out, processing_class=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM")).train()``
    """

    args: CalmConfig

    def __init__(
        self,
        model: nn.Module,
        args: CalmConfig,
        train_dataset: Iterable[Any],
        upper_dataset: Iterable[Any] | None = None,
        eval_dataset: Iterable[Any] | None = None,
        calibration_dataset: Iterable[Any] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: Any | None = None,
        model_name: str | None = None,
        model_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        if processing_class is None:
            raise ValueError("processing_class is missing: give the model's tokenizer")
        refuse_unsupported(args, kwargs)
        sharded = wants_sharding(args)
        own_name = str(getattr(getattr(model, "config", None), "_name_or_path", ""))
        self.base_description = describe_base(model, model_name or own_name, model_revision)
        model = with_adapter(model, args, peft_config)
        self.renderer = Renderer(processing_class, args.prompt_style)
        data = prepare_data(args, self.renderer, train_dataset, upper_dataset, calibration_dataset, eval_dataset)
        self.level_name, self.level, self.upper_examples = data.level_name, data.level, data.upper
        if args.device.type == "cpu":
            args.dataloader_pin_memory = False  # there is nothing to pin for, and torch would say so at every start
        pad_id = processing_class.pad_token_id if processing_class.pad_token_id is not None else 0
        super().__init__(
            model=model,  # type: ignore[arg-type]
            args=args,
            data_collator=Collator(pad_id),
            train_dataset=data.train,  # type: ignore[arg-type]
            # transformers insists on one where anything is to be evaluated; see :meth:`evaluate`
            eval_dataset=data.evaluation or data.calibration or None,  # type: ignore[arg-type]
            processing_class=processing_class,
            **kwargs,
        )
        if sharded:
            shard_base(self.model)
            # transformers then neither wraps the model in DDP nor moves it
            self.is_distributed_loading_by_transformers = True
        self.processes = Processes.current(args.device, lockstep=sharded)
        self.has_evaluation_rows = data.evaluation is not None
        self.adjustment = make_adjustment(args, self.level, self.model)
        self.lower = make_lower(args, self.level)
        held_out = HeldOut(
            data.calibration,
            self.level_name,
            args.normalisation,
            args.per_device_eval_batch_size,
            pad_id,
            self._prepare_inputs,  # type: ignore[arg-type]
            self.accelerator.autocast,
            self.processes,
        )
        foreign = replace(held_out, items=data.shuffled)
        self.watch = Watch(
            args, self.model, self.adjustment, held_out, make_controller(args), foreign, BeforeSeen(self.processes)
        )
        self.e_step: EStep | None = None
        if isinstance(self.lower, RegularisedAnswerLevel):
            self.e_step = EStep(args, self.model, self.lower, replace(held_out, items=data.train))
        self.method_step = MethodStep(
            args,
            self.model,
            self.adjustment,
            self.level,
            self.lower,
            self.upper_examples,
            self._batch,
            self.accelerator.autocast,
            self._task_update,
            self.watch.controller,
            make_own_answers(
                args, self.level, self.model, self.adjustment, processing_class, self.accelerator.autocast
            ),
            self.processes,
            data.train[0],
        )
        if args.method == "calm":  # other bilevel tools differentiate twice, which many attention kernels can't
            logger.info("bilevel solver: first order (BOME), no second derivative; any attention kernel will do")
        self.data_identity = data.identity()
        self._order: EpochSampler | None = None
        self._pending: list[Any] = []
        self._seen = 0
        self._bad_steps = 0
        self._fatal: str | None = None
        self._window = LogWindow()
        self._restored: dict[str, Any] | None = None
        self.add_callback(StepHooks(on_begin=self._begin, on_epoch=self._begin_epoch, adjustment=self.adjustment))

    def _batch(self, examples: list[Any]) -> Any:
        return self._prepare_inputs(self.data_collator(examples))

    def _theta(self) -> list[Tensor]:
        return self.method_step.theta

    def create_accelerator_and_postprocess(self) -> None:
        """accelerate's, which is not to shard anything: :func:`shard_base` does."""
        with without_accelerates_own():
            super().create_accelerator_and_postprocess()

    def _defer_fsdp_gradient_reduction(self) -> AbstractContextManager[None]:
        """No weight that FSDP2 manages has a gradient."""
        return nullcontext()

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """theta's optimizer as transformers makes it, joined by alpha's own."""
        theta = super().create_optimizer(model) if model is not None else super().create_optimizer()
        if self.adjustment is None or isinstance(theta, PairedOptimizer):
            return theta
        kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
        alpha = kinds[self.args.alpha_optimizer](self.adjustment.parameters(), lr=self.args.alpha_learning_rate)
        self.optimizer = PairedOptimizer(theta, alpha)
        return self.optimizer

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        data = self.train_dataset if train_dataset is None else train_dataset
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return EpochSampler(len(data), seed)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """This process's micro-batches; accelerate would repeat examples where they can't be dealt out evenly."""
        if self.processes.count == 1:
            return super().get_train_dataloader()
        self._order = self._get_train_sampler()
        return rank_loader(self.train_dataset, self._order, self.data_collator, self.args, self.processes)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], None]:
        """The micro-batches of one optimizer step, remembered so that the step sees them all at once."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._pending, self._seen = batches, 0
        return batches, None

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> None:
        """Counted by the levels; transformers would count labels, and wait for processes that have none."""

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Nothing until the last micro-batch, then the whole step; returns the lower loss, nats."""
        self._seen += 1
        if self._seen < len(self._pending):
            return torch.zeros((), device=self.args.device)
        model.train()
        batches = [self._prepare_inputs(batch) for batch in self._pending if batch["ids"]]
        if self.state.global_step == 0:
            with self.processes.summed():
                if batches or self.processes.lockstep:
                    check_readable(self.model, batches[0] if batches else self._batch([self.train_dataset[0]]))
        try:
            value = self._step(batches)
        except FloatingPointError as error:
            value = self._refuse_step(str(error), batches)
        return torch.tensor(value, device=self.args.device)

    def _step(self, batches: list[Any]) -> float:
        """Run the method; leaves the direction in the gradients of theta and alpha."""
        step = self.state.global_step
        self._window.set(self.watch.before_step(step))
        direction = self.method_step(batches, step, logs=self._logs_next())
        if (seen := getattr(self.level, "seen", None)) is not None:
            self.watch.before_seen.add(list(seen.values()))
            seen.clear()
        assign_gradients(self._theta(), direction.theta)
        if direction.alpha and self.adjustment is not None:
            assign_gradients(self.adjustment.parameters(), direction.alpha)
        self._window.add({"lower_loss": direction.lower, **direction.logs})
        if self.method_step.sums is not None:
            sums = self.processes.merged(self.method_step.sums)
            self._window.set({name: total / count for name, (total, count) in sums.items()})
        return direction.lower

    def _task_update(self, gradients: tuple[Tensor, ...]) -> None:
        """theta's optimizer takes a step at once; alpha, without a gradient, stays."""
        assert self.optimizer is not None
        self.optimizer.zero_grad()  # the loop clears the model's gradients, and alpha is no part of the model
        assign_gradients(self._theta(), gradients)
        if self.args.max_grad_norm:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _logs_next(self) -> bool:
        """Whether the step under way will be logged (the extra entropies are computed for those alone)."""
        step = self.state.global_step + 1
        if self.args.logging_strategy == "epoch" or (step == 1 and self.args.logging_first_step):
            return True  # which step ends an epoch is not known here
        return step % max(self.state.logging_steps or 1, 1) == 0

    def _refuse_step(self, reason: str, batches: list[Any]) -> float:
        """Leave no gradient, so that the optimizer changes nothing; end the run when it happens too often."""
        for parameter in [*self._theta(), *([] if self.adjustment is None else self.adjustment.parameters())]:
            parameter.grad = None
        self._bad_steps += 1
        parts = self.processes.gather([identity for batch in batches for identity in batch["ids"]])
        ids = [identity for part in parts for identity in part]
        message = f"step {self.state.global_step + 1} skipped: {reason}; its lower batch was {ids}"
        if self.processes.is_main:
            logger.warning(message)
        if self._bad_steps >= self.args.max_bad_steps:
            self._fatal = (
                f"{message}. {self._bad_steps} such steps (max_bad_steps); lower the learning rates or look at these "
                "items"
            )
            self.control.should_save = self.control.should_training_stop = True
        return 0.0

    @torch.no_grad()
    def evaluate(
        self, eval_dataset: Iterable[Any] | None = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Mean cross-entropy, nats, over everything that counts in a data set: adjusted (``eval_loss``) and raw; and
        figures of the calibration rows, where there are any, with the ``eval_selection_loss`` that chooses the
        checkpoint.

        Raises:
            ValueError: there is no data set.
        """
        examples = self.eval_dataset if self.has_evaluation_rows else None
        if eval_dataset is not None:
            rows = as_rows(eval_dataset, "eval_dataset")
            examples = encode(rows, self.renderer, self.level_name, self.args.max_length)
        if examples is None and not self.watch.held_out.items:
            raise ValueError(
                "evaluate: give eval_dataset here or to the trainer, or calibration_dataset to the trainer"
            )
        metrics: dict[str, float] = {}
        if examples is not None:
            pieces = self.processes.dealt(micro_batches(examples, self.args.eval_batch_size))
            batches, autocast = map(self._batch, pieces), self.accelerator.autocast
            metrics |= mean_losses(self.model, self.level, self.adjustment, batches, autocast, self.processes)
        if self.watch.held_out.items and eval_dataset is None:
            metrics |= self.watch.selection()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # ---- logs --------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """transformers' record, with means over the window and the state of alpha."""
        if "loss" in logs:
            window = self._window.take()
            # transformers' mean counts a skipped step as 0; ours is over the steps that were taken
            logs = {**logs, **window, "bad_steps": self._bad_steps}
            del logs["loss"]
            if "lower_loss" in window:
                logs = {"loss": window["lower_loss"], **logs}
            if self.adjustment is not None:
                logs |= self.adjustment.summary()
                logs |= letter_summary(self.adjustment, self.level, self.upper_examples)
        super().log(logs, start_time)

    # ---- saving and resuming -----------------------------------------------------------------------------------------

    def calibration_settings(self) -> dict[str, Any]:
        """What ``calibration.json`` holds beside the form of alpha."""
        args = self.args
        return {
            "method": args.method,
            "level": self.level.name,
            "normalisation": args.normalisation,
            "prompt": self.renderer.settings(),
            "entropy_positions": getattr(self.level, "positions", None),
            "base": self.base_description,
            "checkpoint": self.watch.choice(self.state),
            "decision": None,
        }

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        # loading insists on the very same base, so its embeddings need not go along with an adapter
        options = {"save_embedding_layers": False} if hasattr(self.model, "peft_config") else {}
        self.model.save_pretrained(str(folder), state_dict=state_dict, **options)  # type: ignore[operator]
        self.renderer.tokenizer.save_pretrained(str(folder))
        save_calibration(folder, self.adjustment, self.calibration_settings())

    def _identity(self) -> dict[str, Any]:
        """Everything that a resumed run must share with the run it continues."""
        adapters = {name: config.to_dict() for name, config in getattr(self.model, "peft_config", {}).items()}
        return run_identity(
            self.args.to_dict(), self.data_identity, self.base_description, adapters, self.processes.count
        )

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self._check_same()
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.processes.wait()  # for the files of every process
        with self.processes.summed():
            if self.args.should_save:
                self._mark_whole(trial, limit)

    def _check_same(self) -> None:
        """Theta and alpha must not drift apart; what they are made of is the same everywhere."""
        if self.processes.count > 1:
            alpha = [] if self.adjustment is None else list(self.adjustment.parameters())
            self.processes.check_same(checksum([*alpha, *self._theta()]), "the trained parameters")

    def _mark_whole(self, trial: Any, limit: int | None) -> None:
        run = Path(self._get_output_dir(trial=trial))
        folder = run / f"checkpoint-{self.state.global_step}"
        state = {
            "files": describe_files(folder),
            "identity": self._identity(),
            "bad_steps": self._bad_steps,
            "window": self._window.state(),
            "tr_loss": self._tr_loss.item(),
            "total_loss": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
            "watch": self.watch.state(),
            "e_step": None if self.e_step is None else self.e_step.state(),
        }
        # written last: its presence says that the checkpoint is whole, and only then may older ones go
        write_json(folder / STATE_FILE, state)
        rotate_checkpoints(str(run), limit, self.state.best_model_checkpoint, use_mtime=True)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """Train; ``resume_from_checkpoint=True`` goes on from the newest whole checkpoint of ``output_dir``.

        Raises:
            ValueError: the checkpoint is not whole, or belongs to other settings or data; each difference is named.
            NonFiniteError: ``max_bad_steps`` steps were not finite; a checkpoint was written.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_complete_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"no whole checkpoint in {self.args.output_dir}; start without resume_from_checkpoint")
        if resume_from_checkpoint:
            self._restore(str(resume_from_checkpoint))
        output = super().train(resume_from_checkpoint=resume_from_checkpoint or None, **kwargs)
        if self._fatal:
            raise NonFiniteError(self._fatal)
        return output

    def _load_best_model(self) -> None:
        super()._load_best_model()
        saved, _ = load_calibration(str(self.state.best_model_checkpoint))
        if self.adjustment is not None and saved is not None:
            self.adjustment.load_state_dict(saved.state_dict())  # theta and alpha belong together

    def _restore(self, checkpoint: str) -> None:
        state = read_state(checkpoint)
        changed = differences(state["identity"], self._identity())
        if changed:
            raise ValueError(f"{checkpoint} can't be continued with other settings or data: " + "; ".join(changed))
        saved, _ = load_calibration(checkpoint)
        if self.adjustment is not None and saved is not None:
            self.adjustment.load_state_dict(saved.state_dict())
        self._bad_steps, self._restored = state["bad_steps"], state
        self.watch.load(state["watch"])
        if self.e_step is not None:
            self.e_step.load(state["e_step"])
        self._window.load(state["window"])

    def _begin(self) -> None:
        """The loop is about to start: measure where the model stands, or put a resumed run's counters back."""
        self.processes.check_same(self._identity(), "the settings or the data")
        self._check_same()
        if self._restored is not None:
            self._restore_logs()
        else:
            self.watch.start()

    def _begin_epoch(self, epoch: int) -> None:
        if self._order is not None:
            self._order.set_epoch(epoch)
        if self.e_step is not None:
            self.e_step.run(epoch, self.state.max_steps - self.state.global_step)

    def _restore_logs(self) -> None:
        """Put the loss counters back, which transformers starts anew, so that a resumed log equals an uninterrupted
        one.
        """
        assert self._restored is not None
        self._tr_loss.fill_(self._restored["tr_loss"])
        self._total_loss_scalar = self._restored["total_loss"]
        self._globalstep_last_logged = self._restored["last_logged"]
        self._initial_global_step = 0
        self._restored = None
