"""Where the heavy work of a run is done: in this process, or by the worker processes of a Dask cluster.

The coordinator, which is the process that runs the flow, owns the warehouse and the order of the stages. It hands out plain
functions: a fit, the judging of one model or its recommendations for a block of users. These read the stores of matrices
and of fits by path, in a folder that all workers see, and never open the warehouse. So nothing of a result depends on
who computed it, and a call whose worker died is made again elsewhere.

`engine` has what stages use, `dask_engine` how a cluster serves as one, `dask_cluster` how it is started or found, and
`worker` what runs on a worker.
"""

from tasks.cluster.engine import HERE, ClusterSettings, Engine, each, kept_last, opened

__all__ = ["HERE", "ClusterSettings", "Engine", "each", "kept_last", "opened"]
