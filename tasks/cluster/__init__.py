"""Executors for the heavy work of a run: this process, or the workers of a Dask cluster.

The coordinator, the process that runs the flow, owns the warehouse and the order of the stages. It submits module-level
functions, which read the stores of matrices and fits by path or URL and never open the warehouse. No result depends on
where a call ran, and a call whose worker died runs again on another.
"""

from oneclass.tasks.cluster.executor import (
    LOCAL,
    ClusterSettings,
    Executor,
    PendingCall,
    imap,
    lru_cache_last,
    open_executor,
)

__all__ = ["LOCAL", "ClusterSettings", "Executor", "PendingCall", "imap", "lru_cache_last", "open_executor"]
