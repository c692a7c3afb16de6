"""Every form of a record becomes the row it should, and every fault is named with its place."""

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion, parse_row


def parse(raw):
    return parse_row(raw, where="rows.jsonl:7", default_id="rows/x", domain="rows")


def mcq(**changes):
    raw = {"question": "Which freezes at 0 °C?", "choices": ["iron", "water", "air"], "label": 1}
    return {key: value for key, value in {**raw, **changes}.items() if value is not None}


GOLDS = [
    {"label": 1},
    {"answer": 1},
    {"answer": "water"},
    {"answer": " water "},
    {"answer": "B"},
    {"answer": "b"},
    {"answerKey": "B"},
    {"answerKey": "2"},
    {"answerKey": 2},
    {"answerKey": "Y", "labels": ["X", "Y", "Z"]},
    {"answer": "Y", "labels": ["X", "Y", "Z"]},
    {"answerKey": "2", "labels": [1, 2, 3]},
    {"answerKey": "A", "labels": ["B", "A", "C"]},
    {"label": 1, "answer": "water", "answerKey": "B"},
]


@pytest.mark.parametrize("gold", GOLDS, ids=str)
def test_every_way_to_name_the_gold_finds_the_second_option(gold):
    assert parse(mcq(**{"label": None, **gold})).label == 1


OPTION_FORMS = [
    ("choices", ["iron", "water", "air"]),
    ("options", ["iron", "water", "air"]),
    ("choices", {"text": ["iron", "water", "air"], "label": ["A", "B", "C"]}),
    ("choices", {"text": ["iron", "water", "air"], "label": ["1", "2", "3"]}),
    ("choices", [{"text": "iron", "label": "A"}, {"text": "water", "label": "B"}, {"text": "air", "label": "C"}]),
    ("options", {"A": "iron", "B": "water", "C": "air"}),
]


@pytest.mark.parametrize(("key", "value"), OPTION_FORMS, ids=str)
def test_every_form_of_the_options_gives_the_same_texts(key, value):
    row = parse({"question": "Which freezes at 0 °C?", key: value, "answer": "water"})
    assert (row.choices, row.label) == (("iron", "water", "air"), 1)


def test_labels_in_another_order_than_the_alphabet_are_followed():
    choices = {"text": ["iron", "water"], "label": ["D", "C"]}
    assert parse({"question": "Wet?", "choices": choices, "answerKey": "C"}).label == 1


def test_numbered_labels_are_matched_as_labels_and_not_as_positions():
    choices = {"text": ["iron", "water", "air"], "label": ["2", "3", "1"]}
    assert parse({"question": "Wet?", "choices": choices, "answerKey": "3"}).label == 1


def test_an_int_answer_is_an_index_even_when_an_option_is_that_number():
    # the hub's MMLU has such rows; the type decides, never the value
    assert parse(mcq(choices=["0", "2", "1"], label=None, answer=1)).label == 1
    assert parse(mcq(choices=["0", "2", "1"], label=None, answer="1")).label == 2


def test_options_with_equal_texts_are_kept_when_the_gold_is_an_index():
    assert parse(mcq(choices=["-1", "1", "-1"], label=2)).label == 2


def test_nested_stem_of_the_published_arc_files():
    raw = {"id": "q1", "answerKey": "B", "question": {"stem": "Wet?", "choices": [
        {"text": "iron", "label": "A"}, {"text": "water", "label": "B"}]}}  # fmt: skip
    row = parse(raw)
    assert row == MultipleChoice("q1", "Wet?", ("iron", "water"), 1, "rows")


def test_id_and_domain_come_from_the_record_or_the_defaults():
    assert (parse(mcq()).id, parse(mcq()).domain) == ("rows/x", "rows")
    assert (parse(mcq(id=12, domain="ice")).id, parse(mcq(id=12, domain="ice")).domain) == ("12", "ice")


def test_26_options_pass_and_27_do_not():
    texts = [f"option {i}" for i in range(27)]
    assert parse(mcq(choices=texts[:26], label=None, answer="Z")).label == 25
    with pytest.raises(ValueError, match="27 options; expected 2 to 26"):
        parse(mcq(choices=texts))


