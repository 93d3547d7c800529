"""Estimators and their kernels: arrays and sparse matrices in, arrays out.

No Prefect, no DuckDB, no files except a model's own saved form. Importing this package configures numba's compilation
and cache, before any kernel is declared.
"""

from oneclass.models import numba_cache

numba_cache.install()
