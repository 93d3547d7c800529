"""Estimators and their kernels: arrays and sparse matrices in, arrays out.

No Prefect, no DuckDB, no files but a model's own saved form. Importing this package tells numba how to compile
kernels and where to keep the machine code, before any kernel is declared.
"""

from models import kernel_cache, kernel_code

kernel_code.install()
kernel_cache.install()
