"""The autoencoders: their losses and gradients against NumPy in float64, early stopping, draws."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import log_softmax

from oneclass.models.autoencoders import CDAE, MultDAE, MultVAE, autoencoder
from oneclass.models.evaluation.holdout import split_matrix
from oneclass.models.fit_options import FitOptions, Start, ValidationUsers

if find_spec("torch") is None:
    pytest.skip("the extra neural is not installed", allow_module_level=True)

MODELS = {
    "cdae": (CDAE, {"hidden": 5, "negative_weight": 0.3}),
    "mult_dae": (MultDAE, {"hidden": 5}),
    "mult_vae": (MultVAE, {"hidden": 5, "latent": 3, "beta_cap": 0.7, "anneal_steps": 4}),
}
every_model = pytest.mark.parametrize("name", MODELS)
USERS = np.array([7, 2, 0, 11])
SHORT = {"epochs": 6, "batch_users": 50, "learning_rate": 0.01}


def make_model(name, **settings):
    model, small = MODELS[name]
    return model(model.Settings(**{**small, **SHORT, **settings}), seed=3)


@pytest.fixture(scope="module")
def torch():
    """PyTorch, which takes seconds to load and which only these tests need."""
    import torch

    return torch


@pytest.fixture
def steps(long_tailed):
    """Float64 training of a model by name, at random weights that are nowhere zero, after three updates."""
    from oneclass.models.autoencoders import training

    def get(name):
        model = make_model(name)
        model.item_degrees = np.bincount(long_tailed.indices, minlength=long_tailed.shape[1])
        rng = np.random.default_rng(1)
        shapes = model._shapes(long_tailed.shape)
        initial = {key: rng.normal(scale=0.5, size=shape) for key, shape in shapes.items()}
        chosen = model.settings.model_copy(update={"weight_decay": 0.0})
        made = training.Training(initial, model._loss, chosen, 3, earlier=3)
        return made, made.draw_batch(long_tailed, USERS, training.seed_generator(3, 2)), initial

    return get


def naive_logits(name, w, inputs, noise=0.0):
    """The logits of the users, as the papers write them, from dense (batch, items) inputs, and the divergences."""
    divergence = 0.0
    if name == "mult_vae":  # Liang et al. 2018, eq. 5 and 7
        encoded = np.tanh(inputs @ w["item_in"] + w["encoder_bias"])
        posterior = encoded @ w["to_latent"] + w["latent_bias"]
        mean, variance = posterior[:, :3], np.exp(posterior[:, 3:])
        hidden = np.tanh((mean + noise * np.sqrt(variance)) @ w["from_latent"] + w["decoder_bias"])
        divergence = 0.5 * np.sum(mean**2 + variance - 1 - np.log(variance), axis=1)
    elif name == "mult_dae":
        hidden = np.tanh(inputs @ w["item_in"] + w["hidden_bias"])
    else:  # Wu et al. 2016
        hidden = 1 / (1 + np.exp(-(inputs @ w["item_in"] + w["user_node"][USERS] + w["hidden_bias"])))
    return hidden @ w["item_out"] + w["item_bias"], divergence


def naive_loss(name, w, x, inputs, noise, beta):
    """Mean loss of the users."""
    logits, divergence = naive_logits(name, w, inputs, noise)
    if name == "cdae":
        likes = 1 / (1 + np.exp(-logits))
        return -np.mean(np.sum(x * np.log(likes) + 0.3 * (1 - x) * np.log(1 - likes), axis=1))
    return np.mean(beta * divergence - np.sum(x * log_softmax(logits, axis=1), axis=1))


def to_dense(interactions, values=None):
    rows = interactions[USERS]
    if values is not None:
        rows = csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)
    return rows.toarray().astype(float)


@every_model
def test_the_loss_agrees_with_the_papers_in_float64(name, steps, long_tailed):
    made, batch, weights = steps(name)
    inputs, noise = to_dense(long_tailed, batch.values.numpy()), batch.noise.numpy()
    expected = naive_loss(name, weights, to_dense(long_tailed) > 0, inputs, noise, beta=0.7)  # min(.7, 3 / 4)
    assert made.loss(made.tensors, batch).item() == pytest.approx(expected, rel=1e-6)


@every_model
def test_scores_are_the_logits_of_the_whole_history(name, long_tailed):
    """The scores in NumPy and the logits that PyTorch trains are one function, without dropout and noise."""
    model = make_model(name).fit(long_tailed)
    w = {key: array.astype(float) for key, array in model.weights.items()}
    inputs = to_dense(long_tailed) / np.linalg.norm(to_dense(long_tailed), axis=1, keepdims=True)
    expected, _ = naive_logits(name, w, inputs)
    np.testing.assert_allclose(model.scores(long_tailed[USERS], users=USERS), expected, atol=1e-4)


def test_the_kl_weight_rises_to_its_cap_and_stays():
    model = make_model("mult_vae", beta_cap=0.2, anneal_steps=1000)
    assert [model.beta(update) for update in (0, 50, 100, 200, 201, 10**6)] == [0, 0.05, 0.1, 0.2, 0.2, 0.2]
    assert make_model("mult_vae", beta_cap=0.2, anneal_steps=0).beta(0) == 0.2


def fit_watched(histories, targets):
    return FitOptions(validation=ValidationUsers(histories, targets))


@pytest.fixture
def cut(long_tailed):
    """(train, histories, targets): the last 60 users, watched, with every fifth edge as a target."""
    watched = long_tailed[240:]
    learned = np.bincount(long_tailed[:240].indices, minlength=120) > 0
    _, watched = split_matrix(watched, learned[watched.indices])
    return long_tailed[:240], *split_matrix(watched, np.arange(watched.nnz) % 5 == 0)


@every_model
def test_the_best_epoch_is_kept(name, cut, monkeypatch):
    monkeypatch.setattr(autoencoder, "PATIENCE", 4)
    train, histories, targets = cut
    model, values, snapshots = make_model(name, epochs=60, learning_rate=0.03), [], []

    def note(epoch):
        values.append(epoch.values["validation ndcg@100"])
        snapshots.append(model.scores(histories))

    model.fit(train, replace(fit_watched(histories, targets), on_epoch=note))
    best = int(np.argmax(values))
    assert model.best_epoch == best + 1
    assert len(values) == min(60, best + 1 + 4)  # patience, then no more
    assert len(values) < 60 and best > 0
    np.testing.assert_array_equal(model.scores(histories), snapshots[best])


def test_training_users_are_monitored_without_validation_users(long_tailed):
    seen = []
    model = make_model("mult_dae").fit(long_tailed, FitOptions(on_epoch=lambda epoch: seen.append(epoch.values)))
    assert len(seen) == 6 and all(0 < values["validation ndcg@100"] < 1 for values in seen)
    trained, histories, targets = make_model("mult_dae")._validation_users(long_tailed, None)
    users = np.setdiff1d(np.flatnonzero(np.diff(long_tailed.indptr)), trained)
    assert len(users) == 0.05 * np.count_nonzero(np.diff(long_tailed.indptr) > 1)
    assert ((histories + targets) != long_tailed[users]).nnz == 0 and histories.multiply(targets).nnz == 0
    counts = np.diff(long_tailed[users].indptr)
    np.testing.assert_array_equal(np.diff(targets.indptr), np.maximum(1, counts // 5))
    without = long_tailed.tolil()
    without[users] = 0  # what held-out users like is not learned from
    again = make_model("mult_dae").fit(without := csr_matrix(without), fit_watched(histories, targets))
    learned = np.bincount(without.indices, minlength=120) > 0
    known = histories[[row for row in range(len(users)) if learned[histories[[row]].indices].all()]]
    np.testing.assert_array_equal(again.scores(known), model.scores(known))
    assert known.shape[0] > 10


def test_annealing_goes_on_where_the_earlier_fit_was_best(long_tailed, monkeypatch):
    first, seen = make_model("mult_vae").fit(long_tailed), []
    model = make_model("mult_vae")
    monkeypatch.setattr(model, "beta", lambda update: seen.append(update) or 0.1)
    model.fit(long_tailed, FitOptions(start=Start(first, *(np.arange(size) for size in long_tailed.shape))))
    steps = -(-(len(long_tailed.indptr) - 1 - 15) // 50)  # an epoch; 15 users are held out
    assert seen[:3] == [first.best_epoch * steps + step for step in range(3)]


def test_the_fit_does_not_depend_on_pytorchs_own_generator_or_threads(long_tailed, torch):
    torch.manual_seed(1)
    first = make_model("mult_vae").fit(long_tailed).scores(long_tailed)
    torch.manual_seed(2)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        np.testing.assert_array_equal(make_model("mult_vae").fit(long_tailed).scores(long_tailed), first)
        assert torch.get_num_threads() == before + 1  # put back
    finally:
        torch.set_num_threads(before)


def test_a_fitted_model_scores_without_pytorch(long_tailed, tmp_path):
    make_model("mult_vae").fit(long_tailed).save(tmp_path)
    script = (
        "import sys, pathlib, scipy.sparse\nfrom oneclass.models import registry\n"
        "model = registry.MODELS['mult_vae'].load(sys.argv[1])\n"
        "scores = model.scores(scipy.sparse.csr_matrix([[1.0] * 120]))\n"
        "print(scores.shape, 'torch' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        check=True,
        capture_output=True,
        text=True,
    )
    assert process.stdout == "(1, 120) False\n"


def test_dropout_hides_its_share_of_the_entries_anew_in_each_epoch(steps, long_tailed):
    from oneclass.models.autoencoders import training

    made, everybody = steps("mult_dae")[0], np.arange(300)
    first, second = (made.draw_batch(long_tailed, everybody, training.seed_generator(3, epoch)) for epoch in (2, 3))
    kept = first.values.numpy()
    lengths = np.repeat(np.sqrt(np.diff(long_tailed.indptr)), np.diff(long_tailed.indptr))
    np.testing.assert_allclose(np.unique(np.round(kept * lengths * 0.5, 5)), [0, 1])  # x / |x|, over the entries left
    assert abs((kept == 0).mean() - 0.5) < 4 * np.sqrt(0.25 / long_tailed.nnz)
    assert (first.values != second.values).any()


def test_a_user_of_no_training_has_the_mean_node(long_tailed):
    model = make_model("cdae").fit(long_tailed)
    inside, _, _ = make_model("cdae")._validation_users(long_tailed, None)
    out = np.setdiff1d(np.arange(300), inside)
    np.testing.assert_array_equal(model.scores(long_tailed[out], users=out), model.scores(long_tailed[out]))
    np.testing.assert_allclose(model.weights["user_node"][inside].mean(axis=0), model.weights["unseen_node"], atol=1e-6)
    assert np.abs(model.scores(long_tailed[inside], users=inside) - model.scores(long_tailed[inside])).max() > 1e-4


def test_a_loss_that_grows_without_bound_is_reported(long_tailed):
    model = make_model("mult_dae")
    finite = model._loss
    model._loss = lambda weights, batch: finite(weights, batch) * np.nan
    with pytest.raises(ValueError, match="the loss is nan in epoch 1; lower learning_rate"):
        model.fit(long_tailed)


@every_model
def test_a_gpu_learns_what_a_cpu_learns(name, long_tailed, torch, monkeypatch):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    on_gpu = make_model(name, epochs=2).fit(long_tailed)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_cpu = make_model(name, epochs=2).fit(long_tailed)
    np.testing.assert_allclose(on_gpu.scores(long_tailed), on_cpu.scores(long_tailed), atol=1e-3)
