"""Splits from the data settings: disjoint, of the right sizes, independent of the order of lines, and recorded."""

import random

import pytest

import cli_run
from calmtune.cli.splits import NAMES, build_splits, drop_overlaps, take, take_by_domain
from calmtune.config import DataSettings
from calmtune.data.rows import Instruction, MultipleChoice
from calmtune.data.splits import question_key


def row(number, question=None, domain="d"):
    return MultipleChoice(f"{domain}/{number}", question or f"what is {number}?", ("a", "b"), 0, domain)


@pytest.fixture
def sky(tmp_path):
    return str(cli_run.write_questions(tmp_path / "sky.jsonl", 400))


def ids(splits):
    return {name: [one.id for one in rows] for name, rows in splits.rows.items()}


def test_what_has_no_source_is_held_out_by_question(sky):
    splits = build_splits(DataSettings(train_sources=(sky,)))
    counts = {name: len(rows) for name, rows in splits.rows.items()}
    assert sum(counts.values()) == 400
    assert counts["test_ood"] == 0
    for name, share in (("train", 0.45), ("upper", 0.25), ("calibration", 0.15), ("test_id", 0.15)):
        # within four standard deviations of a binomial
        assert abs(counts[name] - 400 * share) < 4 * (400 * share * (1 - share)) ** 0.5
    keys = [question_key(one) for rows in splits.rows.values() for one in rows]
    assert len(set(keys)) == len(keys)


def test_the_order_of_lines_does_not_matter(sky, tmp_path):
    lines = (tmp_path / "sky.jsonl").read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    (tmp_path / "mixed").mkdir()
    mixed = tmp_path / "mixed" / "sky.jsonl"
    mixed.write_text("".join(lines))
    limits = {"train_limit": 50, "upper_limit": 40, "calibration_limit": 30, "test_limit": 20}
    one = ids(build_splits(DataSettings(train_sources=(sky,), **limits)))
    other = ids(build_splits(DataSettings(train_sources=(str(mixed),), **limits)))
    assert {name: sorted(part) for name, part in one.items()} == {name: sorted(part) for name, part in other.items()}
    assert [len(one[name]) for name in ("train", "upper", "calibration", "test_id")] == [50, 40, 30, 20]
    # within a split the order is the files': training depends on it, so it counts as other data
    for part in one.values():
        numbers = [int(name.partition("/")[2]) for name in part]
        assert numbers == sorted(numbers)
    assert one["train"] != other["train"]


def test_another_seed_gives_other_splits(sky):
    one = ids(build_splits(DataSettings(train_sources=(sky,), split_seed=0)))
    assert ids(build_splits(DataSettings(train_sources=(sky,), split_seed=1))) != one


def test_sources_of_their_own_are_used_whole(sky, tmp_path):
    sea = str(cli_run.write_questions(tmp_path / "sea.jsonl", 30, subject="sea"))
    splits = build_splits(DataSettings(train_sources=(sky,), test_ood=(sea,), test_share=0))
    assert len(splits.rows["test_ood"]) == 30
    assert splits.rows["test_id"] == []
    assert splits.shifts == {"sea": "OOD"}


@pytest.mark.parametrize("field", ["upper_sources", "calibration_sources", "test_id", "test_ood"])
def test_an_overlap_is_an_error_by_default(sky, field):
    with pytest.raises(ValueError, match=r"share [0-9]+ question"):
        build_splits(DataSettings(train_sources=(sky,), **{field: (sky,)}))


def test_an_overlap_can_be_dropped_from_the_side_that_learns(sky, tmp_path):
    part = str(cli_run.write_questions(tmp_path / "part.jsonl", 40))
    data = DataSettings(train_sources=(sky,), test_ood=(part,), overlap="drop")
    splits = build_splits(data)
    assert len(splits.rows["test_ood"]) == 40
    assert sum(splits.dropped.values()) == 40
    assert splits.record()["dropped"] == dict(splits.dropped)
    assert "test_ood" not in splits.dropped


def test_the_test_keeps_a_shared_question_before_anything_else():
    rows = {name: [row(name, "the same?")] for name in NAMES}
    kept = drop_overlaps(rows)
    assert {name: len(part) for name, part in kept.items()} == dict.fromkeys(NAMES, 0) | {"test_ood": 1}


