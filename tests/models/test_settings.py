"""Settings that a model no longer has, or that have another name: accepted, with a warning."""

import warnings
from typing import ClassVar

import pytest
from pydantic import ValidationError

from oneclass.models.hpf.model import HPF, HPFSettings
from oneclass.models.settings import ModelSettings
from oneclass.tasks.settings import validate_settings


class Renamed(ModelSettings):
    deprecated: ClassVar = {"old_rate": "rate", "blocks": "it is fitted whole on one worker"}

    rate: float = 1.0


def test_an_ignored_setting_is_accepted_with_a_warning():
    with pytest.warns(FutureWarning, match="^blocks is ignored: hpf is fitted whole on one worker$"):
        assert HPFSettings(blocks=3, factors=5) == HPFSettings(factors=5)


def test_a_renamed_setting_sets_the_one_that_replaces_it():
    with pytest.warns(FutureWarning, match="^old_rate is deprecated: use rate$"):
        assert Renamed(old_rate=3).rate == 3.0
    with pytest.warns(FutureWarning):
        assert Renamed(old_rate=3, rate=2).rate == 2.0
    with pytest.warns(FutureWarning), pytest.raises(ValidationError, match="rate"):
        Renamed(old_rate="high")


def test_other_unknown_settings_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        HPFSettings(block=3)


def test_saved_settings_of_an_earlier_version_are_read_without_a_warning(long_tailed, tmp_path):
    HPF(HPFSettings(factors=3, max_iterations=2)).fit(long_tailed).save(tmp_path)
    file = tmp_path / "settings.json"
    file.write_text(file.read_text().replace('"factors": 3,', '"factors": 3, "blocks": 1,'))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert HPF.load(tmp_path).settings == HPFSettings(factors=3, max_iterations=2)


def test_a_run_logs_a_deprecated_setting(caplog):
    assert validate_settings("hpf", {"blocks": 2}) == HPFSettings()
    assert "setting hpf.blocks is ignored: hpf is fitted whole on one worker" in caplog.text
