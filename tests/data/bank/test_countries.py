"""The table of states: who is in it, and that its borders are mutual."""

from calmtune.data.bank.countries import CONTINENTS, countries, same_continent


def test_193_member_states_and_no_territory():
    assert len(countries()) == 193
    assert {"FR", "TV", "SS", "TL"} <= set(countries())
    assert not {"PR", "GL", "TW", "VA", "XK", "AN"} & set(countries())


def test_every_entry_is_complete():
    for code, country in countries().items():
        assert country.code == code
        assert country.name
        assert country.continent in CONTINENTS
        assert country.area > 0
        assert country.population > 0
        assert country.name == country.name.strip()
        assert not country.name.lower().startswith("the ")


def test_borders_are_mutual_and_known_ones_are_there():
    for code, country in countries().items():
        assert all(code in countries()[other].neighbours for other in country.neighbours)
    assert countries()["PT"].neighbours == ("ES",)
    assert countries()["JP"].neighbours == ()
    assert set(countries()["CH"].neighbours) == {"AT", "DE", "FR", "IT", "LI"}


def test_names_within_a_sentence():
    assert countries()["NL"].inside == "the Netherlands"
    assert countries()["FR"].inside == "France"
    assert "CH" not in same_continent("CH")
    assert "AT" in same_continent("CH")
    assert "JP" not in same_continent("CH")
