"""Tiny random models and hand-made tokenizers for tests, built in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<|user|>", "<|end|>", "<|bot|>")
WORDS = (
    "Question",
    "Answer",
    "A",
    "B",
    "C",
    "D",
    "E",
    "what",
    "is",
    "the",
    "sky",
    "sea",
    "blue",
    "green",
    "red",
    "deep",
)
# turns as "<|user|> text<|end|>", without a BOS; CHAT_WITH_BOS writes one itself
CHAT = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|bot|>{% else %}<|user|>{% endif %}"
    "{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}"
)
CHAT_WITH_BOS = "{{ bos_token }}" + CHAT


def word_tokenizer(
    words: Sequence[str] = WORDS,
    *,
    adds_bos: bool = False,
    chat_template: str | None = None,
    pieces: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words, where "word" and " word" are different tokens.

    Args:
        words: known words, each with and without a space before it.
        adds_bos: whether plain encoding puts ``<s>`` in front.
        chat_template: a Jinja template, or None.
        pieces: texts that are one token wherever they occur, even across words (": B").
    """
    vocabulary = [*SPECIALS, "\n", " ", ":", ".", "?", *words, *(f" {word}" for word in words), *pieces]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    escaped = [*(piece.replace(".", r"\.") for piece in pieces), r" ?[^\W_]+", r"[\s\S]"]
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(escaped)), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", SPECIALS.index("<s>"))]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<|user|>", "<|end|>", "<|bot|>"],
    )
    fast.chat_template = chat_template
    return fast


def tiny_llama(
    vocab: int = 64, seed: int = 0, *, layers: int = 2, hidden: int = 32, **config: object
) -> LlamaForCausalLM:
    """A random Llama in float32 and eval mode, with weights large enough for clearly unequal logits."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=3,
            **config,
        )
    ).eval()


def tiny_gpt2(
    vocab: int = 64, seed: int = 0, *, layers: int = 2, hidden: int = 32, **config: object
) -> GPT2LMHeadModel:
    """A random GPT-2 (learned absolute positions) in float32 and eval mode; dropout 0.1 in train mode."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocab,
            n_embd=hidden,
            n_layer=layers,
            n_head=4,
            n_positions=256,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=3,
            **config,
        )
    ).eval()
