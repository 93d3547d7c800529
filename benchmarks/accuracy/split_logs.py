"""Split a log for `benchmarks.accuracy.libraries` by the pipeline's stages, or load the splits that a run stored."""

import argparse
from dataclasses import dataclass

from benchmarks.accuracy.bayesian_models import build_splits
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import RunSettings, resolve_limits, resolve_settings
from oneclass.tasks import datasets
from oneclass.tasks.citation.record import load_run
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home, resolve_root
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from oneclass.tasks.tuning.search import ValidationData, load_validation

PROTOCOLS_OF_TABLES = ("strong_generalization", "leave_one_out")


@dataclass
class SplitLog:
    """The splits of a log, to tune, fit and test rows on.

    Attributes:
        digests: of the stored splits: one, or the folds of a run.
        splits: edges to fit on and test parts.
        validations: edges to fit trials on and validation parts.
        run_id: run that stored the splits; None if this program made them.
    """

    home: Home
    protocol: str
    digests: list[str]
    splits: list[SplitMatrices]
    validations: list[ValidationData]
    run_id: str | None = None

    @property
    def parts(self) -> list[Part]:
        """The test users of each split."""
        return [split.parts["test"] for split in self.splits]

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes in the log's file; training users and edges are of the first split."""
        (users, items), edges = self.splits[0].train.shape, self.splits[0].train.nnz
        tested = sum(part.targets.shape[0] for part in self.parts)
        return {"training users": users, "items": items, "edges": edges, "test users": tested}


def split_log(options: argparse.Namespace, name: str, files: list[str], folder: str) -> SplitLog:
    """Ingest and split a log, with its home in the folder."""
    run = resolve_run(options, name, files, folder)
    split = build_splits(run)[options.protocol]
    digest = matrices.store_split(run.home, split)
    validation = load_validation(run.home, options.protocol, digest, options.seed)
    return SplitLog(run.home, options.protocol, [digest], [split], [validation])


def resolve_run(options: argparse.Namespace, name: str, files: list[str], folder: str) -> RunSettings:
    """Resolve the settings of a run on the log, with its home in the folder and one split of users."""
    own = datasets.load_dataset(name, resolve_root(folder), with_logs=bool(files)).split
    return resolve_settings(
        BackfillParameters(
            dataset=name,
            home=folder,
            source=files,
            models=options.models,
            seed=options.seed,
            protocols=[options.protocol],
            threads=options.threads,
            settings={"split.scheme": "liang2018"} if "held_out_users" in own else {"split.min_validation_users": 0},
        )
    )


def load_run_split(options: argparse.Namespace, name: str) -> SplitLog:
    """Load the split or folds that a run stored, with the validation edges that its own searches chose settings by.

    Raises:
        InputError: there is no such run, it lacks the protocol, or a split is gone.
    """
    root = resolve_root(options.home)
    home = Home(root, name, resolve_limits(options.threads, None))
    record = load_run(home, datasets.load_dataset(name, root), options.run)
    if not (names := list_splits(options.protocol, record.splits)):
        raise InputError(
            f"--protocol {options.protocol}: run {record.run_id} of {name} has {', '.join(record.protocols) or 'none'}."
        )
    digests = [record.splits[split] for split in names]
    if gone := [digest for digest in digests if not matrices.has_split(home, digest)]:
        raise InputError(f"{name}: the split {gone[0]} of run {record.run_id} is no longer stored; run it again.")
    validations = [load_validation(home, options.protocol, digest, record.settings["seed"]) for digest in digests]
    splits = [matrices.load_split(home, digest) for digest in digests]
    return SplitLog(home, options.protocol, digests, splits, validations, record.run_id)
