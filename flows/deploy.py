"""The command `flows.deploy`: deploy the nightly run of a data set on the Prefect server.

python -m flows.deploy --dataset ml-1m --cron "30 2 * * *" --timezone Europe/Paris
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import DeployParameters


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = "Deploy the nightly run of a data set; these flags apply to each night."
    return cli.build_parser("flows.deploy", description, DeployParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from oneclass.flows.deploy_flow import deploy

        parameters = cli.parse_parameters(DeployParameters, given)
        deployment = deploy(parameters)
        when = f"{parameters.cron} ({parameters.timezone})"
        return (
            f"Deployed {deployment.name}: every night at {when}, in {deployment.parameters['home']}.\n"
            f"Start one now:    prefect deployment run {deployment.flow_name}/{deployment.name}\n"
            f"Start a worker:   prefect worker start --pool {parameters.pool}"
        )

    return cli.run_command(command, debug=given.debug)


if __name__ == "__main__":
    cli.run_main(main)
