"""The commands, and help around them: `oneclass NAME` after installation, `python -m flows.NAME` in a checkout.

Each function imports what it needs, so that `--help` answers at once.
"""

import difflib
import inspect
import logging
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from oneclass.flows import cli
from oneclass.flows.parameters import (
    CiteParameters,
    DatasetParameters,
    DeployParameters,
    ExplainParameters,
    ForgetParameters,
    InspectParameters,
    NightlyRetrainParameters,
    NotifyParameters,
    PromoteParameters,
    RecommendParameters,
    ReplayParameters,
    RunParameters,
    ServeParameters,
    TuneParameters,
)
from oneclass.tasks.errors import InputError

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings
    from oneclass.tasks.datasets import Dataset
    from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)


def _prepare_run(given: RunParameters) -> "RunSettings":
    from oneclass.flows.prepare import notify_startup_failure, prepare_run

    with notify_startup_failure(given):
        return prepare_run(given.to_backfill())


def _prepare_backfill(given: ReplayParameters) -> "RunSettings | str":
    if given.every is None and not given.dry_run:
        return _prepare_run(given)
    from oneclass.flows import prepare, replay

    with prepare.notify_startup_failure(given):
        return replay.prepare_replay(given)


def _backfill(given: ReplayParameters, run: "RunSettings") -> str:
    """From raw logs to published tables."""
    if given.every is not None:
        from oneclass.flows.replay import replay

        return replay(given, run)
    from oneclass.flows.pipeline import backfill, format_result
    from oneclass.flows.prepare import hand_over

    with hand_over(run):
        return format_result(backfill(**given.to_backfill().model_dump()))


def _nightly_retrain(given: NightlyRetrainParameters, run: "RunSettings") -> str:
    """What the nightly deployment runs, once, from a terminal."""
    from prefect.exceptions import CancelledRun

    from oneclass.flows.pipeline import format_result, nightly_retrain
    from oneclass.flows.prepare import hand_over

    try:
        with hand_over(run):
            return format_result(nightly_retrain(**given.model_dump()))
    except CancelledRun as error:
        raise InputError(f"{run.dataset.name}: {error}") from error


def _prepare_tune(given: TuneParameters) -> "RunSettings":
    from oneclass.flows.prepare import check_home, scan_sources

    scan_sources(given.to_backfill())
    from oneclass.flows.settings import resolve_search_space, resolve_settings

    run = resolve_settings(given.to_backfill())
    resolve_search_space(run, given)
    check_home(run)
    return run


def _tune(given: TuneParameters, run: "RunSettings") -> str:
    """Search a model's settings on validation users; the test part is not read.

    What is named in --set stays fixed; the search begins at the data set's own settings, or those of --config.
    """
    from oneclass.flows.prepare import hand_over
    from oneclass.flows.tune_flow import tune

    with hand_over(run):
        tuned = tune(**given.model_dump())
    return f"{tuned.table}\n\nBest settings: {tuned.file}\nTake them with --config {tuned.file}"


def _deploy(given: DeployParameters) -> str:
    """Deploy the nightly run of a data set; these flags apply to each night."""
    from oneclass.flows.deploy_flow import deploy

    deployment = deploy(given)
    return (
        f"Deployed {deployment.name}: every night at {given.cron} ({given.timezone}), in "
        f"{deployment.parameters['home']}.\n"
        f"Start one now:    prefect deployment run {deployment.flow_name}/{deployment.name}\n"
        f"Start a worker:   prefect worker start --pool {given.pool}"
    )


def _inspect(given: InspectParameters) -> str:
    """How logs would be read: their columns, first events and losses, and the data set's file to paste or write."""
    from oneclass.tasks import datasets
    from oneclass.tasks.ingest import preview
    from oneclass.tasks.stores import home

    root = home.resolve_root(given.home)
    name, has_logs, is_written = given.write or given.dataset, bool(given.source), given.write is not None
    dataset = datasets.load_dataset(name, root, with_logs=has_logs, is_declared=is_written, columns=given.columns)
    return preview.inspect_logs(root, dataset, given.source, write=is_written)


def _find_home(given: DatasetParameters) -> "tuple[Home, Dataset]":
    """Return a data set's home and its declaration."""
    from oneclass.tasks import datasets
    from oneclass.tasks.stores import home

    root = home.resolve_root(given.home)
    dataset = datasets.load_dataset(given.dataset, root)
    return home.Home(root, dataset.name), dataset


