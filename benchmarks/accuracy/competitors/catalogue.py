"""Which libraries, their settings and where these are sought."""

from collections.abc import Callable
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks.accuracy.competitors import scorers
from benchmarks.accuracy.competitors.scorers import Scorer


class Library(NamedTuple):
    """A library's model.

    Attributes:
        ours: the model of ours that it is held beside.
        fit: how it is fitted.
        settings: the tuned ones.
        space: where they are sought.
        start: at which a search begins, if not at `settings`.
    """

    ours: str
    fit: Callable[..., Scorer]
    settings: dict[str, Any]
    space: dict[str, BaseDistribution]
    start: dict[str, Any] | None = None


# Chosen by nDCG@100 of the validation users of ml-1m, seed 1, where they reach the figure beside each, S after it; N is
# how many settings were tried. hpfrec takes minutes a fit: its priors are its own defaults, its iterations of three.
LIBRARIES = {
    "implicit_als": Library(  # .4301, .9425, N = 14
        "wmf",
        scorers.implicit_als,
        {"factors": 256, "regularization": 65.0, "alpha": 7.7, "iterations": 16},
        {
            "factors": CategoricalDistribution((64, 128, 256, 512)),
            "iterations": IntDistribution(6, 30),
            "regularization": FloatDistribution(1, 300, log=True),
            "alpha": FloatDistribution(1, 40, log=True),
        },
    ),
    "irspack_ials": Library(  # .4324, .9431, N = 33, one of them of the loss ORIGINAL
        "wmf",
        scorers.irspack_ials,
        {
            "n_components": 256,
            "alpha0": 0.15,
            "reg": 0.01,
            "nu": 1.0,
            "nu_star": 1.0,
            "loss_type": "IALSPP",
            "train_epochs": 16,
        },
        {
            "n_components": CategoricalDistribution((64, 128, 256, 512)),
            "train_epochs": IntDistribution(6, 24),
            "alpha0": FloatDistribution(0.05, 0.5, log=True),
            "reg": FloatDistribution(3e-3, 3e-2, log=True),
            "nu": FloatDistribution(0.5, 1.25),
        },
    ),
    "irspack_ease": Library(  # .4197, .9267, N = 8
        "mrf_dense", scorers.irspack_ease, {"reg": 700.0}, {"reg": FloatDistribution(20, 5000, log=True)}
    ),
    "irspack_edlae": Library(  # .4258, .9229, N = 16
        "mrf_dense",
        scorers.irspack_edlae,
        {"reg": 244.9, "dropout_p": 0.4553},
        {"reg": FloatDistribution(1, 5000, log=True), "dropout_p": FloatDistribution(0.0, 0.9)},
        start={"reg": 300.0, "dropout_p": 0.3},
    ),
    "irspack_slim": Library(  # .4160, .9284, N = 18
        "slim",
        scorers.irspack_slim,
        {"alpha": 0.07, "l1_ratio": 0.0005},
        {"alpha": FloatDistribution(0.01, 0.3, log=True), "l1_ratio": FloatDistribution(5e-4, 0.1, log=True)},
    ),
    "fastslim": Library(  # not chosen: a fit there had not ended after 37 s CPU
        "slim",
        scorers.fastslim,
        {"lambd": 2.0, "beta": 200.0},
        {"lambd": FloatDistribution(0.1, 30, log=True), "beta": FloatDistribution(1, 2000, log=True)},
    ),
    "kindling": Library(  # .4223, .9359, N = 6; with its own settings .4006, with these rounded to four digits .3718
        "mrf_dense",
        scorers.kindling,
        {
            "ridge": 0.16162477560638372,
            "ease_denoise": 1.4406489868843162,
            "last_item_alpha": 5.718740867244332e-05,
            "cold_user_pop_prior": 6.046651452636795,
        },
        {
            "ridge": FloatDistribution(0.02, 3, log=True),
            "ease_denoise": FloatDistribution(0, 2),
            "last_item_alpha": FloatDistribution(0, 0.5),
            "cold_user_pop_prior": FloatDistribution(0, 20),
        },
        start={"ridge": 1.0, "ease_denoise": 0.0, "last_item_alpha": 0.25, "cold_user_pop_prior": 8.0},  # its own
    ),
    "hpfrec": Library(  # .3594, .9275, N = 3
        "hpf",
        scorers.hpfrec,
        {"k": 36, "a": 0.3, "a_prime": 0.3, "c": 0.3, "c_prime": 0.3, "maxiter": 150},
        {
            "k": IntDistribution(10, 100, log=True),
            "a": FloatDistribution(0.05, 2, log=True),
            "a_prime": FloatDistribution(0.1, 10, log=True),
            "c": FloatDistribution(0.05, 2, log=True),
            "c_prime": FloatDistribution(0.1, 10, log=True),
            "maxiter": IntDistribution(50, 400, log=True),
        },
    ),
}
