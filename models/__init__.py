"""Estimators and their kernels: arrays and sparse matrices in, arrays out.

No Prefect, no DuckDB, no files but a model's own saved form. Importing this package tells numba how to compile
kernels and where to keep the machine code, before any kernel is declared.
"""

from oneclass.models import numba_cache

numba_cache.install()