def _notify(given: NotifyParameters) -> str:
    """Where a run's outcome is sent, without addresses and arguments; with --test, send a message there."""
    from oneclass.flows import settings
    from oneclass.tasks.orchestration import notifications

    dataset = _find_home(given)[1].name
    targets = settings.resolve_notify_settings(given)
    named = notifications.list_targets(targets)
    if given.test:
        return notifications.send_test(targets, dataset)
    notifications.warn_of_missing_targets(targets)
    return f"{dataset}: notifies by {' and '.join(named)}; --test sends a message."


def _promote(given: PromoteParameters) -> str:
    """Without --model and --rollback: show the current publication, the others, and the last decisions."""
    from oneclass.flows import server_access
    from oneclass.tasks import home_page
    from oneclass.tasks.publish import manual
    from oneclass.tasks.settings import check_model
    from oneclass.tasks.stores import runs

    dataset_home, _ = _find_home(given)
    if given.model is not None and given.rollback is not None:
        raise InputError("--model and --rollback: only one of them at a time.")
    if not dataset_home.warehouse.exists():
        raise InputError(f"{dataset_home.warehouse}: does not exist. Run flows.backfill on {given.dataset} first.")
    if given.model is not None:
        check_model(given.model)
    if given.model is not None or given.rollback is not None:
        run_id = str(uuid.uuid4())
        with runs.record_run(dataset_home, run_id, "promote", given.model_dump()) as earlier:
            server_access.sync_run_states(earlier)
            if given.model is not None:
                manual.promote_model(dataset_home, run_id, given.model)
            else:
                manual.roll_back(dataset_home, run_id, given.rollback or None)
        home_page.write_home_page(dataset_home)
    return manual.format_status(dataset_home)


def _prepare_forget(given: ForgetParameters) -> "RunSettings | None":
    from oneclass.flows.forget_flow import restore_run

    return restore_run(given)


def _forget(given: ForgetParameters, run: "RunSettings | None") -> str:
    """Remove users from a home, and publish what the remaining events give, with the settings of the last run.

    Cut off at any moment, the same command goes on from there; until then no other run works on the data set.
    """
    from oneclass.flows.forget_flow import forget_users

    return forget_users(given, run)


def _recommend(given: RecommendParameters) -> str:
    """Recommendations from what is published, for a user of the logs or for any history, or a list for everybody."""
    if sum([given.user is not None, bool(given.history), given.list_ is not None]) != 1:
        raise InputError("--user, --item and --list: give one of them.")
    if given.n is not None and given.n < 1:
        raise InputError(f"--n {given.n}: must be at least 1.")
    from oneclass.tasks.recommend import load, text

    home, dataset = _find_home(given)
    shop = load(home.root, dataset.name)
    if given.list_ is not None:
        found = shop.list_items(given.list_, given.n or 20, category=given.category, window_days=given.window_days)
        return text.format_list(shop, found, given.list_, as_json=given.json_)
    unknown = shop.unknown([*given.history, *given.within])
    user, history = given.user, given.history
    recommend = partial(shop.recommend, history) if user is None else partial(shop.recommend_for, user)
    found = recommend(
        given.n,
        within=given.within or None,
        without=given.without,
        seen=given.seen,
        placement=given.placement,
        where=given.where,
    )
    return text.format_json(shop, found, unknown) if given.json_ else text.format_table(shop, found, unknown)


def _explain(given: ExplainParameters) -> str:
    """One user's history, what is published for them and why, and what each model of that run recommends.

    Also written as a page.
    """
    from oneclass.tasks.explain import views
    from oneclass.tasks.explain.explanation import explain_user
    from oneclass.tasks.ingest.attributes import read_titles

    dataset_home, dataset = _find_home(given)
    if given.n < 1:
        raise InputError(f"--n {given.n}: must be at least 1.")
    explanation = explain_user(dataset_home, given.user, models=given.models, top=given.n, item_ids=given.item)
    titles = read_titles(Path(given.titles), dataset) if given.titles else explanation.titles
    return (
        f"{views.format_explanation(explanation, titles)}\n\nPage: "
        f"{views.write_user_page(dataset_home, explanation, titles)}"
    )


def _cite(given: CiteParameters) -> str:
    """A folder for a paper: a run's table in LaTeX and CSV, and the settings, data and versions behind it."""
    from oneclass.tasks.citation import write_citation

    return f"Folder: {write_citation(_find_home(given)[0], given.run, Path(given.out) if given.out else None)}"


