"""What a run is made of: dataclasses, one flat YAML file, and flags; every fault of a configuration is listed at once.

The keys of the file are the flags, and both are the fields of the dataclasses here and of the trainer's ``CalmConfig``
(which has all of transformers' ``TrainingArguments``). Flags win over the file.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from calmtune import checks, schema
from calmtune.config_scoring import EvaluationSettings, SampleSettings, setting

# never written to a run's folder
SECRETS = frozenset({"hub_token"})
BOUNDS = ("low", "high", "below")
FILE_SUFFIXES = (".jsonl", ".csv", ".parquet")
# beside the sections of the model and of scoring: what counts where a model is scored as it is
SCORED_AS_IT_IS = frozenset({
    "output_dir", "template", "system_prompt", "open_prompt", "max_length", "use_cpu", "calibration_sources", "test_id",
    "test_ood", "calibration_limit", "test_limit", "split_seed", "overlap",
})  # fmt: skip


class ConfigError(ValueError):
    """A configuration with faults; the message lists every one of them.

    Args:
        faults: one line each.
        name: the file's, where they are of one.
    """

    def __init__(self, faults: Sequence[str], name: str = "") -> None:
        self.faults = tuple(faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__("\n  - ".join([f"the configuration {name and f'{name} '}has {count}:", *self.faults]))


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is loaded."""

    model_name_or_path: str = setting(
        "smollm2-135m-instruct", "Hub name, local folder, or the built-in name of the packaged model."
    )
    model_revision: str | None = setting(
        None, "Commit, tag or branch of a hub model; give a commit to repeat a run exactly."
    )
    gguf_file: str | None = setting(
        None, "Name of a GGUF file inside the model's repository or folder; loaded dequantised."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting("auto", "Number format of the weights.")
    quantization: Literal["4bit", "8bit"] | None = setting(
        None, "Load the base in 4 or 8 bits with bitsandbytes; needs a CUDA device."
    )
    attn_implementation: Literal["eager", "sdpa"] | None = setting(
        None, "Attention kernel; other kernels cannot keep an item's options apart."
    )
    trust_remote_code: bool = setting(False, "Run Python code that comes with a hub model.")
    chat_template: str | None = setting(None, "Jinja text, in the place of the tokenizer's own chat template.")

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings wherever they are used."""
        if self.quantization is not None and self.gguf_file is not None:
            yield "quantization: a GGUF file is loaded dequantised; set quantization or gguf_file, not both"

    def machine_faults(self) -> Iterator[str]:
        """What this machine lacks for these settings; loads and fetches nothing."""
        if self.quantization is None:
            return
        import torch

        if not torch.cuda.is_available():
            yield (
                f"quantization: {self.quantization} needs a CUDA device and this machine has none; "
                "remove the setting, or run on a machine with a GPU"
            )
        elif importlib.util.find_spec("bitsandbytes") is None:
            yield f"quantization: {self.quantization} needs bitsandbytes; pip install 'calmtune[quant]'"


@dataclass(frozen=True)
class DataSettings:
    """Which rows train, which are held out, and which test.

    A source is a path (.jsonl, .csv, .parquet), ``facts`` or ``facts:DOMAIN+DOMAIN`` (the built-in questions), or
    ``hub:NAME/SPLIT``.
    """

    train_sources: tuple[str, ...] = setting((), "Sources of the training rows.")
    upper_sources: tuple[str, ...] = setting(
        (), "Sources of the upper level's rows; if none, a share of the training rows."
    )
    calibration_sources: tuple[str, ...] = setting(
        (), "Sources that temperatures are fitted on; if none, a share of the training rows."
    )
    test_id: tuple[str, ...] = setting(
        (), "Test sources from the training domain; if none, a share of the training rows."
    )
    test_ood: tuple[str, ...] = setting((), "Test sources from other domains.")
    upper_share: float = setting(0.25, "Share of the training questions held out for the upper level.", low=0, high=1)
    calibration_share: float = setting(0.15, "Share of the training questions held out for calibration.", low=0, high=1)
    test_share: float = setting(0.15, "Share of the training questions held out for the test.", low=0, high=1)
    domain_limit: int | None = setting(
        None, "Most rows of each domain taken from train_sources, before anything is held out.", low=1
    )
    train_limit: int | None = setting(None, "Most training rows; a random subset by split_seed.", low=1)
    upper_limit: int | None = setting(None, "Most rows for the upper level.", low=1)
    calibration_limit: int | None = setting(None, "Most rows for calibration.", low=1)
    test_limit: int | None = setting(None, "Most test rows of each domain.", low=1)
    split_seed: int = setting(0, "Seed of the splits and subsets; a question is always on the same side for a seed.")
    overlap: Literal["error", "drop"] = setting(
        "error", "A question in two splits: stop, or drop it from the one that learns more."
    )

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings; reads no file."""
        if not self.train_sources:
            yield "train_sources: expected at least one source, got none; e.g. train_sources: [questions.jsonl]"
        yield from self.share_faults()
        yield from self.source_faults()

    def scored_faults(self) -> Iterator[str]:
        """What is wrong with these settings where nothing is trained."""
        if not (self.test_id or self.test_ood):
            yield "test_sources: expected at least one source of questions, got none; e.g. --test_sources rows.jsonl"
        yield from self.source_faults()

    def share_faults(self) -> Iterator[str]:
        """What is wrong with the shares that are held out."""
        held_out = sum(share for _, share in self.held_out())
        if held_out >= 1:
            names = ", ".join(f"{name}_share" for name, _ in self.held_out())
            yield f"{names}: together {held_out:g}, which leaves no training rows; make one of them smaller"

    def source_faults(self) -> Iterator[str]:
        """Sources that are none, or are not there."""
        for name in ("train_sources", "upper_sources", "calibration_sources", "test_id", "test_ood"):
            for source in getattr(self, name):
                is_file = source.endswith(FILE_SUFFIXES)
                if is_file and not Path(source).is_file():
                    yield f"{name}: there is no file {source} (looked in {Path.cwd()})"
                elif not is_file and not source.startswith("hub:") and source.partition(":")[0] != "facts":
                    kinds = f"a {', '.join(FILE_SUFFIXES)} file, facts[:DOMAIN+DOMAIN] or hub:NAME/SPLIT"
                    yield f"{name}: expected {kinds}, got {source!r}"

    def held_out(self) -> tuple[tuple[str, float], ...]:
        """The splits that are cut from the training rows, having no sources of their own, with their shares."""
        cut = (
            ("upper", self.upper_sources, self.upper_share),
            ("calibration", self.calibration_sources, self.calibration_share),
            ("test", self.test_id, self.test_share),
        )
        return tuple((name, share) for name, sources, share in cut if not sources and share > 0)


@dataclass(frozen=True)
class LoraSettings:
    """The adapter, by PEFT's names."""

    use_peft: bool = setting(True, "Train a LoRA adapter; false trains all weights.")
    lora_r: int = setting(16, "Rank.", low=1)
    lora_alpha: int = setting(32, "Scale; the update is multiplied by lora_alpha / lora_r.", low=1)
    lora_dropout: float = setting(0.0, "Dropout before the adapter while training.", low=0, below=1)
    lora_target_modules: str | tuple[str, ...] = setting("all-linear", "Names of the layers that get an adapter.")
    use_rslora: bool = setting(False, "Scale by lora_alpha / sqrt(lora_r) instead.")

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings."""
        if self.lora_target_modules in ((), ""):
            yield "lora_target_modules: expected names of layers or all-linear, got nothing"
        elif isinstance(self.lora_target_modules, str):
            try:
                re.compile(self.lora_target_modules)
            except re.error as error:
                yield (
                    f"lora_target_modules: {self.lora_target_modules!r} is no regular expression ({error}); "
                    "for names of layers give a list, e.g. [q_proj, v_proj]"
                )


SECTIONS = {
    "model": ModelSettings, "data": DataSettings, "lora": LoraSettings, "evaluation": EvaluationSettings,
    "sampling": SampleSettings,
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """A whole, checked configuration.

    Args:
        model, data, lora, evaluation, sampling: the sections.
        training: every argument of the trainer's ``CalmConfig`` by name, defaults included.
    """

    model: ModelSettings
    data: DataSettings
    lora: LoraSettings
    evaluation: EvaluationSettings
    sampling: SampleSettings
    training: Mapping[str, Any]

    @property
    def output_dir(self) -> Path:
        """The run's folder."""
        return Path(self.training["output_dir"])

    def training_arguments(self) -> Any:
        """The trainer's ``CalmConfig``."""
        return _training_class()(**self.training)

    def values(self) -> dict[str, Any]:
        """Every setting by its key, in the order of the sections."""
        flat: dict[str, Any] = {}
        for name in SECTIONS:
            flat |= {
                item.name: getattr(getattr(self, name), item.name) for item in dataclasses.fields(getattr(self, name))
            }
        return flat | dict(self.training)


@dataclass(frozen=True)
class Setting:
    """One key: where it belongs, its type, default, description and range."""

    section: str
    hint: Any
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    below: float | None = None


def settings() -> dict[str, Setting]:
    """Every key that a configuration may have. Imports transformers, for the trainer's."""
    known: dict[str, Setting] = {}
    for section, cls in (*SECTIONS.items(), ("training", _training_class())):
        hints = typing.get_type_hints(cls)
        for item in dataclasses.fields(cls):
            if not item.init:
                continue
            if item.name in known:
                raise AssertionError(f"the key {item.name!r} is defined by {known[item.name].section} and by {section}")
            default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
            default = default.value if isinstance(default, enum.Enum) else default
            bounds = {**{name: item.metadata.get(name) for name in BOUNDS}, **checks.RANGES.get(item.name, {})}
            known[item.name] = Setting(section, hints[item.name], default, str(item.metadata.get("help", "")), **bounds)
    return known


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """Read, type and check a configuration. No model or data is loaded or fetched.

    Args:
        path: YAML file, or None for flags alone.
        overrides: flags, ``--key value`` or ``--key=value``; they win over the file.

    Returns:
        The configuration with every default filled in.

    Raises:
        ConfigError: lists every fault: broken syntax, unknown and repeated keys, wrong types, values out of range, and
            settings that contradict each other or the machine.
        FileNotFoundError: there is no such file.
    """
    entries: dict[str, schema.Value] = {}
    faults: list[str] = []
    if path is not None:
        file = Path(path)
        if not file.is_file():
            raise FileNotFoundError(f"there is no configuration file {file} (looked in {Path.cwd()})")
        entries, faults = schema.read_yaml(schema.read_text(file), str(path))
    flags, flag_faults = schema.read_flags(overrides)
    return build_config({**entries, **flags}, [*faults, *flag_faults], name="" if path is None else str(path))


def save_config(config: RunConfig, path: str | Path) -> None:
    """Write every setting, defaults included, so that the file loads to an equal configuration.

    Settings that are null by default and were left so are not written, and neither are access tokens.
    """
    known = settings()
    inherited = {item.name for base in _training_class().__bases__ for item in dataclasses.fields(base)}
    blocks: dict[str, dict[str, Any]] = {name: {} for name in (*SECTIONS, "training", "training, as in transformers")}
    for key, value in config.values().items():
        if key in SECRETS or (value is None and known[key].default is None):
            continue
        section = known[key].section
        blocks["training, as in transformers" if section == "training" and key in inherited else section][key] = value
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(f"# {name}\n{schema.write_yaml(values)}" for name, values in blocks.items())
    Path(path).write_text(text, encoding="utf-8")


def load_scoring_config(overrides: Sequence[str]) -> RunConfig:
    """Flags for a model that is scored as it is, without training; settings of training are refused.

    Raises:
        ConfigError: lists every fault.
    """
    flags, faults = schema.read_flags(overrides)
    known = settings()
    scored = {key for key, one in known.items() if one.section in ("model", "evaluation", "sampling")} | SCORED_AS_IT_IS
    faults += [
        f"{value.where}: {key} belongs to training, and this model is scored as it is; leave it out"
        for key, value in flags.items()
        if key in known and key not in scored
    ]
    return build_config(flags, faults, trains=False)


def build_config(
    entries: Mapping[str, schema.Value],
    earlier: Sequence[str] = (),
    *,
    name: str = "",
    machine: bool = True,
    trains: bool = True,
) -> RunConfig:
    """Type and check settings that were read already.

    Args:
        entries: the settings by key, as read.
        earlier: faults that were found while they were read; they are listed first.
        name: the file's, for the message.
        machine: also check that this machine can do it; false to look at settings meant for another one.
        trains: false for a model that is only scored, which needs no rows to train on.

    Raises:
        ConfigError: lists every fault.
    """
    known = settings()
    faults = list(earlier)
    typed: dict[str, Any] = {}
    for key, value in entries.items():
        if key not in known:
            faults.append(f"{value.where}: there is no setting {key!r}{schema.nearest(key, known)}")
            continue
        try:
            typed[key] = schema.convert(value, known[key].hint)
        except ValueError as error:
            faults.append(f"{value.where}: {key}: {error}")
            continue
        bounds = {name: getattr(known[key], name) for name in BOUNDS}
        outside = [f"{value.where}: {fault}" for fault in checks.range_faults(key, typed[key], **bounds)]
        if outside:
            faults.extend(outside)
            del typed[key]  # the checks below are of other things, and would find the same again
    faults.extend(checks.folder_faults(entries, typed))
    parts: dict[str, Any] = {}
    for section, cls in SECTIONS.items():
        parts[section] = cls(**{key: typed[key] for key in typed if known[key].section == section})
        one = parts[section]
        faults.extend(one.scored_faults() if isinstance(one, DataSettings) and not trains else one.faults())
    training = {key: typed.get(key, setting.default) for key, setting in known.items() if setting.section == "training"}
    config = RunConfig(**parts, training=training)
    # transformers refuses number formats that a missing GPU would have; said to be for the CPU, it accepts them
    elsewhere = config if machine else replace(config, training={**config.training, "use_cpu": True})
    faults.extend(_cross_faults(elsewhere))
    if machine:
        faults.extend(config.model.machine_faults())
    if faults:
        raise ConfigError(faults, name)
    return config


def _cross_faults(config: RunConfig) -> Iterator[str]:
    """Faults between sections, and those that the trainer's own arguments find in themselves."""
    if config.model.quantization and not config.lora.use_peft:
        yield "use_peft: a quantised base cannot be trained itself; set use_peft: true"
    yield from checks.template_faults(config.model.chat_template, config.training["template"])
    if config.training["deepspeed"]:
        # said here, because transformers gives up at it where it is not installed, and would hide the other faults
        yield (
            "deepspeed: not supported, because ZeRO hides the gradients that lambda is made of; "
            "use accelerate without it"
        )
    try:
        replace(config, training={**config.training, "deepspeed": None}).training_arguments()
    except (ValueError, ImportError) as error:
        yield from str(error).splitlines()


def _training_class() -> Any:
    """The trainer's arguments, imported late: they bring transformers."""
    from calmtune.training.arguments import CalmConfig

    return CalmConfig
