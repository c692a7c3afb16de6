"""The recipes of the paper's four models, held against their architectures and their real tokenizers."""

import json
import re

import pytest
import torch
import yaml

import paper_models
from calmtune.cli.folder import RunFolder
from calmtune.cli.main import main
from calmtune.config import ConfigError, load_config
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import Instruction, MultipleChoice
from calmtune.modeling.calibrated import CalmModel
from calmtune.modeling.loading import load_model, load_tokenizer
from calmtune.predictions import load_predictions
from paper_models import MISTRAL_INSTRUCT, MISTRAL_SPACED, MODELS, OLMO_2, TULU_3, VICUNA

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ROW = MultipleChoice("q", "Which is a gas?", ("iron", "neon", "salt"), 1, "near")
TURNS = Instruction("i", (("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")), "See you", "near")
ASKED = "Question: Which is a gas?\nA. iron\nB. neon\nC. salt\nAnswer:"
SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
# the text of a question with its letter, and of a conversation, with the special tokens that are in it
EXPECTED = {
    TULU_3: (
        f"<|begin_of_text|><|user|>\n{ASKED}\n<|assistant|>\nB",
        "<|begin_of_text|><|user|>\nHi\n<|assistant|>\nHello<|end_of_text|>\n<|user|>\nBye\n<|assistant|>\n"
        "See you<|end_of_text|>",
    ),
    VICUNA: (
        f"<s>{SYSTEM} USER: {ASKED} ASSISTANT: B",
        f"<s>{SYSTEM} USER: Hi ASSISTANT: Hello</s>USER: Bye ASSISTANT: See you</s>",
    ),
    OLMO_2: (
        f"<|endoftext|><|user|>\n{ASKED}\n<|assistant|>\nB",
        "<|endoftext|><|user|>\nHi\n<|assistant|>\nHello<|endoftext|>\n<|user|>\nBye\n<|assistant|>\n"
        "See you<|endoftext|>",
    ),
    MISTRAL_INSTRUCT: (
        f"<s>[INST] {ASKED} [/INST]B",
        "<s>[INST] Hi [/INST]Hello</s>[INST] Bye [/INST]See you</s>",
    ),
}
# the token of the letter B where it is read, and the padding's
LETTERS = {TULU_3: "B", VICUNA: "▁B", OLMO_2: "B", MISTRAL_INSTRUCT: "B"}
PADS = {TULU_3: "<pad>", VICUNA: "<unk>", OLMO_2: "<|pad|>", MISTRAL_INSTRUCT: "</s>"}
MACHINE = ["--quantization", "null", "--bf16", "false", "--use_cpu", "true"]


def name(model):
    return model.recipe


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Each model's folder, made when it is first asked for."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def folder(model):
        if model not in made:
            made[model] = model.write(root / model.recipe)
        return made[model]

    return folder


