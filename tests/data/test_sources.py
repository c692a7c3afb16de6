"""Files of every kind become rows; every fault of a file is listed with its line."""

import json
import warnings
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion
from calmtune.data.sources import load_rows

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def record(number, **changes):
    raw = {"id": f"r{number}", "question": f"Is {number} even?", "choices": ["yes", "no"], "label": number % 2}
    return {key: value for key, value in {**raw, **changes}.items() if value is not None}


def write(path, records):
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return path


def test_jsonl_rows_with_domain_from_the_first_part_of_the_name(tmp_path):
    rows = load_rows(str(write(tmp_path / "evens.train.jsonl", [record(0), record(1, domain="odds")])))
    assert rows == [
        MultipleChoice("r0", "Is 0 even?", ("yes", "no"), 0, "evens"),
        MultipleChoice("r1", "Is 1 even?", ("yes", "no"), 1, "odds"),
    ]
    assert {row.domain for row in load_rows(str(tmp_path / "evens.train.jsonl"), domain="mine")} == {"mine"}


def test_unusual_line_separators_within_a_text_cut_nothing(tmp_path):
    text = "before\u2028after\u2029and\u0085on\x0bto\x0cthe end"
    path = tmp_path / "separators.jsonl"
    path.write_bytes(json.dumps(record(0, question=text), ensure_ascii=False).encode() + b"\n")
    assert [row.question for row in load_rows(str(path))] == [text]


def test_byte_order_mark_carriage_returns_blank_lines_and_no_final_newline(tmp_path):
    path = tmp_path / "dos.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(record(i)).encode() for i in range(3)))
    assert [row.id for row in load_rows(str(path))] == ["r0", "r1", "r2"]


def test_every_fault_is_listed_with_its_line_and_no_good_row_is_returned(tmp_path):
    path = tmp_path / "faulty.jsonl"
    lines = [record(0), record(1, label=5), {"text": "?"}, record(3, choices=["yes", False])]
    write(path, lines)
    with path.open("ab") as file:
        file.write(b'{"question": \n{"id": "r9", "label": 1, "label": 0}\n\xff\xfe\n{"label": NaN}\n')
    with pytest.raises(ValueError) as caught:
        load_rows(str(path))
    text = str(caught.value)
    assert "7 faulty row(s), 1 good" in text
    for line in (2, 3, 4, 5, 6, 7, 8):
        assert f"faulty.jsonl:{line}: " in text
    assert "'label' occurs twice" in text
    assert "NaN is not JSON" in text


def test_only_the_first_twenty_faults_are_listed(tmp_path):
    path = write(tmp_path / "many.jsonl", [record(i, label=7) for i in range(33)])
    with pytest.raises(ValueError) as caught:
        load_rows(str(path))
    assert "33 faulty" in str(caught.value)
    assert "many.jsonl:20:" in str(caught.value)
    assert "many.jsonl:21:" not in str(caught.value)
    assert "and 13 more" in str(caught.value)


def test_an_id_used_twice_names_both_lines(tmp_path):
    path = write(tmp_path / "twice.jsonl", [record(0), record(1), record(2, id="r0")])
    with pytest.raises(ValueError, match=r"twice.jsonl:3: has the id 'r0', first at .*twice.jsonl:1"):
        load_rows(str(path))


def test_ids_made_from_content_survive_reordering(tmp_path):
    plain = [record(i, id=None) for i in range(4)]
    first = load_rows(str(write(tmp_path / "plain.jsonl", plain)))
    second = load_rows(str(write(tmp_path / "plain.jsonl", plain[::-1])))
    assert [row.id for row in first] == [row.id for row in second[::-1]]
    assert all(row.id.startswith("plain/") and len(row.id) == len("plain/") + 12 for row in first)
    assert len({row.id for row in first}) == 4


