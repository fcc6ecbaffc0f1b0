"""Arming: once, by whoever comes first, and not at all when switched off."""

from __future__ import annotations

import pkgutil
import sysconfig
from pathlib import Path

import pytest

from ascend_hotfix import gate, toggles

BOOTSTRAP = Path(gate.__file__).parent / "bootstrap"


def test_arms_in_front_of_every_finder(fresh):
    result = fresh("""
        from ascend_hotfix import gate
        gate.arm()
        result = [sys.meta_path.index(finder) for finder in ours()]
    """)
    assert result == [0]


def test_arming_again_changes_nothing(fresh):
    result = fresh("""
        from ascend_hotfix import gate
        gate.arm()
        before = list(sys.meta_path)
        gate.arm()
        gate.arm()
        result = [sys.meta_path == before, len(ours())]
    """)
    assert result == [True, 1]


def test_a_second_copy_of_the_package_does_not_arm_again(fresh):
    result = fresh("""
        from ascend_hotfix import gate
        gate.arm()
        for name in [name for name in sys.modules if name.startswith("ascend_hotfix")]:
            del sys.modules[name]
        from ascend_hotfix import gate
        gate.arm()
        result = len(ours())
    """)
    assert result == 1


@pytest.mark.parametrize("value", ["none", "0", "off", "false", "no", " NONE ", "Off"])
def test_switched_off_nothing_is_told_but_what_carries_the_switch_to_ray(fresh, value):
    result = fresh(
        """
        from ascend_hotfix import gate
        gate.arm()
        import vllm.engine.arg_utils, vllm.model_executor.models.llama, vllm.ray.ray_env
        gate.arm()
        result = [told, vllm.model_executor.models.llama.__spec__.loader.__class__ is type(vllm.__spec__.loader)]
        """,
        ASCEND_HOTFIX_MODELS=value,
    )
    assert result == [["vllm.ray.ray_env"], True]


def test_switched_off_an_interpreter_without_vllm_imports_only_gate_and_finder(fresh):
    result = fresh(
        """
        import sys
        before = set(sys.modules)
        from ascend_hotfix import gate
        gate.arm()
        import json, vllm.other
        result = sorted(name for name in set(sys.modules) - before if name.startswith("ascend_hotfix"))
        """,
        recorder=False,
        ASCEND_HOTFIX_MODELS="none",
    )
    assert result == ["ascend_hotfix", "ascend_hotfix.finder", "ascend_hotfix.gate", "ascend_hotfix.toggles"]


@pytest.mark.parametrize("value", ["", "all", "qwen3_moe", "-qwen3_moe", "nonesuch"])
def test_any_other_choice_of_models_arms(fresh, value):
    result = fresh("from ascend_hotfix import gate; gate.arm(); result = len(ours())", ASCEND_HOTFIX_MODELS=value)
    assert result == 1


def test_switching_off_before_vllm_is_imported_still_counts(fresh):
    result = fresh("""
        import os
        from ascend_hotfix import gate
        gate.arm()
        os.environ["ASCEND_HOTFIX_MODELS"] = "none"
        import vllm.engine.arg_utils
        result = told
    """)
    assert result == []


def test_switching_on_later_arms_on_the_next_call(fresh):
    result = fresh(
        """
        import os
        from ascend_hotfix import gate
        gate.arm()
        import vllm.model_executor.models.utils
        del os.environ["ASCEND_HOTFIX_MODELS"]
        gate.arm()
        import vllm.engine.arg_utils
        result = told
        """,
        ASCEND_HOTFIX_MODELS="none",
    )
    assert result == ["vllm.model_executor.models.utils", "vllm.engine.arg_utils"]
    assert fresh.stderr == ""


