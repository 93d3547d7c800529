"""The folders at the top of the repository are packages of `oneclass`: models/ is imported as oneclass.models."""

from setuptools import find_packages, setup

FOLDERS = "flows", "tasks", "models", "sql", "data_contracts"

setup(
    package_dir={"oneclass": "oneclass"} | {f"oneclass.{folder}": folder for folder in FOLDERS},
    packages=["oneclass"]
    + [f"oneclass.{package}" for package in find_packages(include=[p for f in FOLDERS for p in (f, f"{f}.*")])],
)
