"""OpenLineage events of a run and of its stages: which tables and files each job read and wrote, and how it ended.

Each job emits START, then COMPLETE, FAIL or ABORT, in the form of the specification 2-0-2, to a file of JSON lines, an
HTTP address, or both. The outputs of a stage are the tables whose contracts it checks. A target that fails gets a
warning and no further event; the run goes on.
"""

import contextlib
import json
import logging
import os
import urllib.request
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from oneclass.data_contracts import contracts
from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration.notifications import TARGETS
from oneclass.tasks.protocols import ALL_EDGES, find_protocol
from oneclass.tasks.secrets import hide_secrets, read_secret
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

SEND_TIMEOUT_SECONDS = 10
ABORT_TIMEOUT_SECONDS = 2  # of a process that is killed ten seconds after it is told to end
EVENT_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
PARENT_SCHEMA = "https://openlineage.io/spec/facets/1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet"
ERROR_SCHEMA = "https://openlineage.io/spec/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"

Event = dict[str, Any]


class LineageSettings(BaseModel):
    """Where OpenLineage events of runs and stages go; by default nowhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    file: str | None = Field(
        None, description="the whole path of a file, to which each is appended as a line of JSON", pattern="^/"
    )
    url: str | None = Field(
        None, description="an address that gets a POST of each, such as https://marquez.shop.example/api/v1/lineage"
    )
    api_key_env: str | None = Field(
        None, description="the environment variable that holds the key for `url`, sent as `Authorization: Bearer KEY`"
    )
    api_key_file: str | None = Field(None, description="the whole path of the file that holds the key", pattern="^/")
    api_key_block: str | None = Field(None, description="the Secret block on the Prefect server that holds the key")
    namespace: str = Field("oneclass", min_length=1, description="the namespace of the jobs")

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        if sum(place is not None for place in (self.api_key_env, self.api_key_file, self.api_key_block)) > 1:
            raise ValueError("give one of api_key_env, api_key_file, api_key_block")
        if self.url is not None:
            TARGETS["webhook"].check(self.url)
            if urlsplit(self.url).password is not None:
                raise ValueError("url has a password in it; give a key by api_key_env, api_key_file or api_key_block")
        return self


@dataclass
class _Emitter:
    """Sends the events of one run to its targets.

    Attributes:
        job, parent_id: name of the run's job, and its id in OpenLineage.
        targets: by the setting that names it, what sends a text within seconds; those that failed are taken out.
        secrets: texts that no message may show.
    """

    home: Home
    namespace: str
    job: str
    parent_id: str
    targets: dict[str, Callable[[bytes, float], None]]
    secrets: list[str] = field(default_factory=list)

    def emit(self, event: Event, timeout: float) -> None:
        """Send an event to all targets."""
        text = json.dumps(event).encode()
        for name, send in list(self.targets.items()):
            try:
                send(text, timeout)
            except Exception as error:  # noqa: BLE001  (a failing target must not change the outcome of the run)
                self.targets.pop(name, None)
                reason = hide_secrets(str(error), self.secrets)
                logger.warning("%s: an event could not be sent, and no more is sent in this run: %s", name, reason)

    @contextlib.contextmanager
    def follow(
        self, job: str, run_id: str, inputs: list[dict[str, str]], outputs: list[dict[str, str]]
    ) -> Generator[None]:
        """Emit START, run the block, and emit how it ended."""
        producer = f"urn:oneclass:{version('oneclass')}"
        facets: Event = {}
        if run_id != self.parent_id:
            parent = {"run": {"runId": self.parent_id}, "job": {"namespace": self.namespace, "name": self.job}}
            facets["parent"] = {"_producer": producer, "_schemaURL": PARENT_SCHEMA, **parent}

        def emit(kind: str, timeout: float = SEND_TIMEOUT_SECONDS) -> None:
            event = {
                "eventType": kind,
                "eventTime": datetime.now(UTC).isoformat(),
                "run": {"runId": run_id, "facets": facets},
                "job": {"namespace": self.namespace, "name": job},
                "inputs": inputs,
                "outputs": outputs,
                "producer": producer,
                "schemaURL": EVENT_SCHEMA,
            }
            self.emit(event, timeout)

        emit("START")
        try:
            yield
        except Exception as error:
            first_line = str(error).partition("\n")[0]  # further ones may have rows of a log
            message = {"message": f"{type(error).__name__}: {first_line}", "programmingLanguage": "Python"}
            facets["errorMessage"] = {"_producer": producer, "_schemaURL": ERROR_SCHEMA, **message}
            emit("FAIL")
            raise
        except BaseException:
            emit("ABORT", ABORT_TIMEOUT_SECONDS)
            raise
        emit("COMPLETE")


_emitters: dict[str, _Emitter] = {}  # of the runs in this process, by run_id


@contextlib.contextmanager
def emit_run(settings: LineageSettings, home: Home, run_id: str, flow: str) -> Generator[None]:
    """Emit the events of a run around the block, and let `emit_stage` emit those of its stages.

    Args:
        run_id: Prefect's, with a number behind it if the run is a retry.
        flow: its name, of the job.
    """
    targets, secrets = _list_targets(settings)
    if not targets:
        yield
        return
    emitter = _Emitter(home, settings.namespace, f"{home.dataset}.{flow}", _find_parent_id(run_id), targets, secrets)
    _emitters[run_id] = emitter
    try:
        with emitter.follow(emitter.job, emitter.parent_id, [], []):
            yield
    finally:
        del _emitters[run_id]


def _find_parent_id(run_id: str) -> str:
    """Return a run's id in OpenLineage: Prefect's own, unless it is a retry, which keeps that."""
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, run_id))


@contextlib.contextmanager
def emit_stage(stage: str, name: str, arguments: Mapping[str, Any]) -> Generator[None]:
    """Emit the events of a stage around the block, if its run emits some.

    Args:
        stage: the name of its function.
        name: of the task run, such as `train slim on all_edges`.
        arguments: of its function, by name; `run_id` among them.
    """
    emitter = _emitters.get(arguments["run_id"])
    if emitter is None:
        yield
        return
    home = emitter.home
    inputs = [_name_table(home, table) for table in _list_inputs(stage, arguments)]
    outputs = [_name_table(home, contract.table) for contract in contracts.for_stage(stage) if "." in contract.table]
    if stage == "ingest":
        inputs = [_name_file(Path(source)) for source in arguments["sources"] or [home.landing]]
    elif stage == "publish":
        outputs.append(_name_file(home.published))
    elif stage.startswith("copy_to_"):
        inputs = [_name_file(home.published)]
        if stage == "copy_to_object_store":
            outputs = [_name_location(f"{arguments['settings'].object_store}/{home.dataset}")]
    job = f"{home.dataset}.{name.replace(' ', '_')}"
    with emitter.follow(job, str(uuid.uuid4()), inputs, outputs):
        yield


def _list_inputs(stage: str, arguments: Mapping[str, Any]) -> list[str]:
    """List the tables that a stage reads."""
    match stage:
        case "binarize":
            return ["raw.events"]
        case "split" | "diagnose":
            return ["indexed.interactions"]
        case "tune":
            return list(dict.fromkeys(map(_find_split_table, arguments["digests"])))
        case "train":
            return [_find_split_table(arguments["protocol"]), "operations.model_settings"]
        case "evaluate":
            return [_find_split_table(arguments["protocol"]), "operations.model_fits"]
        case "publish":
            return ["indexed.interactions", "operations.model_fits", "evaluation.metrics"]
        case _:
            return []


def _find_split_table(split: str) -> str:
    """Return the table of a split."""
    return (
        "indexed.interactions" if split == ALL_EDGES else f"indexed.{find_protocol(split).removesuffix('_validation')}"
    )


def _name_table(home: Home, table: str) -> dict[str, str]:
    return {"namespace": f"duckdb://{home.warehouse.absolute()}", "name": table}


def _name_file(path: Path) -> dict[str, str]:
    return {"namespace": "file", "name": str(path.absolute())}


def _name_location(url: str) -> dict[str, str]:
    """Return the data set at a URL, by OpenLineage's rules of names: that of a bucket, or of a file."""
    parts = urlsplit(url)
    if parts.scheme in ("file", "local"):
        return {"namespace": "file", "name": parts.path}
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.strip("/")}


