"""Run the command: Great Expectations' Data Docs of a warehouse.

    python -m flows.data_docs --dataset ml-1m

The pages open offline: a section per column, shares of rows, and sample rows of broken rules.
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("data_docs")