def test_the_same_row_twice_without_ids_is_an_error(tmp_path):
    path = write(tmp_path / "same.jsonl", [record(0, id=None), record(1, id=None), record(0, id=None)])
    with pytest.raises(ValueError, match=r"same.jsonl:3: has no id and the same content .* first at .*same.jsonl:1"):
        load_rows(str(path))


def test_equal_options_are_reported_once(tmp_path):
    path = write(tmp_path / "equal.jsonl", [record(0), record(1, choices=["no", "no"])])
    with pytest.warns(UserWarning, match=r"1 row\(s\) have two options with the same text \(r1\)") as caught:
        assert load_rows(str(path))[1].label == 1
    assert len(caught) == 1


def test_limit_is_a_seeded_subset_that_depends_on_ids_alone(tmp_path):
    records = [record(i) for i in range(200)]
    path = str(write(tmp_path / "all.jsonl", records))
    chosen = [row.id for row in load_rows(path, limit=20, seed=5)]
    assert len(chosen) == 20
    assert chosen != [f"r{i}" for i in range(20)]
    assert chosen == sorted(chosen, key=lambda id_: int(id_[1:]))
    assert set(chosen) <= {row.id for row in load_rows(path, limit=40, seed=5)}
    assert chosen != [row.id for row in load_rows(path, limit=20, seed=6)]
    backwards = str(write(tmp_path / "back.jsonl", records[::-1]))
    assert {row.id for row in load_rows(backwards, limit=20, seed=5)} == set(chosen)
    assert len(load_rows(path, limit=1000)) == 200


@pytest.mark.parametrize("limit", [0, -1, 2.0, True])
def test_senseless_limits_are_refused(limit):
    with pytest.raises(ValueError, match="expected a whole number > 0"):
        load_rows("facts:continents", limit=limit)


def test_csv_with_option_columns_is_ragged_and_keeps_words_as_words(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(
        "\ufeffid,question,choice_a,choice_b,choice_c,answer\n"
        'c1,"Which word, of these, is none?",NaN,None,no,no\n'
        '"c2","Two\nlines?",yes,NO,,B\n',
        encoding="utf-8",
    )
    first, second = load_rows(str(path))
    assert (first.choices, first.label) == (("NaN", "None", "no"), 2)
    assert (second.question, second.choices, second.label) == ("Two\nlines?", ("yes", "NO"), 1)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("question,A,B,C,answer", "Wet?,iron,water,air,B"),
        ("question,A,B,C,label", "Wet?,iron,water,air,1"),
        ("question,option_c,option_b,option_a,answer", "Wet?,air,water,iron,water"),
        ("question,choices,label", 'Wet?,"[""iron"", ""water"", ""air""]",1'),
    ],
)
def test_csv_forms_of_the_options(tmp_path, header, line):
    path = tmp_path / "forms.csv"
    path.write_text(f"{header}\n{line}\n")
    (row,) = load_rows(str(path))
    assert (row.choices, row.label) == (("iron", "water", "air"), 1)


def test_csv_of_instructions_and_open_questions(tmp_path):
    (tmp_path / "do.csv").write_text("instruction,input,output\nSay hi.,,Hi\n")
    assert isinstance(load_rows(str(tmp_path / "do.csv"))[0], Instruction)
    (tmp_path / "ask.csv").write_text('question,answers\nWho?,"[""Ann"", ""Anne""]"\n')
    assert load_rows(str(tmp_path / "ask.csv"))[0].answers == ("Ann", "Anne")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,choices,label\nWet?,\"['iron', 'water']\",1\n", r"faulty.csv:2: `choices` is not JSON"),
        ("question,choices,label\nWet?,\"__import__('os').getcwd()\",1\n", r"faulty.csv:2: `choices` is not JSON"),
        ("question,A,B,label\nWet?,iron,water,1\nDry?,sand,1\n", r"faulty.csv:3: 3 cells, but 4 columns"),
        ("question,A,B,C,label\nWet?,iron,,air,0\n", r"faulty.csv:2: .*choices\[1\].* is empty"),
        (
            "question,A,B,answer\nWet?,iron,water,1\n",
            r"faulty.csv:2: .*name it `label` .*counted from 0.* or `answerKey` .*counted from 1",
        ),
        ('question,A,B,label\n"Two\nlines?",a,b,1\nWet?,iron,water,9\n', r"faulty.csv:4: `label` is 9"),
        ("question,A,A,label\nWet?,iron,water,1\n", "distinct column names"),
        ("", "distinct column names"),
        ("question,A,B,label\n", "no rows"),
    ],
)
def test_csv_faults(tmp_path, text, message):
    path = tmp_path / "faulty.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_rows(str(path))