def renderer_of(model, folder):
    config = load_config(model.path, ["--train_sources", "facts", "--output_dir", "out", *MACHINE])
    tokenizer = load_tokenizer(str(folder), chat_template=config.model.chat_template)
    how = config.training
    return Renderer(tokenizer, PromptStyle(how["scoring"], how["template"], how["system_prompt"]))


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_the_rendered_text_is_the_model_s_own_format(model, folders):
    renderer = renderer_of(model, folders(model))
    question, conversation = renderer.gold_sequence(ROW), renderer.instruction(TURNS)
    decode = renderer.tokenizer.decode
    # SentencePiece decoders write the space that encoding put after a special token
    texts = [re.sub(r"(<s>|</s>) ", r"\1", decode(one.input_ids)) for one in (question, conversation)]
    assert tuple(texts) == EXPECTED[model]
    answer = decode(conversation.input_ids[conversation.answer_start :]).strip()
    assert answer == f"See you{renderer.tokenizer.eos_token}"


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_one_bos_and_distinct_single_letters_where_the_answer_is_read(model, folders):
    renderer = renderer_of(model, folders(model))
    tokenizer = renderer.tokenizer
    twenty_six = MultipleChoice("q", "Which?", tuple(f"option {n}" for n in range(26)), 1, "near")
    item = renderer.multiple_choice(twenty_six)
    assert item.scoring == "letter"
    assert len({ids[0] for ids in item.option_ids}) == 26
    assert all(len(ids) == 1 for ids in item.option_ids)
    assert tokenizer.convert_ids_to_tokens(item.option_ids[1]) == [LETTERS[model]]
    assert item.prompt_ids[0] == tokenizer.bos_token_id
    assert item.prompt_ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in item.prompt_ids[1:]
    assert tokenizer.pad_token == PADS[model]


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_the_rules_of_the_tokenizer_s_own_file_are_in_force(model, folders):
    """A class name in tokenizer_config.json must not bring other rules than tokenizer.json has.

    What begins with a space or follows a special token is left out: there Llama tokenizers differ by their `legacy`.
    """
    from tokenizers import Tokenizer

    file = Tokenizer.from_file(str(paper_models.TOKENIZERS / model.tokenizer / "tokenizer.json"))
    tokenizer = load_tokenizer(str(folders(model)))
    texts = ("In  1969?\nHe's 12345 m — naïve 中文", "A.\n\nB", "x=1;\n\ty")
    for text in texts:
        ours = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ours == file.encode(text, add_special_tokens=False).ids, text


def test_a_template_with_a_space_before_the_answer_moves_the_letters(tmp_path):
    folder = MISTRAL_INSTRUCT.write(tmp_path / "spaced", chat_template=MISTRAL_SPACED)
    item = renderer_of(MISTRAL_INSTRUCT, folder).multiple_choice(ROW)
    tokens = load_tokenizer(str(folder)).convert_ids_to_tokens
    assert [tokens(ids[0]) for ids in item.option_ids] == ["▁A", "▁B", "▁C"]
    assert tokens(item.prompt_ids[-1]) == "]"


def test_a_template_without_a_system_role_says_so(folders):
    tokenizer = load_tokenizer(str(folders(MISTRAL_INSTRUCT)))
    renderer = Renderer(tokenizer, PromptStyle("letter", "chat", "Be brief."))
    with pytest.raises(ValueError, match="the chat template refused a conversation of roles"):
        renderer.multiple_choice(ROW)