def _list_targets(settings: LineageSettings) -> tuple[dict[str, Callable[[bytes, float], None]], list[str]]:
    """Return the targets of `_Emitter`, and the secrets in them; one that cannot be used is a warning."""
    targets: dict[str, Callable[[bytes, float], None]] = {}
    secrets = []
    if (path := settings.file) is not None:
        targets["lineage.file"] = lambda text, timeout: _append_line(path, text)
    if (url := settings.url) is not None:
        headers = {"Content-Type": "application/json"}
        places = {"env": settings.api_key_env, "file": settings.api_key_file, "block": settings.api_key_block}
        try:
            if any(places.values()):
                secrets = [read_secret("lineage.api_key", "the key", **places)]
                headers["Authorization"] = f"Bearer {secrets[0]}"
        except InputError as error:
            logger.warning("%s Until then no event is sent to lineage.url.", error)
            return targets, secrets
        targets["lineage.url"] = lambda text, timeout: _post(url, headers, text, timeout)
    return targets, secrets


def _append_line(path: str, text: bytes) -> None:
    """Append a line in one call, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, text + b"\n")
    finally:
        os.close(descriptor)


def _post(url: str, headers: dict[str, str], text: bytes, timeout: float) -> None:
    urllib.request.urlopen(urllib.request.Request(url, text, headers), timeout=timeout).close()
