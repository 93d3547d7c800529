"""Answers from what is published now: a newer publication is loaded beside the old one, then takes its place."""

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Self

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender, load
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0


class PublicationWatcher:
    """The recommender that answers, and a thread that looks where `published` points to.

    A request keeps the recommender that it began with, so none is lost when another takes its place.

    Attributes:
        shop: what answers now.
        error: why a newer publication does not answer; None where there is none.
    """

    def __init__(self, root: Path, dataset: str, *, threads: int = 1, seconds: float = POLL_SECONDS) -> None:
        """Load what is published; raises what `tasks.recommend.load` raises."""
        self._root, self._dataset, self._threads, self._seconds = root, dataset, threads, seconds
        self._link = Home(root, dataset).published
        self._seen = self._current_target()
        self.shop, self.error = self._load_publication(), None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True, name="following")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ended.wait(self._seconds):
            target = self._current_target()
            if target == self._seen:
                continue
            try:
                self.shop, self.error = self._load_publication(), None
                logger.info("%s: answers come from publication %s now", self._dataset, self.shop.publication)
            except Exception as error:  # noqa: BLE001  (the old one goes on answering, whatever is wrong with the new)
                self.error = str(error)
                logger.warning("%s: publication %s goes on answering: %s", self._dataset, self.shop.publication, error)
            self._seen = target

    def _current_target(self) -> str | None:
        with contextlib.suppress(OSError):
            return os.readlink(self._link)
        return None

    def _load_publication(self) -> Recommender:
        """What is published, after a request of each kind, so that the first of a stranger is as fast as others."""
        shop = load(self._root, self._dataset, threads=self._threads)
        shop.recommend_for(shop.users["user_id"][0])
        shop.recommend(shop.items["item_id"].head(1))
        with contextlib.suppress(InputError):  # a model that knows nothing of items beside each other
            shop.similar_items(shop.items["item_id"][0])
        return shop
