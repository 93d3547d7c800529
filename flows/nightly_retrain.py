"""Run the command: the pipeline over the new files in the data set's landing folder, once.

The deployment runs the same flow: prefect deployment run nightly-retrain/nightly-retrain --param dataset=ml-1m
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("nightly_retrain")
