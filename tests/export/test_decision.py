"""decision.json: the template writes the run's own prompts token by token, and the pipeline's softmax is the run's."""

import pytest
import torch
from jinja2 import Template
from transformers.decision import DecisionConfig

import export_run
import tiny
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.export.decision import (
    decision_config,
    decision_template,
    labels_of,
    more_labels,
    probabilities_of,
    refuse_undecidable,
    request_of,
    total_temperature,
)
from calmtune.export.use import Use
from calmtune.report.scaling import Vector

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = (*tiny.WORDS, *LETTERS[5:])
ROWS = [
    MultipleChoice("plain", "what is the sky?", ("blue", "green"), 0, "d"),
    MultipleChoice("spaces", "what  is\nthe sea? ", (" deep", "red ", "the sea"), 1, "d"),
    MultipleChoice("quotes", 'is "the sky" {{ blue }} \\n {% red %}?', ("it's", '"so"', "{{ x }}", "é 😀"), 2, "d"),
    MultipleChoice("control", "what is <|end|> the sky?", ("<|user|>", "blue"), 0, "d"),
]
TOKENIZERS = {
    "plain": {"chat_template": None},
    "plain with BOS": {"chat_template": None, "adds_bos": True},
    "chat": {"chat_template": tiny.CHAT},
    "chat that writes BOS": {"chat_template": tiny.CHAT_WITH_BOS, "adds_bos": True},
    "chat without BOS, where text has one": {"chat_template": tiny.CHAT, "adds_bos": True},
    "chat with odd characters": {"chat_template": '{{ "sky \\\\ é😀\\n" }}' + tiny.CHAT},
}


def config_of(renderer, tokenizer, tmp_path):
    """As it is read back from disk."""
    known = [ids[0] for ids in renderer.multiple_choice(ROWS[0]).option_ids]
    labels = more_labels(tokenizer, labels_of(tokenizer, known))
    decision_config(labels, 1.5, decision_template(renderer), None).save_pretrained(tmp_path)
    return DecisionConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("system", [None, "the sea is deep"])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_template_writes_the_renderers_tokens(name, system, tmp_path):
    tokenizer = tiny.word_tokenizer(WORDS, **TOKENIZERS[name])
    renderer = Renderer(tokenizer, PromptStyle("letter", system_prompt=system))
    items = [renderer.multiple_choice(row) for row in ROWS[:3]]  # before the pipeline adds its marks to the vocabulary
    config = config_of(renderer, tokenizer, tmp_path)
    for row, item in zip(ROWS, items, strict=False):
        ((inputs, (question,)),) = config.prepare_inputs(request_of(row), tokenizer)
        assert inputs["input_ids"][0].tolist() == item.prompt_ids, row.id
        assert inputs["marks"].tolist() == [len(item.prompt_ids)]
        ids = tokenizer(question.labels, add_special_tokens=False)["input_ids"]
        assert ids == item.option_ids


def test_control_tokens_of_a_question_are_text_to_the_pipeline(tmp_path):
    """Our own prompts keep them as they are written; the pipeline never lets a request write one."""
    tokenizer = tiny.word_tokenizer(WORDS, chat_template=tiny.CHAT)
    renderer = Renderer(tokenizer, PromptStyle("letter"))
    config = config_of(renderer, tokenizer, tmp_path)
    ((inputs, _),) = config.prepare_inputs(request_of(ROWS[3]), tokenizer)
    ends = (inputs["input_ids"] == tokenizer.convert_tokens_to_ids("<|end|>")).sum()
    assert ends == 1


