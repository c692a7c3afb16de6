"""The small helpers that make the bank deterministic."""

import hashlib

from calmtune.data.bank.fact import choose, fold, rank, sample, slug, without


def test_rank_is_the_start_of_a_sha256_and_not_pythons_own_hash():
    assert rank("a", "b") == int.from_bytes(hashlib.sha256(b"a\0b").digest()[:8], "big")
    assert rank("a", 1) == rank("a", "1")
    assert rank("ab") != rank("a", "b")


def test_fold_drops_accents_but_keeps_vowel_signs():
    assert fold("São Tomé") == fold("SAO TOME")
    assert fold("Ångström") == "angstrom"
    assert fold("सोमवार") != fold("समवर")


def test_sample_keeps_the_same_options_when_others_are_added():
    few = sample("key", [f"x{i}" for i in range(50)], 10)
    more = sample("key", [f"x{i}" for i in range(60)], 10)
    assert len(few) == 10
    assert few == sorted(few)
    assert len(set(few) & set(more)) >= 7
    assert choose("key", "abc") == choose("key", "abc")
    assert {choose(str(i), "abc") for i in range(50)} == set("abc")


def test_slug_and_without():
    assert slug("  Łódź / Białystok ") == "łodz-białystok"
    assert without(["Lomé", "Lome", "Accra", "Paris"], "accra") == ("Lomé", "Paris")
