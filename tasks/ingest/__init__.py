"""Stage `ingest`: raw logs, in the formats they are published in, into `raw.events` and `raw.rejects`."""

from tasks.ingest.settings import IngestSettings
from tasks.ingest.sources import LogFile, expected_sources, inspect
from tasks.ingest.stage import Ingested, ingest
from tasks.orchestration.stage_task import stage_task

ingest_task = stage_task(ingest)

__all__ = ["IngestSettings", "Ingested", "LogFile", "expected_sources", "ingest", "ingest_task", "inspect"]