def test_state_descriptions_and_the_other_types_of_question(tmp_path):
    tokenizer = tiny.word_tokenizer(WORDS)
    config = config_of(Renderer(tokenizer, PromptStyle("letter")), tokenizer, tmp_path)

    def render(state, **question):
        types = {"labels": ["A", "B"], "instructions": None, "descriptions": [None, None]}
        return Template(config.chat_template).render(state=state, question={**types, **question})

    choice = render(
        "the sea", type="choice", options=["blue", "red"], instructions="what is it?", descriptions=[None, "so"]
    )
    assert choice == "Question: the sea\n\nwhat is it?\nA. blue\nB. red: so\nAnswer:"
    score = render("the sea", type="score", options=["0", "1"], descriptions=["green", "deep"])
    assert score == "Question: the sea\nA. green\nB. deep\nAnswer:"
    noul = render({"sky": 1}, type="noul", options=["true", "false"], instructions="is it?", descriptions=[None, "red"])
    assert noul == 'Question: {"sky": 1}\n\nis it?\nA. true\nB. red\nAnswer:'


def test_one_temperature_for_every_type_and_two_labels_for_yes_and_no(tmp_path):
    tokenizer = tiny.word_tokenizer(WORDS)
    config = config_of(Renderer(tokenizer, PromptStyle("letter")), tokenizer, tmp_path)
    assert config.temperature == {"choice": 1.5, "score": 1.5, "noul": 1.5}
    assert [label.strip() for label in config.labels["noul"]] == ["A", "B"]
    assert [label.strip() for label in config.labels["choice"]] == list(LETTERS)


def test_labels_stop_where_a_letter_is_no_token_of_its_own():
    tokenizer = tiny.word_tokenizer()  # knows A to E; the rest is one unknown token
    assert more_labels(tokenizer, [" A", " B"]) == [" A", " B", " C", " D", " E"]


def test_a_letter_that_no_text_becomes():
    tokenizer = tiny.word_tokenizer(WORDS)
    token = tokenizer.unk_token_id  # decodes to "<unk>", and neither "A" nor " A" becomes it
    tokenizer.add_special_tokens({"unk_token": "<other>"})
    with pytest.raises(ValueError, match=f"the letter B is the token {len(tokenizer) + 5} "):
        labels_of(tokenizer, (tokenizer.convert_tokens_to_ids("A"), len(tokenizer) + 5))
    assert token != tokenizer.unk_token_id


def test_the_temperature_is_tau_times_t():
    alpha = export_run.random_alpha(4, "scalar")
    tau = torch.exp(alpha.temperature_parameter).item()
    assert total_temperature(Use(True, "TS", 1.5), alpha) == pytest.approx(1.5 * tau)
    assert total_temperature(Use(False, "TS", 1.5), alpha) == 1.5
    assert total_temperature(Use(True, "none"), None) == 1.0


def test_options_of_the_same_text_cannot_be_asked():
    assert request_of(MultipleChoice("twice", "what?", ("red", "red "), 0, "d")) is None
    row = ROWS[1]
    answer = {"answer": {"probabilities": {"red": 0.2, "deep": 0.5, "the sea": 0.3}}}
    assert probabilities_of(answer, row) == [0.5, 0.2, 0.3]


@pytest.mark.parametrize(("use", "scoring", "message"), [
    (Use(False, "none"), "text", "this run scores the options' texts; train with scoring: letter"),
    (Use(True, "none"), "letter", "a factor and a shift for each class.*--weights merged"),
    (Use(False, "VS", vector=Vector((1.0,), (0.0,))), "letter", r"Choose --use 'raw \+ TS'"),
])  # fmt: skip
def test_what_cannot_be_carried_is_refused_with_an_alternative(use, scoring, message):
    with pytest.raises(ValueError, match=message):
        refuse_undecidable(use, export_run.random_alpha(4), scoring)


def test_raw_and_scalar_can_be_carried():
    refuse_undecidable(Use(False, "TS", 2.0), export_run.random_alpha(4), "letter")
    refuse_undecidable(Use(True, "TS", 2.0), export_run.random_alpha(4, "scalar"), "letter")


def test_a_chat_template_that_changes_the_question():
    tokenizer = tiny.word_tokenizer(WORDS, chat_template=tiny.CHAT.replace("m.content", "m.content|upper"))
    with pytest.raises(ValueError, match="chat template changes the question"):
        decision_template(Renderer(tokenizer, PromptStyle("letter")))
