"""What the READMEs say can be done, can be done; and both languages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ascend_hotfix import toggles
from ascend_hotfix.catalog import read_patch_file
from ascend_hotfix.cli import build_parser
from ascend_hotfix.records import RULE_FIELDS
from ascend_hotfix.toggles import ALL as TOGGLES

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.zh.md")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def codes(name: str) -> set[str]:
    """Everything in code style outside of blocks, without placeholders."""
    prose = re.sub(r"```.*?```", "", text(name), flags=re.S)
    return set(re.findall(r"`([^`]+)`", prose))


@pytest.mark.parametrize("name", READMES)
def test_the_patch_in_the_readme_is_a_patch(name, tmp_path):
    [example] = re.findall(r"```python\n(.*?)```", text(name), flags=re.S)
    (tmp_path / "my_model.py").write_text(example, encoding="utf-8")
    [patch] = read_patch_file(tmp_path / "my_model.py")
    assert patch.name == "my_model"


@pytest.mark.parametrize("name", READMES)
def test_every_field_of_a_fix_is_explained(name):
    assert set(RULE_FIELDS) <= codes(name)


@pytest.mark.parametrize("name", READMES)
def test_the_switches_are_those_that_exist(name):
    assert {code for code in codes(name) if re.fullmatch(r"ASCEND_HOTFIX_\w+", code)} == set(TOGGLES)
    assert {"none", "0", "off"} <= codes(name).intersection(toggles.OFF)


@pytest.mark.parametrize("name", READMES)
def test_the_commands_exist(name, capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--help"])
    known = capsys.readouterr().out
    for command in re.findall(r"^ascend-hotfix (\w+)", text(name), flags=re.M):
        assert re.search(rf"^ +{command}\b", known, flags=re.M), command
    targets = re.findall(r"^([\w-]+):", text("Makefile"), flags=re.M)
    for target in re.findall(r"`make ([\w-]+)`", text(name)):
        assert target in targets


def test_both_languages_name_the_same_things():
    ours = {name: {code for code in codes(name) if code.isascii() and "=" not in code} for name in READMES}
    assert ours["README.md"] == ours["README.zh.md"]


def test_ci_runs_the_command_of_the_readme():
    assert "make test" in text(".ci/run") and "`make test`" in text("README.md")
