"""A model for searches, and splits to search it on."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch
from oneclass.models.settings import Choice, ModelSettings, NumericRange
from tests.conftest import log_into
from tests.tasks.conftest import split_likes

PROTOCOLS = ("strong_generalization", "leave_one_out", "given")


class ToySettings(ModelSettings):
    """Popularity, mixed with noise."""

    search_space: ClassVar = {
        "noise": NumericRange(0.0, 1.0),
        "epochs": NumericRange(8, 32),
        "kind": Choice(("plain", "odd")),
    }

    noise: float | None = Field(None, description="Share of noise in the scores, none where it is not set.")
    epochs: int = Field(16, description="Passes that do nothing.")
    kind: str = Field("plain", description="`odd` is refused where the noise is high.")


class Toy(Model):
    """Popularity with noise, which knows its scores at once; of the second score the noise is doubled."""

    name = "toy"
    Settings = ToySettings
    score_names = ("noisier", "score")
    is_iterative = True
    seen: ClassVar[list] = []  # what each fit was given

    def _fit(self, interactions, options):
        if self.settings.kind == "odd" and (self.settings.noise or 0) > 0.8:
            raise ValueError("noise: too high\nfor this kind")
        self.draws = np.random.default_rng(self.seed).random(interactions.shape[1])
        self.seen.append({"edges": interactions.nnz, "validation": options.validation, "epochs": 0})
        for number in range(1, self.settings.epochs + 1):
            self.seen[-1]["epochs"] = number
            options.on_epoch(Epoch(number, self.settings.epochs, 0.0))

    def _scores(self, histories, users, score):
        noise = (self.settings.noise or 0) * (2 if score == "noisier" else 1)
        if 0.35 < noise < 0.4:
            noise = np.nan
        scores = (1 - noise) * self.item_degrees / self.item_degrees.max() + noise * self.draws
        return np.tile(scores.astype(np.float32), (histories.shape[0], 1))


def split_toy_log(home, protocols=PROTOCOLS):
    """Split a log of 200 users and 60 items with a long tail; the second file is the test part of the given split."""
    generator = np.random.default_rng(2)
    share = 1 / np.arange(1, 61)
    liked = [generator.choice(60, size=14, replace=False, p=share / share.sum()) for _ in range(200)]
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items[:11]])
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items[11:]], file_id=2)
    return split_likes(home, *protocols, plan={"given_files": ((1,), (2,))}, held_out_share=0.3)
