"""Estimators and their kernels: arrays and sparse matrices in, arrays out.

No Prefect, no DuckDB, no files but a model's own saved form. Where numba keeps compiled kernels is settled here,
before any kernel is declared.
"""

from models import kernel_cache

kernel_cache.install()
