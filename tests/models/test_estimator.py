"""Parameters by keyword, copies and representation; folders by name, saved settings of earlier versions; progress."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass import SLIM, WMF, ItemKNN, NotFittedError, Popularity
from oneclass.models import base
from oneclass.models.blend.model import Blend
from oneclass.models.fit_options import FitOptions
from oneclass.models.hpf.model import HPF

TASTE = csr_matrix(np.kron(np.eye(2), np.ones((10, 5))))


def test_an_unknown_parameter_is_refused_with_the_closest_and_all_of_the_models():
    with pytest.raises(TypeError, match="WMF has no parameter 'factor'; did you mean 'factors'") as error:
        WMF(factor=3)
    assert all(name in str(error.value) for name in (*WMF.Settings.model_fields, "seed", "threads"))
    with pytest.raises(TypeError, match="WMF has no parameter 'qqqq'"):
        WMF().set_params(qqqq=1)


def test_settings_of_another_model_or_in_both_forms_are_refused():
    with pytest.raises(TypeError, match="SLIMSettings; give WMFSettings"):
        WMF(SLIM.Settings())
    with pytest.raises(TypeError, match="not both"):
        WMF(WMF.Settings(), factors=3)


def test_the_representation_is_the_call_with_what_is_not_default():
    assert repr(WMF()) == "WMF()" == repr(WMF(factors=128, seed=0))
    assert repr(WMF(WMF.Settings(factors=8), seed=1)) == "WMF(factors=8, seed=1)"
    model = WMF(factors=8, regularization=0.5, threads=2)
    assert eval(repr(model)).get_params() == model.get_params()


def test_a_changed_parameter_discards_the_fit_and_threads_do_not():
    model = WMF(factors=4).fit(TASTE)
    assert model.set_params(threads=2, factors=4) is model and model.threads == 2
    model.scores(TASTE)
    assert model.set_params(factors=5, seed=3).get_params()["factors"] == 5
    assert (model.params.factors, model.seed, model.threads) == (5, 3, 2)
    with pytest.raises(NotFittedError):
        model.scores(TASTE)
    np.testing.assert_array_equal(
        model.fit(TASTE).scores(TASTE), WMF(WMF.Settings(factors=5), seed=3).fit(TASTE).scores(TASTE)
    )


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_answers_alike_without_what_is_cached_and_lacks_what_was_not_fitted(make_copy):
    unfitted, model = WMF(factors=3), WMF(factors=4).fit(TASTE)
    assert repr(make_copy(unfitted)) == "WMF(factors=3)" and not hasattr(unfitted, "item_factors")
    expected = model.scores(TASTE)
    assert model._cache and make_copy(model)._cache == {}
    np.testing.assert_array_equal(make_copy(model).scores(TASTE), expected)


def test_folders_are_given_by_name_and_made(tmp_path):
    folder = f"{tmp_path}/deep/er"
    model = Popularity().fit(TASTE)
    model.save(folder)
    np.testing.assert_array_equal(Popularity.load(folder).scores(TASTE), model.scores(TASTE))
    with pytest.raises(FileNotFoundError, match="nowhere: no model is saved here"):
        Popularity.load(f"{tmp_path}/nowhere")
    ItemKNN().fit(TASTE).save(folder)
    Path(folder, "values.npy").unlink()
    with pytest.raises(ValueError, match="er: has no 'values', as of an earlier version; fit the model again"):
        ItemKNN.load(folder)


def test_a_bar_shows_the_epochs_and_changes_nothing(capsys):
    model, epochs = WMF(factors=4, iterations=3), []
    shown = model.fit(TASTE, FitOptions(on_epoch=epochs.append), progress=True).scores(TASTE)
    assert "100%" in capsys.readouterr().err and [epoch.number for epoch in epochs] == [1, 2, 3]
    np.testing.assert_array_equal(shown, model.clone().fit(TASTE).scores(TASTE))
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "files", "lines"), [("popularity:Popularity", 6, 1100), ("random_graph.model:RandomGraph", 12, 2500)]
)
def test_a_fit_reads_few_files(model, files, lines):
    """What one reads to follow a fit: the files it imports, but for nearly empty ones and the cache of machine code."""
    module, _, name = model.partition(":")
    code = (
        f"import sys, numpy, scipy.sparse; from oneclass.models.{module} import {name}; "
        f"{name}().fit(scipy.sparse.csr_matrix(numpy.eye(9) + numpy.ones(9)[:, None] * (numpy.arange(9) < 3))); "
        "print(*{found.__file__ for name, found in sys.modules.items() if name.partition('.')[0] == 'oneclass'})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    opened = [file for file in done.stdout.split() if not file.endswith(("__init__.py", "numba_cache.py"))]
    sizes = {file: len(Path(file).read_text().splitlines()) for file in opened}
    lengths = [size for file, size in sizes.items() if file.endswith(("popularity.py", "random_graph/model.py"))]
    assert lengths and max(lengths) <= 250  # Algorithm 1 and its equations
    assert len(sizes) <= files and sum(sizes.values()) <= lines, sizes
    assert len(Path(base.__file__).read_text().splitlines()) <= 300


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
