"""The container files, as far as they can be checked without an engine: what they name is there, and is understood."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from delivery.cli import app
from delivery.cli.settings import with_settings
from delivery.config import HostConfig

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = sorted(DOCKER.glob("*.yaml"))
DOCKERFILES = [DOCKER / "Dockerfile", DOCKER / "hbase" / "Dockerfile"]
CONTEXTS = {DOCKER / "Dockerfile": DOCKER.parent, DOCKER / "hbase" / "Dockerfile": DOCKER / "hbase"}


def services(beginning: str = "") -> list[Any]:
    contents = {file.name: yaml.safe_load(file.read_text()) for file in COMPOSE}
    return [
        pytest.param(content, service, id=f"{file} {name}")
        for file, content in contents.items()
        for name, service in content["services"].items()
        if name.startswith(beginning)
    ]


def dockerfile(service: dict[str, Any]) -> Path | None:
    build = service.get("build")
    if build is None:
        return None
    return DOCKER.joinpath(build["context"], build.get("dockerfile", "Dockerfile")).resolve()


@pytest.mark.parametrize(("content", "service"), services())
def test_a_service_has_an_image_that_is_pinned_or_built_here_and_a_health_check(
    content: dict[str, Any], service: dict[str, Any]
) -> None:
    assert re.fullmatch(r"[a-z-]+:\d+(\.\d+)+", service["image"])
    built = dockerfile(service)
    assert built is None or built in DOCKERFILES
    stages = re.findall(r"^FROM \S+ AS (\w+)$", built.read_text(), re.MULTILINE) if built else []
    assert service.get("build", {}).get("target") in {None, *stages}
    assert "healthcheck" in service or (built and "HEALTHCHECK" in built.read_text())


@pytest.mark.parametrize(("content", "service"), services())
def test_a_service_names_only_what_there_is(content: dict[str, Any], service: dict[str, Any]) -> None:
    assert set(service.get("depends_on", {})) <= set(content["services"])
    assert {volume.partition(":")[0] for volume in service.get("volumes", [])} <= set(content["volumes"])
    words = " ".join([*map(str, service.get("command", [])), *map(str, service.get("environment", {}).values())])
    for name in re.findall(r"([a-z]+(?:-\w+)*):\d+", words):
        assert name in content["services"], name


@pytest.mark.parametrize(("content", "service"), services("hoot"))
def test_a_region_host_is_started_with_options_that_it_has(content: dict[str, Any], service: dict[str, Any]) -> None:
    root: Any = get_command(app)
    serve = root.get_command(None, "serve")
    given = serve.make_context("serve", list(service["command"]), obj={}).params
    assert given["address"] == service["hostname"]
    config = HostConfig(
        data=Path(), zookeeper=given["zookeeper"], store=given["store"], hbase_thrift=given["hbase_thrift"] or ""
    )
    with_settings(config, given["settings"] or []).check()


def test_each_region_host_of_the_cluster_differs_from_the_first_in_its_name_alone() -> None:
    hosts = yaml.safe_load((DOCKER / "cluster.yaml").read_text())["services"]
    commands = [hosts[f"hoot-{number}"]["command"] for number in (1, 2, 3)]
    assert [[word.replace(f"hoot-{n}", "hoot-1") for word in one] for n, one in enumerate(commands, 1)] == [
        commands[0]
    ] * 3


@pytest.mark.parametrize("file", DOCKERFILES, ids=str)
def test_what_a_dockerfile_copies_is_there(file: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", file.read_text(), re.MULTILINE)
    assert copied
    for pattern in " ".join(copied).split():
        assert list(CONTEXTS[file].glob(pattern)), pattern


def test_a_worker_of_spark_writes_where_its_user_may() -> None:
    stage = (DOCKER / "Dockerfile").read_text().partition(" AS spark")[2].partition("\nFROM ")[0]
    (home,) = re.findall(r"--home-dir (\S+) --create-home", stage)
    (folder,) = re.findall(r"^ENV SPARK_WORKER_DIR=(\S+)$", stage, re.MULTILINE)
    assert Path(home) in Path(folder).parents


@pytest.mark.parametrize(
    ("arguments", "quorum", "said"),
    [((), "zk", "name one of master"), (("slave",), "zk", "name one of master"), (("master",), "", "HBASE_QUORUM")],
)
def test_the_start_of_hbase_says_what_it_needs(arguments: tuple[str, ...], quorum: str, said: str) -> None:
    start = subprocess.run(
        ["sh", DOCKER / "hbase" / "start", *arguments], env={"PATH": "/usr/bin:/bin", "HBASE_QUORUM": quorum},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert start.returncode == 2
    assert said in start.stderr
