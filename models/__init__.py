"""Estimators and their kernels: arrays and sparse matrices in, arrays out.

No Prefect, no DuckDB, no files but a model's own saved form. What machine code a kernel runs, and where numba
keeps it, is settled here, before any kernel is declared.
"""

from models import kernel_cache, kernel_code

kernel_code.install()
kernel_cache.install()
