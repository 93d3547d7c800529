"""Metrics of the heads of users' lists, of the test users of all splits of an evaluation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.interactions import attribute_kinds
from oneclass.models.evaluation.list_metrics import ListFigures, ListMetric, Lists, compute_list_metrics
from oneclass.tasks.evaluate.ranking import RankedTargets
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home


def check_attributes(metrics: Sequence[ListMetric], items: pl.DataFrame | None) -> None:
    """Refuse metrics of attributes that the items do not have, or that are numbers.

    Raises:
        ValueError: it names the attributes that there are.
    """
    kinds = {} if items is None else attribute_kinds(items, "item_id")
    known = [name for name, kind in kinds.items() if kind != "number"]
    if unknown := [metric for metric in metrics if metric.attribute and metric.attribute not in known]:
        where = f"take one of {', '.join(known)}" if known else "give texts by Interactions(items=...)"
        raise ValueError(f"metrics {unknown[0].name}: the items have no attribute {unknown[0].attribute}; {where}")


class HeadsOfLists:
    """Computes metrics of the first items of the test users' lists.

    Args:
        metrics: those to compute.
        digests: of the splits with a test part, in their order.
        items: the attributes by `item_id`.
        item_ids: by curated index.

    Attributes:
        length: of the longest list that a metric needs; 0 without metrics.
    """

    def __init__(
        self,
        metrics: Sequence[ListMetric],
        home: Home,
        digests: Sequence[str],
        items: pl.DataFrame | None,
        item_ids: Sequence[Any],
    ) -> None:
        self.length = max((metric.k for metric in metrics), default=0)
        self._metrics, self._item_count = list(metrics), len(item_ids)
        splits = [matrices.load_split(home, digest) for digest in digests] if metrics else []
        self._splits = [split for split in splits if "test" in split.parts]
        attributes = dict.fromkeys(metric.attribute for metric in metrics if metric.attribute)
        self._values = {name: _read_values(items, name, item_ids) for name in attributes if items is not None}

    def compute(self, ranked: Sequence[RankedTargets]) -> ListFigures:
        """Compute the metrics of one score's lists, one block of users for each split."""
        if not self._metrics:
            return ListFigures({}, {})
        folds = []
        for split, block in zip(self._splits, ranked, strict=True):
            part = split.parts["test"]
            rows = np.flatnonzero(np.isin(part.users, block.users))
            histories, excluded, targets = (of[rows] for of in (part.histories, part.excluded, part.targets))
            values = {name: of[split.items] for name, of in self._values.items()}
            lists = Lists(block.ranks.first, histories, excluded, targets, split.train, values)
            folds.append((lists, split.items))
        return compute_list_metrics(self._metrics, folds, self._item_count)


def _read_values(items: pl.DataFrame, attribute: str, item_ids: Sequence[Any]) -> csr_matrix:
    """Return (items, values) CSR, each row the shares of an item's values."""
    value_of_item = dict(items.select("item_id", attribute).iter_rows())
    listed = [list_texts(value_of_item.get(item)) for item in item_ids]
    columns = {text: column for column, text in enumerate(sorted({text for row in listed for text in row}))}
    indptr = np.append(0, np.cumsum([len(row) for row in listed]))
    indices = [columns[text] for row in listed for text in row]
    shares = np.repeat([1 / max(len(row), 1) for row in listed], np.diff(indptr))
    return csr_matrix((shares, indices, indptr), (len(listed), len(columns)))


def list_texts(value: Any) -> list[str]:
    """Return the distinct texts of a cell of an attribute, which has one, several or none."""
    if isinstance(value, list):
        return sorted({text for text in value if text is not None})
    return [] if value is None else [str(value)]
