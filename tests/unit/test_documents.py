"""README and docs name what there is: files, links, tests, commands with their options, settings, targets of make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from delivery.cli import app
from delivery.config import HostConfig

TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
FILE = re.compile(r"[\w./-]+\.(?:py|thrift|yaml|xml|avsc)(?![\w.])")
FOLDERS = ("delivery", "subscriber", "tests", "examples", "idl", "docker", "docs")
WORD = re.compile(r"[a-z][a-z-]*(\\?\|[a-z][a-z-]*)*")
"""Of a command: one name, or several of which each is meant."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def spans(page: Path) -> list[str]:
    """What is set as code within a line."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page.read_text())


def lines(page: Path, program: str) -> list[str]:
    """The command lines of a program, within a line or on lines of their own, without comments."""
    own = [line.strip() for line in page.read_text().splitlines()]
    found = [text for text in (*spans(page), *own) if re.match(rf"{program} (?![(=])", text)]
    return [re.sub(r"\s#\s.*", "", text) for text in found]


@cache
def files() -> frozenset[str]:
    """Every file of the project's folders and of its top, as a path from the top with a slash before it."""
    below = [path for folder in FOLDERS for path in (TOP / folder).rglob("*")]
    found = [path for path in (*below, *TOP.iterdir()) if path.is_file() and "__pycache__" not in path.parts]
    return frozenset(f"/{path.relative_to(TOP).as_posix()}" for path in found)


@cache
def names_of_tests() -> frozenset[str]:
    """The names of all tests."""
    texts = (path.read_text() for path in (TOP / "tests").rglob("*.py"))
    return frozenset(name for text in texts for name in re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


@pages
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = {text for span in spans(page) for text in FILE.findall(span)}
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files())] == []


@pages
def test_every_folder_that_is_named_with_its_place_is_there(page: Path) -> None:
    named = {text for text in spans(page) if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w/]+", text)}
    assert [name for name in sorted(named) if not (TOP / name).exists() and not (TOP / f"{name}.py").exists()] == []


@pages
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pages
def test_every_test_that_is_named_is_there(page: Path) -> None:
    """A module, or a test by its name."""
    named = {text for span in spans(page) for text in re.findall(r"(?<![\w/])test_\w+(?![\w.])", span)}
    modules = {Path(file).stem for file in files()}
    assert [name for name in sorted(named) if name not in names_of_tests() | modules] == []


@pages
def test_every_command_that_is_written_is_there_with_its_options(page: Path) -> None:
    wrong = [f"{line}: {what}" for line in lines(page, "hoot") for what in mistakes(line)]
    assert wrong == []


def mistakes(line: str) -> Iterator[str]:
    """What there is not of a command line: a command, or an option of a command."""
    words = line.split()[1:]
    reached: list[Any] = [get_command(app)]
    while words and WORD.fullmatch(words[0]) and (groups := [one for one in reached if hasattr(one, "get_command")]):
        names = re.split(r"\\?\|", words.pop(0))
        below = {name: [found for group in groups if (found := group.get_command(None, name))] for name in names}
        if missing := [name for name, found in below.items() if not found]:
            yield f"no {' or '.join(missing)}"
            return
        reached = [one for one in reached if one not in groups] + [one for found in below.values() for one in found]
    for option in OPTION.findall(" ".join(words)):
        if not all(takes(one, option) for one in reached):
            yield f"no {option}"


def takes(command: Any, option: str) -> bool:
    """Whether a command, or one of a group, has the option."""
    if any(option in (*one.opts, *one.secondary_opts) for one in command.params) or option == "--help":
        return True
    names: Sequence[str] = command.list_commands(None) if hasattr(command, "list_commands") else ()
    return any(takes(command.get_command(None, name), option) for name in names)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("hoot queue create|update orders --archive-first", []), ("hoot bench CASE --runs 5", []),
        ("hoot subscribe|subscription create --kind", []), ("hoot --install-completion", []),
        ("hoot queue lst", ["no lst"]), ("hoot queue list\\|shw", ["no shw"]), ("hoot nothing", ["no nothing"]),
        ("hoot scan orders --nothing 1 --json", ["no --nothing"]), ("hoot bench live --nothing", ["no --nothing"]),
        ("hoot subscription create|info --filter x", ["no --filter"]),
    ],
)  # fmt: skip
def test_a_command_that_is_not_there_is_found(line: str, wrong: list[str]) -> None:
    assert list(mistakes(line)) == wrong


@pages
def test_every_setting_and_every_target_of_make_that_is_named_is_there(page: Path) -> None:
    settings = set(re.findall(r"--set (\w+)=", page.read_text()))
    assert settings <= set(HostConfig.__struct_fields__)
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    assert {line.split()[1] for line in lines(page, "make")} <= targets
