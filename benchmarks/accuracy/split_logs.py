"""The split logs of `benchmarks.accuracy.libraries`: made by the pipeline's own stages, or stored by a run."""

import argparse
from dataclasses import dataclass

from benchmarks.accuracy.bayesian_models import prepared
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import RunSettings, resolve_limits, resolve_settings
from oneclass.tasks import datasets
from oneclass.tasks.citation.record import load_run
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home, resolve_root
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from oneclass.tasks.tuning.search import ValidationData, load_validation

PROTOCOLS_OF_TABLES = ("strong_generalization", "leave_one_out")


@dataclass
class Problem:
    """A split log: what rows are tuned on, fitted on and tested on.

    Attributes:
        digest: of the stored split.
        validation: its edges to fit trials on, and the part that values them.
        run_id: the run that stored the split; None if this program made it.
    """

    home: Home
    protocol: str
    digest: str
    split: SplitMatrices
    validation: ValidationData
    run_id: str | None = None

    @property
    def test(self) -> Part:
        return self.split.parts["test"]

    @property
    def sizes(self) -> dict[str, int]:
        """What the log's file says of the split."""
        (users, items), edges = self.split.train.shape, self.split.train.nnz
        return {"training users": users, "items": items, "edges": edges, "test users": self.test.targets.shape[0]}


def split_log(options: argparse.Namespace, name: str, files: list[str], folder: str) -> Problem:
    """Ingest and split a log with a home in the folder."""
    run = settle_run(options, name, files, folder)
    split = prepared(run)[options.protocol]
    digest = matrices.store_split(run.home, split)
    validation = load_validation(run.home, options.protocol, digest, options.seed)
    return Problem(run.home, options.protocol, digest, split, validation)


def settle_run(options: argparse.Namespace, name: str, files: list[str], folder: str) -> RunSettings:
    """The settings of a run on the log, at home in the folder, with one split of users."""
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


def load_run_split(options: argparse.Namespace, name: str) -> Problem:
    """Load the split that a run stored, with the validation edges that its own searches chose settings by.

    Raises:
        InputError: there is no such run, or it has no single split of the protocol.
    """
    root = resolve_root(options.home)
    home = Home(root, name, resolve_limits(options.threads, None))
    record = load_run(home, datasets.load_dataset(name, root), options.run)
    if options.protocol not in record.splits:
        known = ", ".join(split for split in record.splits if split in PROTOCOLS) or "none"
        raise InputError(
            f"--protocol {options.protocol}: run {record.run_id} of {name} has no single split of it; it has {known}."
        )
    digest = record.splits[options.protocol]
    if not matrices.has_split(home, digest):
        raise InputError(f"{name}: the split {digest} of run {record.run_id} is no longer stored; run it again.")
    validation = load_validation(home, options.protocol, digest, record.settings["seed"])
    return Problem(home, options.protocol, digest, matrices.load_split(home, digest), validation, record.run_id)
