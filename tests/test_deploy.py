"""The files of deploy/ and its page: commands that exist, units that systemd takes, containers with few rights."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from oneclass.flows import commands
from tests.typed import ROOT, read_page

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
GUIDE = read_page("docs/how-to/deploy.md")
MAX_EXPOSURE = 20  # of systemd-analyze's 100


def unit_commands() -> list[str]:
    """Return the command of each unit, for the data set `shop` and without options."""
    lines = [re.findall(r"^ExecStart=/opt/oneclass/bin/(.*)$", unit.read_text(), flags=re.MULTILINE) for unit in UNITS]
    return [re.sub(r" \$\w+", "", line).replace("%i", "shop") for of_unit in lines for line in of_unit]


def compose_commands() -> list[str]:
    """Return the command of each container, with the defaults of its variables."""
    given = [service["command"] for service in COMPOSE["services"].values() if "command" in service]
    return [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", command) for command in given]


def guide_commands() -> list[str]:
    """Return the commands of the page that `oneclass` or the container `cli` runs."""
    found = re.findall(r"^    .*(?:-u oneclass (?:env \S+ )?oneclass|--rm cli) (.*)$", GUIDE, flags=re.MULTILINE)
    return [f"oneclass {line}" for line in found]


COMMANDS = [*unit_commands(), *compose_commands(), *guide_commands()]
assert unit_commands() and compose_commands() and guide_commands()


@pytest.mark.parametrize("line", dict.fromkeys(COMMANDS))
def test_a_command_is_taken(line):
    program, *words = shlex.split(line)
    if program == "python":
        parsed = subprocess.run([sys.executable, *words[:2], "--help"], capture_output=True, text=True, check=True)
        assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--\w+", parsed.stdout))
    elif program == "prefect":
        from prefect.cli._app import _app

        _app.parse_args(words, print_error=False, exit_on_error=False)
    else:
        assert program == "oneclass"
        commands.build_app(words[0])(words[1:])


@pytest.fixture
def units(tmp_path):
    """The folder of the units, as they are for a program of this environment."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    shutil.copytree(DEPLOY / "systemd", tmp_path / "units")
    for unit in (tmp_path / "units").glob("*.service"):
        unit.write_text(unit.read_text().replace("/opt/oneclass/bin", os.path.dirname(sys.executable)))
    return tmp_path / "units"


def run_analyze(verb: str, *words: str) -> str:
    """Run systemd-analyze, which must succeed, and return what it says."""
    ended = subprocess.run(["systemd-analyze", verb, *words], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_systemd_takes_the_units(units):
    names = [str(unit) for unit in sorted(units.glob("oneclass-*")) if unit.suffix in (".service", ".timer")]
    assert str(units) not in run_analyze("verify", "--man=no", *names)


def test_the_services_have_few_rights(units):
    for service in units.glob("*.service"):  # exits with 1 above the threshold
        said = run_analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE}", "--no-pager", str(service))
        assert "Overall exposure level" in said


def test_containers_have_few_rights_and_ports_of_this_machine_alone():
    for name, service in COMPOSE["services"].items():
        assert service["cap_drop"] == ["ALL"] and service["read_only"], name
        assert service["security_opt"] == ["no-new-privileges:true"] and service["mem_limit"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "healthcheck" in service or name in ("schedule", "cli"), name
        for depended, condition in service.get("depends_on", {}).items():
            ends = condition == {"condition": "service_completed_successfully"}
            assert ends == (COMPOSE["services"][depended]["restart"] == "no"), name
    assert "home" in COMPOSE["volumes"]


def test_the_images_have_every_package_and_run_as_another_user_than_root():
    user = re.search(r"^USER (\d+):\d+$", DOCKERFILE, flags=re.MULTILINE)
    assert user and int(user[1]) > 0 and DOCKERFILE.count("\nUSER ") == 1
    copied = " ".join(re.findall(r"^COPY ([^-\n]+) \S+$", DOCKERFILE, flags=re.MULTILINE)).split()
    assert all((ROOT / name).exists() for name in copied)
    linked = {path.name for path in (ROOT / "oneclass").iterdir() if path.is_symlink()}
    assert linked and {"oneclass", *linked} <= set(copied)


def test_units_and_services_that_the_page_names_exist():
    units = {re.sub(r"@\w+", "@", name) for name in re.findall(r"\boneclass-[\w@]+\.(?:service|timer)\b", GUIDE)}
    assert units == {path.name for path in (DEPLOY / "systemd").glob("oneclass-*") if path.is_file()}
    assert set(re.findall(r"^\| `(\w+)` \|", GUIDE, flags=re.MULTILINE)) == set(COMPOSE["services"])