def test_parquet_with_nested_options(tmp_path):
    records = [
        {"id": "p1", "question": "Wet?", "choices": {"text": ["iron", "water"], "label": ["1", "2"]}, "answerKey": "2"},
        {"id": "p2", "question": "Dry?", "choices": {"text": ["sand", "rain"], "label": ["A", "B"]}, "answerKey": "A"},
    ]
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    assert [(row.id, row.label, row.domain) for row in load_rows(str(path))] == [("p1", 1, "table"), ("p2", 0, "table")]
    records[1]["answerKey"] = None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    with pytest.raises(ValueError, match=r"table.parquet:row 2: no gold"):
        load_rows(str(path))


def test_a_missing_file_names_near_ones(tmp_path):
    write(tmp_path / "animals.jsonl", [record(0)])
    with pytest.raises(ValueError, match=r"no file .*animal.jsonl\. Near: animals.jsonl"):
        load_rows(str(tmp_path / "animal.jsonl"))
    with pytest.raises(ValueError, match="write hub:arc_easy/<split>"):
        load_rows("arc_easy")
    with pytest.raises(ValueError, match="does not exist either"):
        load_rows(str(tmp_path / "nowhere" / "x.jsonl"))
    with pytest.raises(ValueError, match="is a folder"):
        load_rows(str(tmp_path))


def test_other_endings_and_empty_files_are_refused(tmp_path):
    (tmp_path / "rows.json").write_text("[]")
    with pytest.raises(ValueError, match="convert it to JSON Lines"):
        load_rows(str(tmp_path / "rows.json"))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="no rows"):
        load_rows(str(tmp_path / "empty.jsonl"))


