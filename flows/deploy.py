"""Run the command: deploy the nightly run of a data set on the Prefect server.

python -m flows.deploy --dataset ml-1m --cron "30 2 * * *" --timezone Europe/Paris
"""

from oneclass.flows import commands

if __name__ == "__main__":
    commands.run_as_program("deploy")