def test_arming_imports_nothing_but_gate_and_finder(fresh):
    result = fresh(
        """
        import os, sys
        before = set(sys.modules)
        from ascend_hotfix import gate
        gate.arm()
        result = sorted(set(sys.modules) - before)
        """,
        recorder=False,
    )
    assert result == ["ascend_hotfix", "ascend_hotfix.finder", "ascend_hotfix.gate", "ascend_hotfix.toggles"]


def test_modules_imported_before_arming_are_told_at_once(fresh):
    result = fresh("""
        import vllm.model_executor.models.llama, vllm.other
        from ascend_hotfix import gate
        gate.arm()
        result = [sorted(told)]
        gate.arm()
        result.append(len(told))
    """)
    assert result == [["vllm.model_executor.models.llama", "vllm.model_executor.models.utils"], 2]


def test_a_module_that_arms_while_it_is_imported_is_told_when_it_is_complete(fresh):
    fresh.write(
        {"vllm/engine/arg_utils.py": "from ascend_hotfix import gate\ngate.arm()\nimport vllm.other\nLATE = 1\n"}
    )
    result = fresh("""
        seams.on_import = lambda name, module: told.append((name, hasattr(module, "LATE")))
        import vllm.engine.arg_utils
        result = [list(told)]
        import vllm.model_executor.models.utils
        result.append(told)
    """)
    assert result[0] == []
    assert ["vllm.engine.arg_utils", True] in result[1] and len(result[1]) == 2


def test_a_forked_child_inherits_one_finder_and_its_own_seams(fresh):
    result = fresh("""
        import os
        from ascend_hotfix import gate
        gate.arm()
        read, write = os.pipe()
        child = os.fork()
        if not child:
            gate.arm()
            import vllm.engine.arg_utils
            os.write(write, f"{len(ours())} {told}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        result = [os.read(read, 100).decode(), told]
    """)
    assert result == ["1 ['vllm.engine.arg_utils']", []]


def test_a_broken_installation_says_so_in_one_line_and_never_raises(fresh):
    result = fresh("""
        sys.modules["ascend_hotfix.finder"] = None
        from ascend_hotfix import gate
        gate.arm()
        result = len(ours())
    """)
    assert result == 0
    assert fresh.stderr.startswith("ascend-hotfix: not armed: ") and "Reinstall" in fresh.stderr
    assert len(fresh.stderr.splitlines()) == 1


def test_the_pth_line_arms_once_though_a_venv_runs_it_twice(fresh):
    result = fresh(f"""
        import site
        for _ in range(2):
            site.addpackage({str(BOOTSTRAP)!r}, "ascend-hotfix.pth", set())
        result = len(ours())
    """)
    assert (result, fresh.stderr) == (1, "")


def test_the_pth_line_of_a_half_removed_package_is_silent(fresh):
    fresh.write({"left/ascend-hotfix.pth": (BOOTSTRAP / "ascend-hotfix.pth").read_text()})
    result = fresh(f"""
        import site
        sys.path[:] = [entry for entry in sys.path if entry != {str(BOOTSTRAP.parents[1])!r}]
        site.addpackage("left", "ascend-hotfix.pth", set())
        result = [name for name in sys.modules if name.startswith("ascend_hotfix") and name != "ascend_hotfix.seams"]
    """)
    assert (result, fresh.stderr) == ([], "")


def test_the_start_file_names_the_gate():
    """Python 3.15 (PEP 829) calls each line of it, and then leaves the import line of the .pth of that name alone."""
    lines = (BOOTSTRAP / "ascend-hotfix.start").read_text(encoding="utf-8").splitlines()
    assert [pkgutil.resolve_name(line) for line in lines] == [gate.arm]
    assert (BOOTSTRAP / "ascend-hotfix.pth").is_file()


@pytest.mark.parametrize(
    ("value", "strict"), [(None, False), ("", False), ("0", False), ("off", False), ("1", True), ("true", True)]
)
def test_strict(monkeypatch, value, strict):
    monkeypatch.delenv(toggles.STRICT, raising=False)
    if value is not None:
        monkeypatch.setenv(toggles.STRICT, value)
    assert toggles.strict() is strict