def test_facts_by_domain():
    rows = load_rows("facts:capitals+continents")
    assert {row.domain for row in rows} == {"capitals", "continents"}
    with pytest.raises(ValueError, match="expected domains out of"):
        load_rows("facts:capital")
    with pytest.raises(ValueError, match="named twice"):
        load_rows("facts:capitals+capitals")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mcqa/arc_easy.train.jsonl", MultipleChoice),
        ("mcqa/mmlu.val.jsonl", MultipleChoice),
        ("mcqa/medmcqa.train.jsonl", MultipleChoice),
        ("mcqa/openbookqa.dev.jsonl", MultipleChoice),
        ("openqa/popqa.test.jsonl", OpenQuestion),
        ("sft/alpaca.jsonl", Instruction),
    ],
)
def test_real_files_load_whole(name, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = load_rows(SHARED / name)
    lines = (SHARED / name).read_bytes().strip().count(b"\n") + 1
    assert len(rows) == lines
    assert all(type(row) is kind for row in rows)
    assert {row.domain for row in rows} == {Path(name).name.split(".")[0]}


@pytest.mark.parametrize(
    "header", ["question,B,C,D,answer", "question,A,C,D,answer", "question,choice_a,choice_c,choice_d,answer"]
)
def test_option_columns_with_a_gap_are_refused_rather_than_counted_anew(tmp_path, header):
    path = tmp_path / "gap.csv"
    path.write_text(header + "\nwhich?,w,x,y,C\n", encoding="utf-8")
    with pytest.raises(ValueError, match="without a gap"):
        load_rows(path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_another_encoding_is_named_with_its_line(tmp_path, name):
    lines = {
        "rows.jsonl": [json.dumps(record(0)), json.dumps(record(1, question="caf\xe9?"), ensure_ascii=False)],
        "rows.csv": ["question,A,B,label", "caf\xe9?,a,b,0"],
    }[name]
    path = tmp_path / name
    path.write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(ValueError, match=f"{name}:2: not (valid )?UTF-8"):
        load_rows(path)
    for encoding in ("utf-16", "utf-32"):
        path.write_bytes("\n".join(lines).encode(encoding))
        with pytest.raises(ValueError, match=f"{name}:1: written in UTF-16 or UTF-32; save it as UTF-8"):
            load_rows(path)
    path.write_bytes("\n".join(lines).encode("utf-8-sig"))
    assert load_rows(path)[-1].question == "caf\xe9?"


@pytest.mark.parametrize("value", ["[" * 100_000, "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_deep_nesting_is_a_fault_not_a_crash(tmp_path, value):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(record(0))}\n{value}\n")
    with pytest.raises(ValueError, match="rows.jsonl:2: "):
        load_rows(path)
    path = tmp_path / "rows.csv"
    path.write_text('question,choices,label\nWet?,"' + value.replace('"', '""') + '",0\n')
    with pytest.raises(ValueError, match="rows.csv:2: `choices` is not JSON"):
        load_rows(path)


def test_half_a_surrogate_pair_is_named_with_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(record(0)) + "\n" + json.dumps({**record(0), "question": "a\ud83d?"}) + "\n")
    with pytest.raises(ValueError, match=r"rows.jsonl:2: `question` holds \\ud83d, one half of a surrogate pair"):
        load_rows(path)


def test_a_whole_surrogate_pair_is_a_character(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**record(0), "question": "\U0001f600?"}) + "\n")
    assert load_rows(path)[0].question == "\U0001f600?"


@pytest.mark.parametrize("cut", [0, 3, 50, -1, -12])
def test_a_damaged_parquet_file_is_named(tmp_path, cut):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([record(0)]), path)
    assert len(load_rows(path)) == 1
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match="rows.parquet: not a whole Parquet file"):
        load_rows(path)
    path.write_text(json.dumps(record(0)))
    with pytest.raises(ValueError, match="rows.parquet: not a whole Parquet file"):
        load_rows(path)


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
@pytest.mark.parametrize(
    "columns",
    [["question", "A", "B", "label"], ['"question"', '"choices"', '"answer"'], ["id", "instruction", "output"]],
)
def test_columns_separated_by_something_else_are_recognised(tmp_path, separator, name, columns):
    path = tmp_path / "rows.csv"
    path.write_text(separator.join(columns) + "\n" + separator.join("x" for _ in columns) + "\n")
    with pytest.raises(ValueError, match=f"rows.csv:1: the columns are separated by {name}; expected commas"):
        load_rows(path)


def test_a_semicolon_in_a_column_of_its_own_is_no_separator(tmp_path):
    path = tmp_path / "rows.csv"
    for name in ("note;more", "A;B;label"):
        path.write_text(f"question,A,B,label,{name}\nWet?,iron,water,1,x;y\n")
        assert load_rows(path)[0].label == 1


@pytest.mark.parametrize(("column", "gold"), [("label", 1), ("answerKey", 0)])
def test_the_advice_for_a_number_as_answer_in_a_table_works(tmp_path, column, gold):
    path = tmp_path / "rows.csv"
    path.write_text("question,A,B,answer\nWet?,iron,water,1\n")
    with pytest.raises(ValueError, match=f"rows.csv:2: .*`{column}`"):
        load_rows(path)
    path.write_text(f"question,A,B,{column}\nWet?,iron,water,1\n")
    assert load_rows(path)[0].label == gold