def test_a_subset_is_drawn_not_cut_off():
    rows = [row(number) for number in range(100)]
    drawn = take(rows, 10, seed=0)
    assert drawn == sorted(drawn, key=rows.index)
    assert len(drawn) == 10
    assert drawn != rows[:10]
    assert take(rows[::-1], 10, seed=0) == drawn[::-1]
    assert take(rows, 10, seed=1) != drawn
    assert {one.id for one in drawn} <= {one.id for one in take(rows, 20, seed=0)}
    assert take(rows, None, 0) == rows


def test_the_limit_of_test_rows_is_by_domain():
    rows = [row(n, domain="a") for n in range(10)] + [row(n, domain="b") for n in range(3)]
    assert [one.domain for one in take_by_domain(rows, 4, 0)] == ["a"] * 4 + ["b"] * 3


def test_a_large_training_source_can_be_kept_from_crowding_out_a_small_one(sky, tmp_path):
    sea = str(cli_run.write_questions(tmp_path / "sea.jsonl", 60, subject="sea"))
    splits = build_splits(DataSettings(train_sources=(sky, sea), domain_limit=100))
    used = [one.domain for rows in splits.rows.values() for one in rows]
    assert (used.count("sky"), used.count("sea")) == (100, 60)


def test_faults_of_splits_are_told_together(sky, tmp_path):
    sft = tmp_path / "sft.jsonl"
    sft.write_text('{"instruction": "say hi", "output": "hi"}\n{"instruction": "say bye", "output": "bye"}\n')
    data = DataSettings(
        train_sources=(sky,), calibration_sources=(str(sft),), upper_share=0, test_share=0, test_id=(), test_ood=()
    )
    with pytest.raises(ValueError) as caught:
        build_splits(data)
    message = str(caught.value)
    assert "the split upper is empty; give upper_sources, or an upper_share above 0" in message
    assert "there are no test rows" in message
    assert "the split calibration has rows without options" in message


def test_a_domain_cannot_be_in_and_out(sky, tmp_path):
    (tmp_path / "other").mkdir()
    same_name = str(cli_run.write_questions(tmp_path / "other" / "sky.jsonl", 5, start=1000))
    with pytest.raises(ValueError, match="'sky' is in test_id and in test_ood"):
        build_splits(DataSettings(train_sources=(sky,), test_ood=(same_name,)))


def test_an_id_twice_among_scored_rows_is_told(sky, tmp_path):
    (tmp_path / "other").mkdir()
    twin = cli_run.write_questions(tmp_path / "other" / "sky.jsonl", 9, subject="sea")
    with pytest.raises(ValueError, match="the id 'sky/0' occurs more than once among the test rows"):
        build_splits(DataSettings(train_sources=(sky,), test_id=(str(twin), str(twin))))


def test_the_record_tells_rows_apart_by_content(sky, tmp_path):
    record = build_splits(DataSettings(train_sources=(sky,))).record()
    text = (tmp_path / "sky.jsonl").read_text()
    (tmp_path / "sky.jsonl").write_text(text.replace('"label": 0', '"label": 1'))
    changed = build_splits(DataSettings(train_sources=(sky,))).record()
    for name in ("train", "upper", "calibration", "test_id"):
        assert record["splits"][name]["rows"] == changed["splits"][name]["rows"]
        assert record["splits"][name]["fingerprint"] != changed["splits"][name]["fingerprint"]


def test_instructions_can_train_where_the_measure_has_options(sky, tmp_path):
    sft = tmp_path / "sft.jsonl"
    sft.write_text("".join(f'{{"instruction": "say {n}", "output": "{n}"}}\n' for n in range(40)))
    data = DataSettings(train_sources=(str(sft),), calibration_sources=(sky,), test_share=0, overlap="drop",
                        test_ood=(str(cli_run.write_questions(tmp_path / "sea.jsonl", 9, subject="sea")),))  # fmt: skip
    splits = build_splits(data)
    assert all(isinstance(one, Instruction) for one in [*splits.rows["train"], *splits.rows["upper"]])
    assert len(splits.test) == 9