def _serve(given: ServeParameters) -> str:
    """What is published, over HTTP, by default on the loopback; /docs lists the addresses."""
    from oneclass.tasks.serve import access, server

    if given.host not in access.LOOPBACK and given.api_key_file is None:
        raise InputError(f"--host {given.host}: other machines reach it, so it needs --api-key-file FILE.")
    rules = access.AccessRules(
        frozenset({*access.LOOPBACK, *(name.lower() for name in (given.host, *given.host_names))}),
        access.load_key_hashes(given.api_key_file) if given.api_key_file else (),
    )
    home, dataset = _find_home(given)
    names = {"host", "port", "wait", "workers", "access_log"}
    server.run_service(home.root, dataset.name, rules, **given.model_dump(include=names))
    return "Ended."


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        summary: its line in `oneclass --help`.
        parameters: the parameters that its flags set.
        run: takes the parameters, and what `prepare` returned if there is one; returns the text to print. Its docstring
            is the description in the command's own help.
        prepare: of a command that runs flows: what happens before Prefect is loaded (`cli.run_flow`).
        needs_prefect: whether a command that runs no flow loads Prefect.
        example: arguments of a common use, with which the command's help ends.
    """

    summary: str
    parameters: type[DatasetParameters]
    run: Callable[..., str]
    prepare: Callable[[Any], Any] | None = None
    needs_prefect: bool = False
    example: str = "--dataset mine"


_SOURCE, _USER = "--dataset mine --source orders.csv", "--dataset mine --user 42"
COMMANDS = {
    "backfill": Command(
        "from raw logs to published tables", ReplayParameters, _backfill, _prepare_backfill, example=_SOURCE
    ),
    "inspect": Command("how logs would be read, and the data set's file", InspectParameters, _inspect, example=_SOURCE),
    "recommend": Command("recommendations for a user or a history", RecommendParameters, _recommend, example=_USER),
    "serve": Command(
        "recommendations over HTTP on this machine", ServeParameters, _serve, example="--dataset mine --port 8765"
    ),
    "explain": Command(
        "a user's history and recommendations, with reasons", ExplainParameters, _explain, example=_USER
    ),
    "cite": Command("a run's table for a paper, with all it was made of", CiteParameters, _cite),
    "forget": Command(
        "remove users and what was learned from them", ForgetParameters, _forget, _prepare_forget, example=_USER
    ),
    "promote": Command(
        "show the publications, publish another model, or roll back",
        PromoteParameters,
        _promote,
        needs_prefect=True,
        example="--dataset mine --rollback",
    ),
    "tune": Command(
        "search a model's settings", TuneParameters, _tune, _prepare_tune, example="--dataset mine --model wmf"
    ),
    "nightly_retrain": Command("the nightly run, once", NightlyRetrainParameters, _nightly_retrain, _prepare_run),
    "deploy": Command(
        "the nightly run of a data set on the Prefect server", DeployParameters, _deploy, needs_prefect=True
    ),
    "notify": Command(
        "where outcomes are sent, and a test of it", NotifyParameters, _notify, example="--dataset mine --test"
    ),
}


def build_parser(name: str) -> cli.CommandParser:
    """Build the parser of a command."""
    command = COMMANDS[name]
    return cli.build_parser(name, inspect.getdoc(command.run), command.parameters, command.example)


def main(name: str, arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    command, given = COMMANDS[name], build_parser(name).parse_args(arguments)

    def parameters() -> DatasetParameters:
        return cli.parse_parameters(command.parameters, given)

    if (prepare := command.prepare) is not None:
        return cli.run_flow(
            lambda: prepare(parameters()), lambda prepared: command.run(parameters(), prepared), debug=given.debug
        )
    run = cli.run_command if command.needs_prefect else cli.run_without_prefect
    return run(lambda: command.run(parameters()), debug=given.debug)


def run_as_program(name: str) -> NoReturn:
    """Run a command as the program of this process."""
    cli.run_main(lambda: main(name))


def run_script() -> NoReturn:
    """Run the console script `oneclass`: the command that its first argument names, from the installed package."""
    # A command starts its server as a process with `-m`, which would import packages from the current folder.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name in COMMANDS:
        sys.argv = [f"oneclass {name}", *sys.argv[2:]]
        run_as_program(name)
    raise SystemExit(_answer_without_command(sys.argv[1:]))


def _answer_without_command(arguments: list[str]) -> int:
    """Answer arguments that begin with no command, and return the exit status."""
    name = arguments[0] if arguments else ""
    lines = [f"  {known:17} {command.summary}" for known, command in COMMANDS.items()]
    usage = "\n".join(["usage: oneclass COMMAND ...", "", *lines, "", "oneclass COMMAND --help says more."])
    if name in ("--version", "version"):
        print(f"oneclass {version('oneclass')}")
    elif name in ("--help", "-h", "help"):
        print(usage)
    else:
        near = difflib.get_close_matches(name.replace("-", "_").lower(), COMMANDS, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        unknown = f"oneclass: {name!r} is not a command.{hint} See oneclass --help."
        print(unknown if name else usage, file=sys.stderr)
        return 2
    return 0
