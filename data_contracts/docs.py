"""Great Expectations' own pages on the contracts, made only when asked for.

The pages load styles and scripts from public hosts: without a network they open unstyled, with one they tell
those hosts that they were opened. The results of every run are in `operations.contract_results` either way.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from data_contracts.contracts import load
from data_contracts.session import session

SITE = "contracts"


def build(connection: duckdb.DuckDBPyConnection, parameters: Mapping[str, Mapping[str, Any]], folder: Path) -> Path:
    """Check every contract on the warehouse as it stands and write Data Docs into `folder`.

    Contracts of temporary tables are left out. Nothing raises where a rule is broken; the pages show it.

    Args:
        parameters: the values that each stage would give, `run_id` among them, by stage.

    Returns:
        The page to open.

    Raises:
        ValueError: a contract asks for a value that is not in `parameters`.
    """
    contracts = [contract for contract in load() if "." in contract.table]
    values = [contract.values(parameters[contract.stage]) for contract in contracts]
    with session(connection, apart=True) as one:
        store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
        index = {"class_name": "DefaultSiteIndexBuilder"}
        one.context.add_data_docs_site(
            SITE, {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}
        )
        for definition in one.checkpoint(contracts, values).validation_definitions:
            definition.run(result_format="SUMMARY")
        one.context.build_data_docs(site_names=[SITE])
    return folder / "index.html"
