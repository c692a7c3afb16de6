"""Decisions on disk: kept through a crash, read back exactly, refused where they are of something else."""

import pytest

from calmtune.grading.cache import DecisionCache

ODD = "a\u2028b\x85c\n\ud800 é"


def test_round_trip_of_any_text(tmp_path):
    path = tmp_path / "new" / "cache.jsonl"
    DecisionCache(path, {"model": "m"}).add(ODD, {"text": ODD, "label": 2})
    again = DecisionCache(path, {"model": "m"})
    assert again.get(ODD) == {"text": ODD, "label": 2}
    assert (len(again), again.get("other")) == (1, None)
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("kept", [0, 5, 30, 45])
def test_a_torn_last_line_is_cut_off_and_written_anew(tmp_path, kept):
    path = tmp_path / "cache.jsonl"
    cache = DecisionCache(path, {"model": "m"})
    cache.add("one", {"label": 1})
    cache.add("two", {"label": 2})
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])  # anywhere in the header, or behind it
    cache = DecisionCache(path, {"model": "m"})
    for key, label in (("one", 1), ("two", 2)):
        if cache.get(key) is None:
            cache.add(key, {"label": label})
    assert path.read_bytes() == whole


def test_another_header_and_broken_lines_are_refused(tmp_path):
    path = tmp_path / "cache.jsonl"
    DecisionCache(path, {"model": "m"}).add("one", {"label": 1})
    with pytest.raises(ValueError, match='made with {"model": "m"}, now {"model": "n"}. Delete it'):
        DecisionCache(path, {"model": "n"})
    for line, fault in ((b"{]", "not valid JSON"), (b"[1]", "expected an object"), (b'{"label": 1}', "with a `key`")):
        other = tmp_path / "broken.jsonl"
        other.write_bytes(path.read_bytes() + line + b"\n")
        with pytest.raises(ValueError, match=f"broken.jsonl:3: .*{fault}.*delete the line"):
            DecisionCache(other, {"model": "m"})


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    DecisionCache(None, {}).add("one", {"label": 1})
    assert list(tmp_path.iterdir()) == []
