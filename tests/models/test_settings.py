"""Settings that an earlier version saved, and that a model does not have, are left out."""

import pytest

from oneclass.models.blend.model import Blend
from oneclass.models.hpf.model import HPF
from oneclass.models.item_knn import ItemKNN

COMPONENTS = [
    {"model": "mrf_dense", "settings": {"l2": 2.0}},
    {"model": "wmf", "settings": {"factors": 3, "iterations": 4}},
]


@pytest.mark.parametrize(
    ("model", "saved"),
    [(HPF(factors=3, max_iterations=2), '"factors": 3,'), (Blend(components=COMPONENTS), '"factors": 3,')],
    ids=["hpf", "blend"],
)
def test_saved_settings_that_are_gone_are_left_out(model, saved, long_tailed, tmp_path):
    model.fit(long_tailed).save(tmp_path)
    file = tmp_path / "settings.json"
    text = file.read_text()
    assert saved in text
    file.write_text(text.replace(saved, f'{saved} "gone": 1,'))
    loaded = type(model).load(tmp_path)
    assert (loaded.scores(long_tailed[:5]) == model.scores(long_tailed[:5])).all()


def test_a_saved_choice_that_is_gone_has_its_default(long_tailed, tmp_path):
    model = ItemKNN(similarity="cosine").fit(long_tailed)
    model.save(tmp_path)
    file = tmp_path / "settings.json"
    file.write_text(file.read_text().replace('"similarity": "cosine"', '"similarity": "blocks"'))
    loaded = ItemKNN.load(tmp_path)
    assert loaded.params == model.params.model_copy(update={"similarity": "rp3beta"})
    assert (loaded.scores(long_tailed[:5]) == model.scores(long_tailed[:5])).all()
