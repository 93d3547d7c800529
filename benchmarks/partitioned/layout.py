"""Where partitions keep what they hand on, in one folder that every worker sees."""

from dataclasses import dataclass
from pathlib import Path

from tasks.stores.home import Home, Limits

TABLES = ("curated.interactions", "splits.strong_generalization", "splits.leave_one_out")


@dataclass(frozen=True)
class Layout:
    """The folder, and what every step must know.

    Attributes:
        folder: absolute.
        parts: number of partitions.
        threshold, min_user_edges: of binarize.
        held_out_share: of strong_generalization, by hash.
        seed: of the hashes.
    """

    folder: Path
    parts: int
    threshold: float
    min_user_edges: int
    held_out_share: float
    seed: int

    def home(self, name: str) -> Home:
        """A home of its own, for a log or a partition, with one thread."""
        return Home(self.folder / name, "demo", Limits(threads=1, memory=2 << 30))

    def events(self, log: int | str, part: int | str) -> str:
        """Events of one log and partition; `*` for all of them."""
        return str(self.folder / "events" / f"log={log}" / f"part={part}" / "*.parquet")

    def file(self, name: str, part: int | str = "all") -> str:
        """What a step hands on: of a partition, of all (`*`), or what a reduction made of them (`all`)."""
        return str(self.folder / f"{name}-{part}.parquet")
