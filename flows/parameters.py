"""The parameters of the flows and commands. Each is declared once, as a flag of a command and a parameter in Prefect.

Only pydantic and small modules are imported here, so that `--help` answers at once.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler


@dataclass(frozen=True)
class Flag:
    """How a parameter is given on the command line.

    Attributes:
        metavar: placeholder of the value in `--help`; a tuple with one placeholder per value if their number is fixed;
            empty for a switch.
        name: the flag, if it is not named like the parameter.
        comma_separated: whether a list is written as `A,B` instead of several words.
        optional: whether the value may be omitted, and is then empty.
    """

    metavar: str | tuple[str, ...] = ""
    name: str | None = None
    comma_separated: bool = False
    optional: bool = False


@dataclass(frozen=True)
class AllowedValues:
    """Lists the values of a parameter in its JSON schema, from which Prefect's pages make a choice.

    Attributes:
        kind: `models` or `protocols`.
    """

    kind: str

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a string with its values."""
        from oneclass.tasks import model_names, protocols

        values = model_names.list_models() if self.kind == "models" else list(protocols.PROTOCOLS)
        return {**handler(core_schema), "enum": values}


class DatasetParameters(BaseModel):
    """Parameters of every command."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    dataset: Annotated[str, Flag("NAME")] = Field(
        description="a data set, built in or declared in HOME/datasets/NAME.toml; `demo` makes its own log"
    )
    home: Annotated[str | None, Flag("DIR")] = Field(
        None, description="the home of all data sets; by default $ONECLASS_HOME, else ./var"
    )


class SettingsParameters(DatasetParameters):
    """Parameters that set the settings of stages and models."""

    config: Annotated[list[str], Flag("FILE")] = Field(
        [], description="files of settings in TOML: [stage or model] name = value; a later one overrides an earlier one"
    )
    settings: Annotated[dict[str, Any], Flag("KEY=VALUE", name="--set")] = Field(
        {},
        description="single settings, such as binarize.threshold=4 mrf_dense.l2=500 (in Prefect's UI "
        '{"binarize.threshold": 4, "mrf_dense.l2": 500}); they override all files',
    )


class RunParameters(SettingsParameters):
    """Parameters of every flow."""

    seed: Annotated[int, Flag("N")] = Field(0, description="the seed of every random draw; equal seeds give equal bits")
    threads: Annotated[int | None, Flag("N")] = Field(
        None, description="cores to use; all available ones by default, which is also the maximum"
    )
    memory: Annotated[str | None, Flag("SIZE")] = Field(
        None,
        description="memory for DuckDB, such as 4GB, past which it spills to the home; by default a third of the "
        "machine's, or of the container's",
    )

    def to_backfill(self, **more: Any) -> "BackfillParameters":
        """Return the backfill parameters with these values, and those in `more`."""
        return BackfillParameters(**{**self.model_dump(include=set(BackfillParameters.model_fields)), **more})


class _SourceParameters(DatasetParameters):
    source: Annotated[list[str], Flag("PATH")] = Field(
        [], description="raw log files or folders; by default those in HOME/NAME/landing"
    )
    user: Annotated[str | None, Flag("COLUMN")] = Field(
        None, description="the logs' column of users, as [columns] names it; by number where a file has no header"
    )
    item: Annotated[str | None, Flag("COLUMN")] = Field(None, description="the logs' column of items")
    value: Annotated[str | None, Flag("COLUMN")] = Field(None, description="the logs' column of values; - for none")
    time: Annotated[list[str], Flag("COLUMN")] = Field(
        [], description="the logs' column of times, or those of the date and of the time of day; - for none"
    )
    event: Annotated[str | None, Flag("COLUMN")] = Field(
        None, description="the logs' column with the kind of event, with [events]; - to count all kinds alike"
    )

    @property
    def columns(self) -> dict[str, str | list[str]]:
        """The columns that are named, by their roles."""
        return {role: name for role in ("user", "item", "value", "time", "event") if (name := getattr(self, role))}


class _SplitFilesParameters(DatasetParameters):
    split_files: Annotated[list[str], Flag(("TRAIN", "TEST"))] = Field(
        [], description="adjacency lists that come as a split; evaluated by the protocol `given`"
    )


class _ModelsParameters(DatasetParameters):
    models: Annotated[list[Annotated[str, AllowedValues("models")]], Flag("A,B,...", comma_separated=True)] = Field(
        [],
        description="the models to train; by default the data set's list. A class of another package is "
        "package.module:Class",
    )
    protocols: Annotated[list[Annotated[str, AllowedValues("protocols")]], Flag("P,Q", comma_separated=True)] = Field(
        [],
        description="the protocols to evaluate by: by default strong_generalization, leave_one_out and, of logs with "
        "times whose users return, next_events, and of data sets with attributes of items, cold_items; given with "
        "--split-files",
    )


class _TitlesParameters(DatasetParameters):
    titles: Annotated[str | None, Flag("FILE")] = Field(
        None,
        description="titles of items, kept with what is published: a table whose columns [titles] in the data set's "
        "file names; by default the file that it names",
    )


class _ClusterParameters(DatasetParameters):
    workers: Annotated[int | None, Flag("N")] = Field(
        None, description="fit and judge on a Dask cluster of N processes of this machine, which ends with the run"
    )
    dask: Annotated[str | None, Flag("ADDRESS")] = Field(
        None, description="fit and judge on the Dask cluster of the scheduler there, tcp://HOST:PORT or tls://HOST:PORT"
    )
    dask_unencrypted: Annotated[bool, Flag()] = Field(
        False, description="with --dask: the scheduler may be on another machine and not use TLS"
    )


# Prefect's pages and `--help` show the parameters of the last base first.
class BackfillParameters(
    _ClusterParameters, _TitlesParameters, _SourceParameters, _SplitFilesParameters, _ModelsParameters, RunParameters
):
    """Parameters of the flow `backfill`."""

    since: Annotated[date | None, Flag("DATE")] = Field(None, description="events from this day on (YYYY-MM-DD)")
    until: Annotated[date | None, Flag("DATE")] = Field(None, description="events up to the end of this day")
    replace: Annotated[bool, Flag()] = Field(
        False, description="keep only the sources in the warehouse: the events of all other logs are deleted"
    )


class ReplayParameters(BackfillParameters):
    """Parameters of the command `flows.backfill`: one run, or one per night of a period."""

    every: Annotated[str | None, Flag("STEP")] = Field(
        None,
        description="replay history night by night, from the night of --since to that of --until, at this step, such "
        "as 1d or 2w: each on all events up to the end of its day. Completed nights are skipped",
    )
    dry_run: Annotated[bool, Flag()] = Field(
        False, description="with --every: list the nights done and missing, and run none"
    )


class NightlyRetrainParameters(_ClusterParameters, _TitlesParameters, _ModelsParameters, RunParameters):
    """Parameters of `flows.nightly_retrain`."""

    dataset: Annotated[str, Flag("NAME")] = Field(
        "demo", description=DatasetParameters.model_fields["dataset"].description
    )


class DeployParameters(NightlyRetrainParameters):
    """Parameters of `flows.deploy`, which is not a flow: those of each night, the schedule and the work pool."""

    cron: Annotated[str, Flag("CRON")] = Field(
        "0 3 * * *", description="when the nights start: minute, hour, and so on"
    )
    timezone: Annotated[str, Flag("ZONE")] = Field("UTC", description="the time zone of --cron, such as Europe/Paris")
    pool: Annotated[str, Flag("NAME")] = Field(
        "oneclass", description="the work pool; a process pool is created if absent"
    )


class TuneParameters(_ClusterParameters, _SourceParameters, _SplitFilesParameters, RunParameters):
    """Parameters of `flows.tune`."""

    model: Annotated[str, Flag("NAME")] = Field(description="the model to tune")
    trials: Annotated[int, Flag("N")] = Field(
        50,
        description="trials in all, those of earlier commands included, so that a command that was cut off can be "
        "repeated",
    )
    batch_size: Annotated[int, Flag("N")] = Field(
        1,
        description="trials in a round, made side by side with --workers or --dask: each is chosen by the trials of "
        "earlier rounds alone, so this number decides which trials are made, and the number of workers does not",
    )
    protocol: Annotated[str | None, Flag("NAME")] = Field(
        None,
        description="strong_generalization (by ndcg@100 of its validation users), leave_one_out (mean_rank of an edge "
        "a user, cut from the training edges), next_events or given (ndcg@100, ndcg@20 of the training edges that "
        "split.validation cuts off); by default the one that chooses what is published (publish.protocol)",
    )
    timeout: Annotated[float | None, Flag("MINUTES")] = Field(
        None, description="start no round of trials after this time"
    )

    def to_backfill(self, **more: Any) -> BackfillParameters:
        """Return the backfill parameters of the model and the protocol."""
        protocols = [self.protocol] if self.protocol else []
        return super().to_backfill(models=[self.model], protocols=protocols, **more)


class NotifyParameters(SettingsParameters):
    """Parameters of `flows.notify`, which is not a flow."""

    test: Annotated[bool, Flag()] = Field(False, description="send a message to every target")


class PromoteParameters(DatasetParameters):
    """Parameters of `flows.promote`, which is not a flow."""

    model: Annotated[str | None, Flag("NAME")] = Field(
        None, description="publish this model of the latest evaluated run, fitted on every edge, whatever the gates say"
    )
    rollback: Annotated[str | None, Flag("RUN", optional=True)] = Field(
        None, description="publish run RUN's publication again; without RUN, the previous one"
    )


class ForgetParameters(_ClusterParameters):
    """Parameters of `flows.forget`; the users are no parameter of its flow, as Prefect stores those."""

    users: Annotated[list[str], Flag("ID", name="--user")] = Field(
        description="the users' ids, as they stand in the logs"
    )
    threads: Annotated[int | None, Flag("N")] = Field(
        None, description=RunParameters.model_fields["threads"].description
    )
    memory: Annotated[str | None, Flag("SIZE")] = Field(
        None, description=RunParameters.model_fields["memory"].description
    )


class CiteParameters(DatasetParameters):
    """Parameters of `flows.cite`, which is not a flow."""

    run: Annotated[str | None, Flag("RUN")] = Field(
        None, description="the evaluated run whose table is cited; by default the latest"
    )
    out: Annotated[str | None, Flag("DIR")] = Field(
        None, description="the folder to write; by default HOME/NAME/citations/RUN"
    )


class ExplainParameters(DatasetParameters):
    """Parameters of `flows.explain`, which is not a flow."""

    user: Annotated[str, Flag("ID")] = Field(description="the user's id, as it stands in the logs")
    models: Annotated[list[str], Flag("A,B,...", comma_separated=True)] = Field(
        [], description="models of the published run; all by default"
    )
    titles: Annotated[str | None, Flag("FILE")] = Field(
        None,
        description="titles of items: a table whose columns [titles] in the data set's file names; by default those "
        "that were published",
    )
    item: Annotated[list[str], Flag("ID")] = Field(
        [], description="items: the rank of each in the published list, and why it is not higher"
    )
    n: Annotated[int, Flag("N")] = Field(10, description="recommendations of each model")


class RecommendParameters(DatasetParameters):
    """Parameters of `flows.recommend`, which is not a flow."""

    user: Annotated[str | None, Flag("ID")] = Field(None, description="a user's id, as it stands in the logs")
    history: Annotated[list[str], Flag("ID", name="--item")] = Field(
        [], description="items that somebody likes, the newest last, known to the logs or not, instead of --user"
    )
    n: Annotated[int | None, Flag("N")] = Field(
        None, description="how many items; by default as many as the placement has, else 20"
    )
    placement: Annotated[str | None, Flag("NAME")] = Field(
        None, description="a placement of the data set's file, whose rules hold too"
    )
    where: Annotated[str | None, Flag("SQL")] = Field(
        None, description='a condition on the columns that rules may name, such as "stock > 0"'
    )
    list_: Annotated[Literal["popular", "trending", "new"] | None, Flag(name="--list")] = Field(
        None, description="a list for everybody, instead of --user"
    )
    category: Annotated[str | None, Flag("NAME")] = Field(
        None, description="of --list: a category of the items' attributes; all items by default"
    )
    window_days: Annotated[int | None, Flag("N")] = Field(
        None, description="of --list: 7 or 30 days; by default the longer"
    )
    within: Annotated[list[str], Flag("ID")] = Field([], description="items to choose among; all by default")
    without: Annotated[list[str], Flag("ID")] = Field([], description="items to leave out")
    seen: Annotated[Literal["include", "exclude"] | None, Flag()] = Field(
        None, description="whether to include the items of the history; by default as published (publish.seen)"
    )
    json_: Annotated[bool, Flag(name="--json")] = Field(False, description="print JSON")


class InspectParameters(_SourceParameters):
    """Parameters of `flows.inspect`, which is not a flow."""

    dataset: Annotated[str, Flag("NAME")] = Field(
        "mine", description="a data set whose file says how to read the logs; by default one without a file"
    )
    write: Annotated[str | None, Flag("NAME")] = Field(
        None, description="write the file of the data set NAME, HOME/datasets/NAME.toml, with these columns"
    )


class ServeParameters(DatasetParameters):
    """Parameters of `flows.serve`, which is not a flow."""

    host: Annotated[str, Flag("ADDRESS")] = Field(
        "127.0.0.1", description="the address to listen on; one that other machines reach needs --api-key-file"
    )
    port: Annotated[int, Flag("N")] = Field(8765, description="0 for any free port")
    host_names: Annotated[list[str], Flag("NAME")] = Field(
        [], description="further names under which clients ask, such as recommendations.shop.example"
    )
    api_key_file: Annotated[str | None, Flag("FILE")] = Field(
        None, description="SHA-256 hashes of keys, one per line; requests must send one as `Authorization: Bearer KEY`"
    )
    wait: Annotated[bool, Flag()] = Field(
        False, description="start although nothing is published yet; /ready is 503 until then"
    )
    workers: Annotated[int, Flag("N")] = Field(1, description="processes that answer on the port")
    access_log: Annotated[str | None, Flag("FILE")] = Field(
        None, description="append a JSON line per request, without its query; - for standard output"
    )


def flow_with_parameters(kind: type[RunParameters]) -> Callable[[Callable[[Any], Any]], Callable[..., Any]]:
    """Turn a function of one `kind` into a function of its fields, which Prefect shows as single parameters.

    Prefect reads types and defaults from the signature, and descriptions from the docstring.
    """

    def decorate(function: Callable[[Any], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_fields(**given: Any) -> Any:
            return function(kind(**given))

        # Read by `inspect.signature`.
        with_fields.__signature__ = inspect.Signature(  # pyright: ignore[reportAttributeAccessIssue]
            [_signature_parameter(name, field) for name, field in kind.model_fields.items()],
            return_annotation=inspect.signature(function).return_annotation,
        )
        descriptions = [f"    {name}: {field.description}" for name, field in kind.model_fields.items()]
        with_fields.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "Args:", *descriptions])
        return with_fields

    return decorate


def _signature_parameter(name: str, field: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.is_required() else field.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.annotation)