# A finder that is put in front later (typeguard's, jaxtyping's, a PathFinder of one's own)

IN_FRONT = """
import importlib.machinery, logging
logging.basicConfig()
class Theirs(importlib.machinery.PathFinder):
    pass
from ascend_hotfix import gate
gate.arm()
import vllm.engine.arg_utils
"""


@pytest.mark.parametrize("theirs", ["Theirs", "Theirs()"])
def test_what_was_imported_past_us_is_armed_by_the_plugin_and_said(fresh, theirs):
    result = fresh(
        IN_FRONT
        + f"sys.meta_path.insert(0, {theirs})\n"
        + """
import vllm.model_executor.models.llama
before = list(told)
gate.arm()
import vllm.model_executor.models.deep.inner
result = [before, told, [type(one).__name__ for one in sys.meta_path].index("Finder"), len(ours())]
"""
    )
    models = "vllm.model_executor.models."
    late = sorted([models + "llama", models + "utils"])
    assert result[0] == ["vllm.engine.arg_utils"]
    assert [sorted(result[1][1:3]), result[1][3:]] == [late, [models + "deep", models + "deep.inner"]]
    assert result[2:] == [0, 1]
    assert (
        f"{late[0]}, {late[1]} were imported past our finder" in fresh.stderr and "Theirs had been put" in fresh.stderr
    )
    assert fresh.stderr.count("ascend-hotfix: ") == 1


def test_a_finder_that_has_gone_again_has_not_taken_the_modules_with_it(fresh):
    result = fresh(
        IN_FRONT
        + """
sys.meta_path.insert(0, Theirs)
import vllm.model_executor.models.utils
sys.meta_path.remove(Theirs)
gate.arm()
result = told
"""
    )
    assert result == ["vllm.engine.arg_utils", "vllm.model_executor.models.utils"]
    assert "vllm.model_executor.models.utils was imported past our finder" in fresh.stderr


def test_a_module_imported_anew_past_us_is_told_again(fresh):
    result = fresh(
        IN_FRONT
        + """
sys.meta_path.insert(0, Theirs)
del sys.modules["vllm.engine.arg_utils"]
import vllm.engine.arg_utils
gate.arm()
gate.arm()
result = told
"""
    )
    assert result == ["vllm.engine.arg_utils"] * 2


def test_a_finder_in_front_that_hides_nothing_is_no_matter(fresh):
    result = fresh(
        IN_FRONT
        + """
class Idle:
    def find_spec(self, name, path=None, target=None):
        return None
sys.meta_path.insert(0, Idle())
import vllm.model_executor.models.utils
others = [one for one in sys.meta_path if one not in ours()]
gate.arm()
result = [told, [one for one in sys.meta_path if one not in ours()] == others, len(ours())]
"""
    )
    assert result == [["vllm.engine.arg_utils", "vllm.model_executor.models.utils"], True, 1]
    assert fresh.stderr == ""


@pytest.mark.parametrize("library", ["typeguard", "jaxtyping"])
def test_the_import_hooks_of_libraries(fresh, library):
    hook = {
        "typeguard": "import typeguard; typeguard.install_import_hook(['vllm'])",
        "jaxtyping": "import jaxtyping; jaxtyping.install_import_hook('vllm', None)",
    }[library]
    site = sysconfig.get_path("purelib")
    result = fresh(
        IN_FRONT
        + hook
        + """
import vllm.model_executor.models.llama
before = list(told)
gate.arm()
import vllm.model_executor.models.deep.inner
result = [before, len(told), type(sys.modules["vllm.model_executor.models.deep.inner"].__loader__).__module__]
""",
        path=(site,),
    )
    assert result[:2] == [["vllm.engine.arg_utils"], 5]
    assert result[2].split(".")[0] == library  # theirs acts all the same
