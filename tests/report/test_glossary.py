"""The glossary states the settings of this report."""

from calmtune.report import summarise
from calmtune.report.glossary import glossary
from report.cases import comparison


def test_settings_are_the_ones_used():
    text = dict(glossary(summarise(comparison(n=10), n_bins=7, seed=5, n_resamples=25)))
    assert "averaged over 7 bins" in text["conf-ECE"]
    assert "25 resamples, 5 for smooth ECE" in text["Intervals"]
    assert "seed 5" in text["Intervals"]
