"""Fits as a report uses them."""

import pytest

from calmtune.posthoc import TemperatureScaler, VectorScaler
from calmtune.report.scaling import Fitted, Vector, fit_scaling, vector_fault
from report.cases import predictions

FITS = {
    "fit_temperature": lambda z, y: TemperatureScaler().fit(z, y),
    "fit_vector": lambda z, y: VectorScaler().fit(z, y),
}


def test_each_scaling_is_fitted_on_the_scores_that_were_asked_for():
    given = predictions("d", 60, scale=3.0, adjusted=0.5)
    assert fit_scaling("none", given, adjusted=True, **FITS) == Fitted(1.0, None, True)
    for adjusted in (False, True):
        temperature = TemperatureScaler().fit(given.logits(adjusted=adjusted), given.labels).temperature
        assert fit_scaling("TS", given, adjusted=adjusted, **FITS) == Fitted(temperature, None, True)
        vector = VectorScaler().fit(given.logits(adjusted=adjusted), given.labels)
        expected = Fitted(1.0, Vector(tuple(vector.scale), tuple(vector.shift)), True)
        assert fit_scaling("VS", given, adjusted=adjusted, **FITS) == expected


def test_a_fit_that_the_data_do_not_determine_is_marked():
    right = predictions("d", 30, scale=1.0, skill=100.0)
    assert not fit_scaling("TS", right, adjusted=False, **FITS).identified
    assert not fit_scaling("VS", right, adjusted=False, **FITS).identified


def test_a_record_holds_plain_numbers():
    assert Fitted(2.0).to_record() == {"temperature": 2.0, "scale": None, "shift": None}
    vector = Fitted(vector=Vector((0.5, 1.0), (0.0, -1.0)))
    assert vector.to_record() == {"temperature": 1.0, "scale": [0.5, 1.0], "shift": [0.0, -1.0]}


def test_vector_scaling_needs_its_fit():
    with pytest.raises(ValueError, match="expected fit_vector, got None"):
        fit_scaling("VS", predictions("d", 5, scale=1.0), adjusted=False, fit_temperature=FITS["fit_temperature"])


def test_every_set_with_more_options_is_named():
    given = predictions("d", 40, scale=1.0)  # three and four options
    assert vector_fault(given, [("near", 4), ("far", 2)]) == ""
    assert vector_fault(given, [("near", 5), ("far", 7)]).startswith("near has items with 5 options, the calibration")
    assert "; far has items with 7 options" in vector_fault(given, [("near", 5), ("far", 7)])
