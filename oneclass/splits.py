"""Splits of interactions into training and test pairs by the caller, to be evaluated."""

import warnings
from typing import Any

from oneclass.interactions import Interactions

PAIR = ["user_id", "item_id"]


class Split:
    """What models are fitted on and what they are to find; a pair in both counts as training, with a warning.

    Attributes:
        name: of its rows in the tables of an evaluation.
        train, test: the interactions.
    """

    def __init__(self, name: str, train: Any, test: Any) -> None:
        """Name two sets of `Interactions`, or of what it reads.

        Raises:
            ValueError: ids are texts on one side and numbers on the other.
        """
        self.name, self.train, self.test = name, read_interactions(train), read_interactions(test)
        kinds = [[str(of.events.schema[name]) for name in PAIR] for of in (self.train, self.test)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"split {name}: ids of train are {kinds[0]} and of test {kinds[1]}; give both alike")
        tested = self.test.events.select(PAIR).unique()
        if repeated := len(tested.join(self.train.events, on=PAIR, how="semi")):
            warnings.warn(
                f"split {name}: {repeated} of {len(tested)} test pairs are training pairs too, and are left out, for "
                "models rank what a user does not have; take them out of train, or evaluate the whole log by the "
                "protocol next_events, which ranks what people come back to",
                stacklevel=2,
            )


def as_splits(data: Any) -> list[Split]:
    """Return the splits that `data` consists of, with names of their own; none if it is not of splits.

    Raises:
        ValueError: two have one name.
    """
    splits = [data] if isinstance(data, Split) else data if isinstance(data, list | tuple) else []
    splits = [split for split in splits if isinstance(split, Split)]
    if len({split.name for split in splits}) < len(splits):
        raise ValueError("splits: two have one name; give each its own")
    return splits


def read_interactions(data: Any) -> Interactions:
    """Return `Interactions`, made of what else it reads."""
    return data if isinstance(data, Interactions) else Interactions(data)
