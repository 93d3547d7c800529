"""Executors for the heavy work of a run: this process, or the workers of a Dask cluster.

The coordinator, which runs the flow, owns the warehouse and the order of the stages. It submits module-level functions
that read the stores of matrices and fits by path and never open the warehouse. Results do not depend on the
worker, and Dask repeats a call whose worker died.
"""

from oneclass.tasks.cluster.executor import LOCAL, Executor, PendingCall, imap, lru_cache_last, open_executor

__all__ = ["LOCAL", "Executor", "PendingCall", "imap", "lru_cache_last", "open_executor"]
