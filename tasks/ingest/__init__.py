"""Stage `ingest`: load raw logs, in their published formats, into `raw.events` and `raw.rejects`."""