FAULTS = [
    (mcq(label=3), "`label` is 3; expected 0 to 2"),
    (mcq(label=-1), "`label` is -1"),
    (mcq(label=True), "truth value True"),
    (mcq(label="B"), "belongs in `answerKey`"),
    (mcq(label=1.0), "`label` is 1.0"),
    (mcq(label=None), "no gold"),
    (mcq(label=None, answer="steam"), "neither the text nor the label"),
    (mcq(label=None, answer="2"), "For an index name it `label`"),
    (mcq(label=None, answer="D"), "neither the text nor the label"),
    (mcq(label=None, answer=False), "truth value False"),
    (mcq(label=None, answer=["water"]), "expected a 0-based index"),
    (mcq(label=None, answerKey="D"), "`answerKey` is 'D'"),
    (mcq(label=None, answerKey=""), "`answerKey` is ''"),
    (mcq(label=None, answerKey="0"), "`answerKey` is '0'"),
    (mcq(label=0, answer="water"), "the golds disagree"),
    (mcq(label=None, choices=["B", "A", "C"], answer="A"), "text of option 1 and the label of option 0"),
    (mcq(label=None, choices=["air", "ice", "air"], answer="air"), r"text of options \[0, 2\]"),
    (mcq(choices=["yes", False]), r"choices\[1\].*truth value False.*quotes"),
    (mcq(choices=["8", 10]), r"choices\[1\].*number 10.*quotes"),
    (mcq(choices=["one", " "]), r"choices\[1\].*empty"),
    (mcq(choices=["one", None]), r"choices\[1\].*NoneType"),
    (mcq(choices=["one"]), "1 options; expected 2 to 26"),
    (mcq(choices="one, two"), "`choices` is str"),
    (mcq(options=["a", "b"]), "both `choices` and `options`"),
    (mcq(labels=["A", "B"]), "one label for each of the 3"),
    (mcq(labels=["A", "B", "A"]), "a label twice"),
    (mcq(question="  "), "`question` is empty"),
    (mcq(question=None), "`question` is missing"),
    (mcq(question=True), "`question` is the truth value"),
    (mcq(id=""), "`id` is empty"),
    (mcq(id=True), "`id` is the truth value"),
    (mcq(answers=["water"]), "fit more than one form"),
    ({"question": "Why?", "answer": "so"}, "a list named `answers`"),
    ({"text": "hello"}, "got text"),
    ([1, 2], "got list"),
    ({"instruction": "Sum up.", "output": ""}, "`output` is empty"),
    ({"instruction": "", "output": "x"}, "`instruction` is empty"),
    ({"instruction": "Sum up.", "input": False, "output": "x"}, "`input` is the truth value"),
    ({"question": "Why?", "answers": []}, "at least one"),
    ({"question": "Why?", "answers": "so"}, "at least one text"),
    ({"question": "Why?", "answers": ["so", ""]}, r"answers\[1\].*empty"),
    ({"prompt": "Hi", "completion": [{"role": "assistant", "content": "Ho"}]}, "differ in form"),
    ({"messages": []}, "at least one"),
    ({"messages": [{"role": "user", "content": "Hi"}]}, "assistant last"),
    ({"messages": [{"role": "assistant", "content": "Hi"}]}, "assistant last"),
    ({"messages": [{"role": "system", "content": "Hi"}]}, "assistant last"),
    (
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " "}]},
        r"messages\[1\].content",
    ),
    ({"messages": [{"role": "tool", "content": "Hi"}]}, "'tool'; expected one of"),
    ({"messages": [{"from": "human", "value": "Hi"}]}, "expected {role, content}"),
]


@pytest.mark.parametrize(("raw", "message"), FAULTS, ids=lambda value: str(value)[:60])
def test_faults_are_named_with_their_place(raw, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(raw)
    assert str(caught.value).startswith("rows.jsonl:7: ")


def test_instruction_joins_the_input_by_an_empty_line():
    row = parse({"instruction": "Translate.", "input": "chat", "output": "cat"})
    assert row == Instruction("rows/x", (("user", "Translate.\n\nchat"),), "cat", "rows")
    assert parse({"instruction": "Say hi.", "input": "", "output": "Hi"}).messages == (("user", "Say hi."),)


def test_prompt_and_completion_in_both_forms():
    plain = parse({"prompt": "Two and two is", "completion": " four."})
    assert (plain.messages, plain.response) == ((("user", "Two and two is"),), "four.")
    turns = parse({
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
        "completion": [{"role": "assistant", "content": "4"}],
    })  # fmt: skip
    assert turns.messages == (("system", "Be brief."), ("user", "2 + 2?"))
    assert (turns.response, turns.question) == ("4", "2 + 2?")


def test_messages_keep_earlier_turns_and_split_off_the_last():
    said = [("user", "2 + 2?"), ("assistant", "4"), ("user", "Sure?"), ("assistant", "Yes.")]
    row = parse({"messages": [{"role": role, "content": text} for role, text in said]})
    assert (row.messages, row.response, row.question) == (tuple(said[:3]), "Yes.", "Sure?")


def test_open_question_keeps_each_answer_once():
    row = parse({"question": "Who?", "answers": ["Ann", "Anne", "Ann"]})
    assert row == OpenQuestion("rows/x", "Who?", ("Ann", "Anne"), "rows")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["a", "b", "A", "user", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "label", "stem", "choices", "role", "content", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
KEYS = ("id", "domain", "question", "question_stem", "choices", "options", "label", "labels", "answer", "answerKey",
        "answers", "instruction", "input", "output", "prompt", "completion", "messages")  # fmt: skip
BASES = (
    mcq(),
    {"instruction": "say a", "output": "a"},
    {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"question": "a?", "answers": ["a"]},
)


def fault_of(raw):
    try:
        parse(raw)
    except ValueError as error:
        return str(error)
    return "none"


@profile(max_examples=400, deadline=None)
@given(st.sampled_from(BASES), st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3))
def test_any_json_in_the_place_of_a_value_is_read_or_told_with_its_place(base, changed):
    assert fault_of({**base, **changed}).startswith(("rows.jsonl:7: ", "none"))


@given(JSON)
def test_any_json_in_the_place_of_a_record_is_read_or_told_with_its_place(raw):
    assert fault_of(raw).startswith("rows.jsonl:7: ")


@pytest.mark.parametrize("raw", BASES, ids=lambda raw: next(iter(raw)))
def test_half_a_surrogate_pair_is_refused_wherever_it_stands(raw):
    for place, changed in with_half(raw):
        fault = fault_of(changed)
        assert fault.startswith("rows.jsonl:7: "), place
        assert "\\ud83d" in fault, place
        fault.encode()  # what cannot be printed helps nobody


def test_half_a_surrogate_pair_in_a_key_can_be_printed():
    fault = fault_of({"question": "a?", "\ud83d": 1})
    assert "got \\ud83d, question" in fault
    fault.encode()


def with_half(value, place=""):
    """The value once for each text in it, with half a pair put at that text's end."""
    if isinstance(value, str):
        yield place, value + "\ud83d"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from ((where, {**value, key: new}) for where, new in with_half(inner, f"{place}.{key}"))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from (
                (where, [*value[:index], new, *value[index + 1 :]])
                for where, new in with_half(inner, f"{place}[{index}]")
            )
