"""Stage `ingest`: load raw logs, in their published formats, into `raw.events` and `raw.rejects`."""

from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.sources import LogFile, describe_expected_sources, inspect_sources
from oneclass.tasks.ingest.stage import Ingested, ingest
from oneclass.tasks.orchestration.stage_task import stage_task

ingest_task = stage_task(ingest)

__all__ = [
    "IngestSettings",
    "Ingested",
    "LogFile",
    "describe_expected_sources",
    "ingest",
    "ingest_task",
    "inspect_sources",
]
