"""Settings that a model no longer has, or that have another name: accepted, with a warning."""

import warnings
from typing import ClassVar

import pytest
from pydantic import ValidationError

from oneclass.models.binary_matrix.settings import BinaryMatrixSettings
from oneclass.models.blend.model import BlendSettings
from oneclass.models.hpf.model import HPF, HPFSettings
from oneclass.models.random_graph.settings import RandomGraphSettings
from oneclass.models.settings import ModelSettings
from oneclass.models.wmf.model import WMF, WMFSettings
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.split.settings import SplitSettings

COMPONENTS = ({"model": "mrf_dense"}, {"model": "wmf", "weight": 0.5})


class Renamed(ModelSettings):
    deprecated: ClassVar = {"old_rate": "rate"}

    rate: float = 1.0


def test_an_ignored_setting_is_accepted_with_a_warning():
    with pytest.warns(FutureWarning, match="^blocks is ignored: hpf is fitted whole on one worker$"):
        assert HPFSettings(blocks=3, factors=5) == HPFSettings(factors=5)


@pytest.mark.parametrize(
    ("kind", "old", "new", "value"),
    [
        (BinarizeSettings, "observed_negatives", "explicit_negatives", True),
        (RandomGraphSettings, "observed_negatives", "explicit_negatives", True),
        (RandomGraphSettings, "start_scale", "initial_scale", 0.2),
        (BinaryMatrixSettings, "start_scale", "initial_scale", 0.2),
        (WMFSettings, "considered_weight", "explicit_negative_weight", 0.3),
        (BlendSettings, "members", "components", COMPONENTS),
    ],
)
def test_a_renamed_setting_works_under_the_old_name_with_one_warning(kind, old, new, value):
    with pytest.warns(FutureWarning, match=f"^{old} is deprecated: use {new}$") as warned:
        assert kind(**{old: value}) == kind(**{new: value}) != kind()
    assert len(warned) == 1
    with pytest.raises(ValidationError, match=f"{old}: is the deprecated name of {new}; give one of them"):
        kind(**{old: value, new: value})


def test_a_renamed_value_works_under_the_old_name_with_one_warning():
    with pytest.warns(FutureWarning, match="^validation = line_end is deprecated: use latest$") as warned:
        assert SplitSettings(validation="line_end") == SplitSettings(validation="latest")
    assert len(warned) == 1


def test_the_value_of_a_renamed_setting_is_checked():
    with pytest.warns(FutureWarning), pytest.raises(ValidationError, match="rate"):
        Renamed(old_rate="high")


def test_other_unknown_settings_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        HPFSettings(block=3)


@pytest.mark.parametrize(
    ("kind", "settings", "saved", "earlier"),
    [
        (HPF, HPFSettings(factors=3, max_iterations=2), '"factors": 3,', '"factors": 3, "blocks": 1,'),
        (WMF, WMFSettings(factors=8, iterations=1), '"explicit_negative_weight"', '"considered_weight"'),
    ],
)
def test_saved_settings_of_an_earlier_version_are_read_without_a_warning(
    kind, settings, saved, earlier, long_tailed, tmp_path
):
    kind(settings).fit(long_tailed).save(tmp_path)
    file = tmp_path / "settings.json"
    text = file.read_text()
    assert saved in text
    file.write_text(text.replace(saved, earlier))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kind.load(tmp_path).settings == settings
