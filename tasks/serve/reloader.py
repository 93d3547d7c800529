"""Load each new publication beside the served one, then replace it."""

import contextlib
import logging
import os
import threading
from pathlib import Path

from fastapi import HTTPException

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender, load
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0


class PublicationWatcher:
    """The served recommender, and a thread that polls the link `published`.

    A request keeps the recommender with which it started, so a replacement loses no request.

    Attributes:
        loaded: the served recommender; None without a publication yet.
        error: why a newer publication could not be loaded; None without one.
    """

    def __init__(self, root: Path, dataset: str, *, seconds: float = POLL_SECONDS) -> None:
        """Load the publication, or begin without one if nothing is published yet.

        Raises:
            InputError, Damaged: as `tasks.recommend.load`.
        """
        self._root, self._dataset, self._seconds = root, dataset, seconds
        self._link = Home(root, dataset).published
        self._seen = self._current_target()
        self.loaded = None if self._seen is None else self._load_publication()
        self.error: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True, name="publication watcher")

    async def __aenter__(self) -> None:
        """Begin to poll."""
        self._thread.start()

    async def __aexit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def shop(self) -> Recommender:
        """The served recommender.

        Raises:
            HTTPException: 503, there is none yet.
        """
        if self.loaded is None:
            detail = f"{self._dataset}: no publication is served ({self.error or 'nothing is published yet'})."
            raise HTTPException(503, f"{detail} Ask again in a while.", {"retry-after": "1"})
        return self.loaded

    def _poll(self) -> None:
        while not self._stopped.wait(self._seconds):
            target = self._current_target()
            if target == self._seen:
                continue
            try:
                self.loaded, self.error = self._load_publication(), None
                logger.info("%s: serving publication %s", self._dataset, self.loaded.publication)
            except Exception as error:  # noqa: BLE001  (the old publication stays served, whatever is wrong with the new)
                self.error = str(error)
                kept = "no publication is" if self.loaded is None else f"publication {self.loaded.publication} stays"
                logger.warning("%s: %s served, a newer one cannot be loaded: %s", self._dataset, kept, error)
            self._seen = target

    def _current_target(self) -> str | None:
        with contextlib.suppress(OSError):
            return os.readlink(self._link)
        return None

    def _load_publication(self) -> Recommender:
        """Load the publication and warm it up by a request of each kind."""
        shop = load(self._root, self._dataset)
        shop.recommend_for(shop.users["user_id"][0])
        shop.recommend(shop.items["item_id"].head(1))
        if shop.rules.declared.rules.request_filters:
            shop.recommend(shop.items["item_id"].head(1), where="true")
        with contextlib.suppress(InputError):  # the model has no similarity of items
            shop.similar_items(shop.items["item_id"][0])
        return shop
