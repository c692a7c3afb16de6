"""CalmTrainer: transformers' Trainer with the bilevel step in the place of loss.backward().

Batches go in, gradients come out. One optimizer step is computed at once, over all its micro-batches, because lambda is
not linear in them: :meth:`CalmTrainer.training_step` waits for the last micro-batch and then runs the method's step,
which leaves the joint direction in ``.grad`` of theta and of alpha.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, Trainer, set_seed
from transformers.trainer_utils import rotate_checkpoints

from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.methods.calm import calm_step
from calmtune.methods.sft import sft_gradient
from calmtune.modeling.calibration_files import load_calibration, save_calibration, write_json
from calmtune.modeling.loading import describe_base
from calmtune.modeling.reading import check_readable, eval_mode
from calmtune.training.arguments import CalmConfig
from calmtune.training.callbacks import StepHooks
from calmtune.training.checkpoint import STATE_FILE, differences, last_complete_checkpoint, read_state, run_identity
from calmtune.training.datasets import Collator, as_rows, choose_level, encode, fingerprint, refuse_overlap
from calmtune.training.levels import Sums, letter_summary
from calmtune.training.optimizer import PairedOptimizer
from calmtune.training.passes import BatchPass, NonFiniteError, assign_gradients
from calmtune.training.setup import make_adjustment, make_level
from calmtune.training.streams import EpochSampler, batch_at, micro_batches
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
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: Any | None = None,
        model_name: str | None = None,
        model_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        if processing_class is None:
            raise ValueError("processing_class is missing: give the model's tokenizer")
        if args.n_gpu > 1 or args.world_size > 1:
            raise ValueError(
                f"{args.world_size} processes and {args.n_gpu} GPUs a process found, but one process on one device is "
                "what is supported so far; set CUDA_VISIBLE_DEVICES to one device and start one process"
            )
        unread = [key for key in ("compute_loss_func", "compute_metrics") if kwargs.get(key) is not None]
        if unread:
            raise ValueError(
                f"{', '.join(unread)}: not supported, since losses are computed by the method and the level"
            )
        name = model_name or str(getattr(getattr(model, "config", None), "_name_or_path", ""))
        self.base_description = describe_base(model, name, model_revision)
        if peft_config is not None:
            from peft import PeftModel, get_peft_model

            if isinstance(model, PeftModel):
                raise ValueError("the model already has adapters; give either such a model or a peft_config, not both")
            set_seed(args.seed)  # an adapter starts from random numbers
            model = get_peft_model(model, peft_config)  # type: ignore[arg-type]
        style = PromptStyle(args.scoring, args.template, args.system_prompt)
        self.renderer = Renderer(processing_class, style)
        train_rows = as_rows(train_dataset, "train_dataset")
        held_out = list(upper_dataset or ())
        upper_rows = as_rows(held_out, "upper_dataset") if held_out or args.method == "calm" else []
        level_name = choose_level(args.level, [*train_rows, *upper_rows])
        self.level_name = level_name
        train, self.upper_examples = self._encode(train_rows, args), self._encode(upper_rows, args)
        if args.method == "calm":
            refuse_overlap(train_rows, upper_rows, train, self.upper_examples)
        evaluation = None if eval_dataset is None else self._encode(as_rows(eval_dataset, "eval_dataset"), args)
        self.level = make_level(args, level_name, [*train, *self.upper_examples, *(evaluation or ())])
        if args.device.type == "cpu":
            args.dataloader_pin_memory = False  # there is nothing to pin for, and torch would say so at every start
        pad_id = processing_class.pad_token_id if processing_class.pad_token_id is not None else 0
        super().__init__(
            model=model,  # type: ignore[arg-type]
            args=args,
            data_collator=Collator(pad_id),
            train_dataset=train,  # type: ignore[arg-type]
            eval_dataset=evaluation,  # type: ignore[arg-type]
            processing_class=processing_class,
            **kwargs,
        )
        self.adjustment = make_adjustment(args, self.level, self.model)
        if args.method == "calm":
            # other bilevel tools differentiate twice, which many attention kernels can't
            logger.info(
                "bilevel solver: first order (BOME); no second derivative is taken, so any attention kernel will do"
            )
        self.data_identity = {"train": fingerprint(train), "upper": fingerprint(self.upper_examples)}
        self._pending: list[Any] = []
        self._seen = 0
        self._bad_steps = 0
        self._fatal: str | None = None
        self._window = LogWindow()
        self._restored: dict[str, Any] | None = None
        self.add_callback(StepHooks(on_begin=self._restore_logs, adjustment=self.adjustment))

    # ---- set-up ------------------------------------------------------------------------------------------------------

    def _encode(self, rows: list[Any], args: CalmConfig) -> list[Any]:
        return encode(rows, self.renderer, self.level_name, args.max_length)

    def _theta(self) -> list[Tensor]:
        return [p for p in self.model.parameters() if p.requires_grad]

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

    # ---- one step ----------------------------------------------------------------------------------------------------

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], None]:
        """The micro-batches of one optimizer step, remembered so that the step sees them all at once."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._pending, self._seen = batches, 0
        return batches, None

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Nothing until the last micro-batch, then the whole step; returns the lower loss, nats."""
        self._seen += 1
        if self._seen < len(self._pending):
            return torch.zeros((), device=self.args.device)
        model.train()
        batches = [self._prepare_inputs(batch) for batch in self._pending]
        if self.state.global_step == 0:
            check_readable(self.model, batches[0])
        try:
            value = self._step(batches)
        except FloatingPointError as error:
            value = self._refuse_step(str(error), batches)
        return torch.tensor(value, device=self.args.device)

    def _step(self, batches: list[Any]) -> float:
        """Run the method; leaves the direction in the gradients of theta and alpha."""
        theta, args, step = self._theta(), self.args, self.state.global_step
        lower = self._pass(theta, batches, upper=False, logs=None)
        if args.method == "sft":
            value, gradients = sft_gradient(lower)
            assign_gradients(theta, gradients)
            self._window.add({"lower_loss": value})
            return value
        sums: Sums | None = {} if self._logs_next() else None
        upper = self._pass(theta, self._upper_batches(step), upper=True, logs=sums)
        result = calm_step(
            theta,
            lower,
            upper,
            eta=args.eta,
            barrier=args.barrier,
            inner_steps=args.inner_steps,
            inner_learning_rate=args.inner_learning_rate,
            upper_gradient=args.upper_gradient,
        )
        if step == 0 and result.bome.upper_norm == 0 and args.entropy_target is None:
            raise ValueError(
                "the entropy has no gradient at the first step, so nothing would be calibrated; does anything that it "
                "depends on require gradients (adapters on, adjustment other than none)?"
            )
        alpha = () if self.adjustment is None else tuple(self.adjustment.parameters())
        assign_gradients(theta, result.theta)
        assign_gradients(alpha, result.alpha)
        self._window.add({"lower_loss": result.lower, "upper_loss": result.upper, **result.bome.logs()})
        if sums is not None:
            self._window.set({name: total / count for name, (total, count) in sums.items()})
        return result.lower

    def _pass(self, theta: list[Tensor], batches: list[Any], *, upper: bool, logs: Sums | None) -> BatchPass:
        alpha = [] if self.adjustment is None else list(self.adjustment.parameters())
        seed = (self.args.seed * 1_000_003 + 2 * self.state.global_step + upper) % 2**63
        loss = partial(self.level.upper, logs=logs) if upper else self.level.lower
        count = self.level.upper_count if upper else self.level.lower_count

        def total(batch: Any, theta_gradient: bool) -> Tensor:
            with self.accelerator.autocast():
                return loss(self.model, batch, self.adjustment, theta=theta_gradient)

        name = "upper" if upper else "lower"
        return BatchPass(name, batches, total, sum(map(count, batches)), theta, alpha, seed, self.args.device)

    def _upper_batches(self, step: int) -> list[Any]:
        args = self.args
        size = args.upper_batch_size or args.per_device_train_batch_size * args.gradient_accumulation_steps
        indices = batch_at(step, size, len(self.upper_examples), args.seed)
        pieces = micro_batches(
            [self.upper_examples[i] for i in indices], args.upper_micro_batch_size or args.per_device_train_batch_size
        )
        return [self._prepare_inputs(self.data_collator(piece)) for piece in pieces]

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
        ids = [identity for batch in batches for identity in batch["ids"]]
        message = f"step {self.state.global_step + 1} skipped: {reason}; its lower batch was {ids}"
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
        """Mean cross-entropy, nats, over everything that counts in a data set: adjusted (``eval_loss``) and raw.

        Raises:
            ValueError: there is no data set.
        """
        examples = self.eval_dataset
        if eval_dataset is not None:
            examples = self._encode(as_rows(eval_dataset, "eval_dataset"), self.args)
        if examples is None:
            raise ValueError("evaluate: give eval_dataset here or to the trainer")
        sums, count = {"loss": 0.0, "loss_raw": 0.0}, 0
        with eval_mode(self.model):
            for piece in self.get_eval_dataloader(examples):  # type: ignore[arg-type]
                batch = self._prepare_inputs(piece)
                count += self.level.lower_count(batch)
                for name, adjustment in (("loss", self.adjustment), ("loss_raw", None)):
                    with self.accelerator.autocast():
                        sums[name] += self.level.lower(self.model, batch, adjustment, theta=False).item()
        metrics = {f"{metric_key_prefix}_{name}": total / count for name, total in sums.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # ---- logs --------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """transformers' record, with means over the logging window and the state of alpha."""
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
            "decision": None,
        }

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
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
        return run_identity(self.args.to_dict(), self.data_identity, self.base_description, adapters)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        run = Path(self._get_output_dir(trial=trial))
        state = {
            "identity": self._identity(),
            "bad_steps": self._bad_steps,
            "window": self._window.state(),
            "tr_loss": self._tr_loss.item(),
            "total_loss": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
        }
        # written last: its presence says that the checkpoint is whole, and only then may older ones go
        write_json(run / f"checkpoint-{self.state.global_step}" / STATE_FILE, state)
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
        self._window.load(state["window"])

    def _restore_logs(self) -> None:
        """Put the loss counters back, which transformers starts anew, so that a resumed log equals an uninterrupted
        one.
        """
        if self._restored is None:
            return
        self._tr_loss.fill_(self._restored["tr_loss"])
        self._total_loss_scalar = self._restored["total_loss"]
        self._globalstep_last_logged = self._restored["last_logged"]
        self._initial_global_step = 0
        self._restored = None
