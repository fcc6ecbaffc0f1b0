"""What the simulation builds is complete or built anew, and a pair that cannot be installed says so."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.sim import cache, envs, matrix


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_an_entry_is_written_once() -> None:
    fills = []

    def fill(directory: Path) -> None:
        fills.append(directory)
        (directory / "file").write_text("content")

    assert cache.entry("thing", fill) == cache.entry("thing", fill)
    assert len(fills) == 1
    assert (cache.cache_dir() / "thing" / "file").read_text() == "content"


def test_what_an_interrupted_run_left_is_built_anew() -> None:
    left = cache.cache_dir() / "thing"
    left.mkdir(parents=True)
    (left / "half").touch()
    assert not (cache.entry("thing", lambda directory: None) / "half").exists()


def test_a_failed_entry_leaves_nothing_behind() -> None:
    def fill(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        cache.entry("thing", fill)
    assert not (cache.cache_dir() / "thing").exists()


def test_a_pair_that_cannot_be_installed_ends_with_pips_last_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake_run(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stdout="ERROR: No matching distribution found for torch\n")

    monkeypatch.setattr(envs.venv, "create", lambda directory, with_pip: None)
    monkeypatch.setattr(envs.subprocess, "run", fake_run)
    assert envs.main(["build", "0.23.0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("pair 0.23.0 cannot be installed: pip ")
    assert "No matching distribution found for torch" in error


def test_an_unknown_pair_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        envs.main(["path", "0.99.0"])
    assert stopped.value.code == 2
    assert "0.30.0rc2" in capsys.readouterr().err


def test_every_pair_of_ci_is_a_row_and_every_row_is_named_once() -> None:
    names = [row.pair for row in matrix.MATRIX]
    assert len(set(names)) == len(names)
    assert set(matrix.CI) <= set(names)
