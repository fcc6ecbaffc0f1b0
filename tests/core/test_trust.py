"""A patch of the user's that others may change is not run, and the message names the command that mends it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ascend_hotfix import trust
from ascend_hotfix.catalog import load_catalog

PATCH = """
from ascend_hotfix.records import Fix, ModelPatch, Prefix
PATCH = ModelPatch(model_types=("tiny",), fixes=(Fix(id="a", why="w", refs=("r",), lookup=(Prefix("a", "b"),)),))
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
STRANGER = 12345


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A patch in a folder of its own, which nobody else may change."""
    folder = tmp_path / "patches"
    folder.mkdir(mode=0o755)
    file = folder / "mine.py"
    file.write_text(PATCH)
    file.chmod(0o644)
    return file


def problems(path: Path) -> list[str]:
    """What is wrong with the patches of *path*; where something is, none of them has been run."""
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(path)})
    assert ("mine" in held.sources) is not bool(held.problems)
    return held.problems


def test_a_patch_of_ours_alone_is_run(mine: Path) -> None:
    assert problems(mine) == problems(mine.parent) == []


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o777])
def test_a_file_that_everybody_may_write_is_refused_until_the_command_is_run(mine: Path, mode: int) -> None:
    mine.chmod(mode)
    [problem] = problems(mine)
    assert f"{mine}: not run, because {mine} may be changed by everybody: chmod " in problem
    subprocess.run(re.search(r"chmod \S+ \S+$", problem)[0].split(), check=True)  # type: ignore[index]
    assert problems(mine) == []


@pytest.mark.parametrize("above", [0, 1])
def test_so_is_what_lies_in_such_a_folder_or_below_one(mine: Path, above: int) -> None:
    folder = mine.parents[above]
    folder.chmod(0o777)
    [problem] = problems(mine.parent)
    assert f"{folder} may be changed by everybody: chmod o-w {folder}" in problem
    folder.chmod(0o1777)  # as /tmp: others may add files there, not put one in place of ours
    assert problems(mine) == []


def test_many_patches_in_such_a_folder_are_one_problem(mine: Path) -> None:
    (mine.parent / "other.py").write_text(PATCH)
    mine.parent.chmod(0o757)
    [problem] = problems(mine.parent)
    assert str(mine) in problem and "other.py: not run" in problem


@as_root
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_another_owner_may_change_it(mine: Path, what: str) -> None:
    link = mine.parent.parent / "link"
    link.symlink_to(mine.parent)
    given = {"file": mine, "folder": mine.parent, "link": link}[what]
    os.chown(given, STRANGER, -1, follow_symlinks=False)
    [problem] = problems(link)
    assert f"{given} belongs to user {STRANGER}, who may change it; expected root: chown -h root {given}" in problem
    subprocess.run(re.search(r"chown -h \S+ \S+$", problem)[0].split(), check=True)  # type: ignore[index]
    assert problems(link) == []


@as_root
def test_a_file_that_a_stranger_adds_to_a_sticky_folder_is_refused_alone(mine: Path) -> None:
    mine.parent.chmod(0o1777)
    (mine.parent / "theirs.py").write_text(PATCH)
    os.chown(mine.parent / "theirs.py", STRANGER, -1)
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(mine.parent)})
    assert "mine" in held.sources and "theirs" not in held.sources
    assert ["theirs.py: not run" in problem for problem in held.problems] == [True]


def test_the_folder_that_a_link_on_the_way_lies_in_counts(mine: Path, tmp_path: Path) -> None:
    """The first and the last folder are ours alone; who may write the one between may point its link elsewhere."""
    between = tmp_path / "between"
    between.mkdir()
    (between / "second").symlink_to(mine.parent)
    (tmp_path / "first").symlink_to("between/second")
    assert problems(tmp_path / "first") == []
    between.chmod(0o777)
    assert f"chmod o-w {between}" in problems(tmp_path / "first")[0]


def test_a_way_up_from_a_link_is_the_way_that_the_kernel_goes(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "inner").mkdir(parents=True)
    (mine.parent / "link").symlink_to(tmp_path / "elsewhere" / "inner")
    (tmp_path / "elsewhere").chmod(0o777)
    (tmp_path / "elsewhere" / "mine.py").write_text(PATCH)
    assert f"chmod o-w {tmp_path / 'elsewhere'}" in trust.objection(mine.parent / "link" / ".." / "mine.py")


class Known:
    """The groups and users of a machine, as far as they are asked for."""

    def __init__(self, members: tuple[str, ...], users: dict[str, tuple[int, int]]) -> None:
        self.members, self.users = members, users

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        group = type("Group", (), {"gr_mem": list(self.members), "gr_name": "team"})
        rows = [type("User", (), {"pw_name": n, "pw_uid": u, "pw_gid": g}) for n, (u, g) in self.users.items()]
        monkeypatch.setattr(trust.grp, "getgrgid", lambda gid: group)
        monkeypatch.setattr(trust.pwd, "getpwall", lambda: rows)


@pytest.mark.parametrize(
    ("members", "users", "others"),
    [
        ((), {}, ""),  # a container that was given a user by number
        ((), {"me": (os.geteuid(), 77)}, ""),  # a group for each user, umask 002
        (("me",), {"me": (os.geteuid(), 1)}, ""),
        (("root",), {"root": (0, 77)}, ""),
        (("bob",), {"bob": (5, 5)}, "group team (bob)"),  # by membership
        ((), {"bob": (5, 77), "eve": (6, 77)}, "group team (bob, eve)"),  # by being their first group
        (("gone",), {}, "group team (gone)"),  # a name that is nobody's here may be somebody's elsewhere
    ],
)
def test_a_group_counts_where_somebody_else_is_in_it(
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: tuple[str, ...],
    users: dict[str, tuple[int, int]],
    others: str,
) -> None:
    if os.geteuid() == 0:
        os.chown(mine, -1, 77)
    else:
        pytest.skip("only root can give a file to group 77")
    mine.chmod(0o664)
    Known(members, users).install(monkeypatch)
    said = trust.objection(mine)
    assert said == (f"{mine} may be changed by {others}: chmod g-w {mine}" if others else "")


def test_what_others_may_change_is_an_error_under_strict(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ascend_hotfix import log, scope

    monkeypatch.setenv("ASCEND_HOTFIX_PATH", str(mine))
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    mine.chmod(0o666)
    scope.reset()
    with pytest.raises(log.StrictError, match="may be changed by everybody"):
        scope.announce()
    scope.reset()


def test_a_relative_path_that_leads_nowhere_says_from_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [problem] = load_catalog({"ASCEND_HOTFIX_PATH": "patches"}).problems
    assert f"No such file or directory in {tmp_path}, the working folder of this process" in problem