def write_questions(path, count=48):
    rows = [
        {"id": f"r{n}", "question": f"Which number is {n}?", "choices": [str(n), str(n + 1), str(n + 2)], "label": 0}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def words_of(model, folder, tmp_path):
    """The recipe with what a run on this machine needs."""
    questions = write_questions(tmp_path / "questions.jsonl")
    return [
        str(model.path), "--model_name_or_path", str(folder), "--train_sources", str(questions),
        "--output_dir", str(tmp_path / "run"), *MACHINE,
    ]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_inspect_shows_what_the_model_will_see(model, folders, tmp_path, capsys):
    assert main(["inspect", *words_of(model, folders(model), tmp_path)]) == 0
    said = capsys.readouterr().out
    bos = load_tokenizer(str(folders(model))).bos_token
    # Mistral's template writes one too, which is not doubled
    ending = ", written by the chat template" if model is OLMO_2 else ""
    assert f"level vocabulary, scoring letter, template chat, one BOS in front: yes, {bos!r}{ending}\n" in said
    # the gold letter is A throughout, and it alone carries loss
    answer = LETTERS[model].replace("B", "A")
    masks = re.findall(r"loss mask .* x 0 \(prompt\), (\d+) x 1 \(answer\)", said)
    assert set(masks) == {"1"}
    assert re.search(rf"loss 1  id \d+ +{answer!r}\n", said)
    assert "scored as letter;" in said


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_three_steps_saved_loaded_and_scored_again(model, folders, tmp_path):
    folder = folders(model)
    words = [*words_of(model, folder, tmp_path), "--max_steps", "3", "--lora_r", "2", "--n_resamples", "20"]
    words += ["--gradient_accumulation_steps", "1", "--alpha_learning_rate", "10", "--disable_tqdm", "true"]
    assert main(["train", *words, "--traceback"]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--traceback"]) == 0
    run = RunFolder(tmp_path / "run")
    tuned = CalmModel.from_pretrained(run.path)  # the base and its tokenizer by their names
    adapted = {key.split(".lora_A.")[0].split(".")[-1] for key in tuned.model.state_dict() if ".lora_A." in key}
    assert adapted == set(load_config(run.config, MACHINE).lora.lora_target_modules)
    assert tuned.adjustment.num_classes == tuned.model.config.vocab_size
    stored = load_predictions(run.predictions("tuned", "test"))
    renderer = Renderer(tuned.tokenizer, PromptStyle("letter", "chat"))
    assert renderer.settings() == tuned.settings["prompt"]
    question, choices = run.read_items()[stored.ids[0]]
    item = renderer.multiple_choice(MultipleChoice("x", question, tuple(choices), 0, "near"))
    both = tuned.next_token(torch.tensor([item.prompt_ids]))
    letters = [ids[0] for ids in item.option_ids]
    for found, expected in ((both.raw, stored.logits()), (both.adjusted, stored.logits(adjusted=True))):
        assert torch.log_softmax(found[0, letters], 0).tolist() == pytest.approx(
            torch.log_softmax(torch.tensor(expected[0]), 0).tolist(), abs=1e-4
        )
    assert (stored.logits() != stored.logits(adjusted=True)).any()
    # their heads have no bias, so the shift goes where `generate` reads it
    assert main(["merge", str(run.path), "--use", "adjusted", "--shift", "generation", "--traceback"]) == 0
    merged, tokenizer = load_model(str(run.path / "merged"), device="cpu")
    assert not hasattr(merged, "peft_config")
    assert Renderer(tokenizer, PromptStyle("letter", "chat")).prompt(ROW).prompt_ids == renderer.prompt(ROW).prompt_ids


def test_a_recipe_s_chat_template_takes_the_place_of_the_tokenizer_s(folders):
    folder = folders(VICUNA)
    template = load_config(
        VICUNA.path, ["--train_sources", "facts", "--output_dir", "out", *MACHINE]
    ).model.chat_template
    _, tokenizer = load_model(str(folder), device="cpu", chat_template=template)
    assert tokenizer.chat_template == template
    assert load_tokenizer(str(folder)).chat_template is None
    with pytest.raises(ValueError, match="the tokenizer has no chat template"):
        Renderer(load_tokenizer(str(folder)), PromptStyle("letter", "chat"))


@pytest.mark.parametrize(
    ("template", "style", "message"),
    [
        ("vicuna.jinja", "chat", "expected a Jinja template of `messages`, got a text without that word"),
        ("{% for m in messages %}", "chat", "chat_template: line 1: Unexpected end of template"),
        ("{{ messages }}", "plain", "template is plain, which uses none"),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_refused_early(template, style, message):
    words = ["--train_sources", "facts", "--output_dir", "out", "--chat_template", template, "--template", style]
    words[5] = json.dumps(template)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(None, words)


def test_the_suites_of_the_paper_have_the_recipes_models():
    root = paper_models.ROOT / "configs" / "paper"
    recipes = {}
    for model in MODELS:
        recipe = yaml.safe_load(model.path.read_text(encoding="utf-8"))
        keys = ("model_name_or_path", "chat_template", "template")
        recipes[recipe["model_name_or_path"]] = {key: recipe.get(key) for key in keys}
    for name in ("ood_mcqa", "id_mcqa", "ablations"):
        shared = yaml.safe_load((root / "common.yaml").read_text(encoding="utf-8"))
        suite = yaml.safe_load((root / f"{name}.yaml").read_text(encoding="utf-8"))
        for entry in suite["models"].values():
            merged = {"chat_template": None, **{"template": shared["template"]}, **entry}
            assert merged == recipes[entry["model_name_or_path"]], name
