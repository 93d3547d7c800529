"""Tests for authors of models: every promise that the pipeline relies on, as a class for pytest.

from my_package.models import MyModel
from oneclass.testing import ModelContract


class TestMyModel(ModelContract):
model = MyModel
settings = {"neighbours": 5}
"""

import pytest

pytest.register_assert_rewrite("oneclass.model_contract")

from oneclass.model_contract import ModelCase, ModelContract, all_scores, make_checkerboard, make_long_tailed

__all__ = ["ModelCase", "ModelContract", "all_scores", "make_checkerboard", "make_long_tailed"]
