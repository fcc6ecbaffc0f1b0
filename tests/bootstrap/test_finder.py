"""The finder tells of watched modules after they were executed, and leaves no trace on them or on the import."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
import wrapt

ARMED = "from ascend_hotfix import finder, gate\ngate.arm()\n"
MODELS = "vllm.model_executor.models"


# What is told, and when


def test_tells_after_the_module_has_been_executed(fresh):
    result = fresh(
        ARMED
        + """
seams.on_import = lambda name, module: told.append((name, module.LATE, module is sys.modules[name]))
import vllm.engine.arg_utils
result = told
"""
    )
    assert result == [["vllm.engine.arg_utils", 1, True]]


def test_tells_of_exact_names_and_of_everything_below_a_watched_package(fresh):
    fresh.write({"vllm_ascend/__init__.py": "", "vllm_ascend/patch/__init__.py": "", "vllm_ascend/patch/worker.py": ""})
    result = fresh(
        ARMED
        + """
import vllm.engine.arg_utils, vllm.other, vllm.model_executor.models.llama, vllm.model_executor.models.deep.inner
import vllm_ascend.patch.worker
result = told
"""
    )
    assert result == [
        "vllm.engine.arg_utils",
        f"{MODELS}.utils",
        f"{MODELS}.llama",
        f"{MODELS}.deep",
        f"{MODELS}.deep.inner",
        "vllm_ascend.patch.worker",
    ]


def test_tells_before_the_importer_binds_a_name_of_the_module(fresh):
    """144 to 285 model files bind ``maybe_prefix`` by name, so it must be wrapped before they get it."""
    result = fresh(
        ARMED
        + """
def on_import(name, module):
    if name.endswith(".utils"):
        module.maybe_prefix = lambda prefix, name: "wrapped"
seams.on_import = on_import
from vllm.model_executor.models.llama import maybe_prefix
result = maybe_prefix("a", "b")
"""
    )
    assert result == "wrapped"


def test_tells_again_after_a_reload(fresh):
    result = fresh(
        ARMED
        + """
import importlib, vllm.engine.arg_utils
importlib.reload(vllm.engine.arg_utils)
result = [told, vllm.engine.arg_utils.__spec__.loader is vllm.engine.arg_utils.__loader__, type(vllm.engine.arg_utils.__loader__).__name__]
"""
    )
    assert result == [["vllm.engine.arg_utils"] * 2, True, "SourceFileLoader"]


def test_a_lazily_loaded_module_is_told_when_it_is_executed(fresh):
    result = fresh(
        ARMED
        + """
import importlib.util
spec = importlib.util.find_spec("vllm.engine.arg_utils")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = sys.modules["vllm.engine.arg_utils"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
seams.on_import = lambda name, module: told.append((name, module.LATE))
result = [list(told)]
module.LATE
result += [told, type(module.__loader__).__name__]
"""
    )
    assert result == [[], [["vllm.engine.arg_utils", 1]], "SourceFileLoader"]


def test_a_private_copy_is_told_as_itself(fresh):
    result = fresh(
        ARMED
        + """
import importlib.util, vllm.engine.arg_utils
public = vllm.engine.arg_utils
del sys.modules["vllm.engine.arg_utils"]
spec = importlib.util.find_spec("vllm.engine.arg_utils")
sys.modules["vllm.engine.arg_utils"] = public
copy = importlib.util.module_from_spec(spec)
seams.on_import = lambda name, module: told.append(module is copy)
spec.loader.exec_module(copy)
result = told
"""
    )
    assert result == ["vllm.engine.arg_utils", True]


def test_a_module_that_replaces_itself_is_told_as_its_replacement(fresh):
    fresh.write(
        {"vllm/engine/arg_utils.py": "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(new=True)\n"}
    )
    result = fresh(
        ARMED
        + """
seams.on_import = lambda name, module: told.append(module.new)
import vllm.engine.arg_utils
result = told
"""
    )
    assert result == [True]


def test_a_hook_may_import_other_watched_modules(fresh):
    result = fresh(
        ARMED
        + """
def on_import(name, module):
    import vllm.model_executor.models.llama
    told.append(name)
seams.on_import = on_import
import vllm.engine.arg_utils
result = told
"""
    )
    assert result == [f"{MODELS}.utils", f"{MODELS}.llama", "vllm.engine.arg_utils"]


def test_threads_importing_the_same_modules_tell_each_once(fresh):
    fresh.write({f"vllm/model_executor/models/m{i}.py": "import time\ntime.sleep(0.001)\n" for i in range(12)})
    result = fresh(
        ARMED
        + """
import importlib, threading
start = threading.Barrier(8)
def load(turn):
    start.wait()
    for i in range(12):
        importlib.import_module(f"vllm.model_executor.models.m{(i + turn) % 12}")
threads = [threading.Thread(target=load, args=(turn,)) for turn in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
result = [len(told), len(set(told)), len(ours()[0]._asking)]
"""
    )
    assert result == [12, 12, 0]


# What is not disturbed


def test_looking_for_a_spec_executes_and_tells_nothing(fresh):
    result = fresh(
        ARMED
        + """
import importlib.machinery, importlib.util, pickle
spec = importlib.util.find_spec("vllm.engine.arg_utils")
again = pickle.loads(pickle.dumps(spec.loader))
result = [
    told, "vllm.engine.arg_utils" in sys.modules, isinstance(spec.loader, importlib.machinery.SourceFileLoader),
    spec.loader.get_source("vllm.engine.arg_utils"), spec.loader.name, hasattr(spec.loader, "nonesuch"),
    type(again).__name__, again.path == spec.origin,
]
"""
    )
    assert result == [[], False, True, "LATE = 1\n", "vllm.engine.arg_utils", False, "SourceFileLoader", True]


def test_an_imported_module_has_its_own_loader_even_while_it_runs(fresh):
    fresh.write(
        {
            "vllm/engine/arg_utils.py": "seen = [type(__loader__).__name__, type(__spec__.loader).__name__]\ndef f(): return 1\n"
        }
    )
    result = fresh(
        ARMED
        + """
import inspect, pickle, vllm.engine.arg_utils
loader = vllm.engine.arg_utils.__loader__
result = [vllm.engine.arg_utils.seen, vllm.engine.arg_utils.__spec__.loader is loader, inspect.getsource(vllm.engine.arg_utils.f),
          pickle.loads(pickle.dumps(loader)) == loader]
"""
    )
    assert result == [["SourceFileLoader"] * 2, True, "def f(): return 1\n", True]


def test_package_data_of_a_watched_package_is_readable(fresh):
    fresh.write({"vllm/model_executor/models/deep/table.txt": "rows"})
    result = fresh(
        ARMED
        + """
import importlib.resources, vllm.model_executor.models.deep as deep
result = importlib.resources.files(deep).joinpath("table.txt").read_text()
"""
    )
    assert result == "rows"


def test_running_a_watched_module_as_a_script(fresh):
    fresh.write({"vllm/engine/arg_utils.py": "NAME = __name__\n"})
    result = fresh(
        ARMED
        + """
import runpy
result = [runpy.run_module("vllm.engine.arg_utils", run_name="__main__")["NAME"], told]
"""
    )
    assert result == ["__main__", []]


def test_a_namespace_package_below_a_watched_package_is_imported_and_not_told(fresh):
    fresh.write({"vllm/model_executor/models/space/inner.py": ""})
    result = fresh(ARMED + "import vllm.model_executor.models.space.inner\nresult = told\n")
    assert result == [f"{MODELS}.space.inner"]


def test_a_missing_module_is_the_usual_error(fresh):
    result = fresh(
        ARMED
        + """
try:
    import vllm.model_executor.models.nonesuch
except ModuleNotFoundError as error:
    result = [str(error), error.name, told]
"""
    )
    name = f"{MODELS}.nonesuch"
    assert result == [f"No module named '{name}'", name, []]


def test_an_error_of_the_module_passes_unchanged_and_a_second_try_is_told(fresh):
    result = fresh(
        ARMED
        + """
import importlib, traceback
result = []
for _ in range(2):
    try:
        import vllm.model_executor.models.broken
    except RuntimeError as error:
        result.append([str(error), "vllm.model_executor.models.broken" in sys.modules])
sys.path_importer_cache.clear()
open("vllm/model_executor/models/broken.py", "w").write("mended = True")
import vllm.model_executor.models.broken as mended
result.append([mended.mended, told])
"""
    )
    name = f"{MODELS}.broken"
    assert result == [["upstream is broken", False]] * 2 + [[True, [name]]]


# Other loaders and finders


def test_a_module_in_a_zip_file(fresh, tmp_path):
    archive = tmp_path / "vllm.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("vllm_ascend/__init__.py", "")
        bundle.writestr("vllm_ascend/quantization/__init__.py", "")
        bundle.writestr("vllm_ascend/quantization/quant_config.py", "LATE = 1\n")
    result = fresh(
        ARMED
        + """
import vllm_ascend.quantization.quant_config as module, zipimport
result = [told, type(module.__loader__) is zipimport.zipimporter, module.__spec__.loader is module.__loader__,
          module.__loader__.get_source(module.__name__)]
""",
        path=(str(archive),),
    )
    assert result == [["vllm_ascend.quantization.quant_config"], True, True, "LATE = 1\n"]


def test_a_loader_that_is_a_class(fresh):
    """As that of frozen and built-in modules is."""
    result = fresh(
        ARMED
        + """
import importlib.util
class Loader:
    create_module = staticmethod(lambda spec: None)
    exec_module = staticmethod(lambda module: module.__dict__.update(made=True))
class Other:
    find_spec = staticmethod(lambda name, path, target=None:
        importlib.util.spec_from_loader(name, Loader) if name == "vllm.engine.arg_utils" else None)
sys.meta_path.append(Other)
sys.path_importer_cache.clear()
import os
os.remove("vllm/engine/arg_utils.py")
import vllm.engine.arg_utils
result = [told, vllm.engine.arg_utils.made, vllm.engine.arg_utils.__loader__ is Loader, vllm.engine.arg_utils.__spec__.loader is Loader]
"""
    )
    assert result == [["vllm.engine.arg_utils"], True, True, True]


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="Python 3.15 has no load_module any more")
def test_a_loader_of_before_exec_module(fresh):
    result = fresh(
        ARMED
        + """
import importlib.util, os, types, warnings
warnings.simplefilter("ignore")
class Loader:
    def load_module(self, name):
        module = sys.modules[name] = types.ModuleType(name)
        module.made = True
        return module
class Other:
    find_spec = staticmethod(lambda name, path, target=None:
        importlib.util.spec_from_loader(name, Loader()) if name == "vllm.engine.arg_utils" else None)
os.remove("vllm/engine/arg_utils.py")
sys.meta_path.append(Other)
import vllm.engine.arg_utils
made = vllm.engine.arg_utils
result = [told, made.made, type(made.__loader__) is Loader, type(made.__spec__.loader) is Loader]
"""
    )
    assert result == [["vllm.engine.arg_utils"], True, True, True]


@pytest.mark.parametrize("place", ["0", "len(sys.meta_path)"])
def test_a_finder_that_asks_the_whole_meta_path_again(fresh, place):
    result = fresh(
        ARMED
        + f"""
import importlib.util
class Asking:
    busy = False
    def find_spec(self, name, path=None, target=None):
        if self.busy or not name.startswith("vllm."):
            return None
        self.busy = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.busy = False
sys.meta_path.insert({place}, Asking())
import vllm.engine.arg_utils
result = [told, type(vllm.engine.arg_utils.__loader__).__name__]
"""
    )
    assert result == [["vllm.engine.arg_utils"], "SourceFileLoader"]


@pytest.mark.parametrize("first", ["wrapt", "ours"])
def test_beside_an_import_hook_of_wrapt(fresh, first):
    hook = (
        'import wrapt\nwrapt.register_post_import_hook(lambda module: told.append("wrapt"), "vllm.engine.arg_utils")\n'
    )
    result = fresh(
        (ARMED + hook if first == "wrapt" else hook + ARMED) + "import vllm.engine.arg_utils\nresult = sorted(told)\n",
        path=(str(Path(wrapt.__file__).parents[1]),),
    )
    assert result == ["vllm.engine.arg_utils", "wrapt"]


def test_an_error_of_another_finder_passes_unchanged(fresh):
    result = fresh(
        ARMED
        + """
class Other:
    def find_spec(self, name, path=None, target=None):
        if name == "vllm.engine.arg_utils":
            raise PermissionError("no")
sys.meta_path.insert(1, Other())
try:
    import vllm.engine.arg_utils
except PermissionError as error:
    result = [str(error), len(ours()[0]._asking)]
"""
    )
    assert result == ["no", 0]


# Failures of ours

FAILING = (
    ARMED
    + """
def on_import(name, module):
    raise {error}
seams.on_import = on_import
"""
)


def test_a_failing_hook_is_one_warning_and_the_import_works(fresh):
    result = fresh(
        FAILING.format(error="LookupError('no such target')")
        + "import vllm.model_executor.models.llama as llama, vllm.engine.arg_utils\nresult = hasattr(llama, 'maybe_prefix')\n"
    )
    assert result is True
    assert fresh.stderr.count("no such target") == 1
    assert f"could not hook {MODELS}.utils (LookupError: no such target)" in fresh.stderr
    assert "ASCEND_HOTFIX_STRICT=1" in fresh.stderr and "Traceback" not in fresh.stderr


def test_a_failing_hook_fails_the_import_when_strict(fresh):
    result = fresh(
        FAILING.format(error="LookupError('no such target')")
        + """
try:
    import vllm.engine.arg_utils
except LookupError as error:
    result = [str(error), "vllm.engine.arg_utils" in sys.modules]
""",
        ASCEND_HOTFIX_STRICT="1",
    )
    assert result == ["no such target", False]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit"])
def test_a_request_to_stop_is_not_contained(fresh, error):
    result = fresh(
        FAILING.format(error=f"{error}()")
        + f"""
try:
    import vllm.engine.arg_utils
except {error}:
    result = "stopped"
"""
    )
    assert result == "stopped"


def test_seams_that_cannot_be_imported_are_one_warning(fresh):
    result = fresh(
        ARMED
        + """
sys.modules["ascend_hotfix.seams"] = None
import vllm.model_executor.models.llama, vllm.engine.arg_utils
result = True
"""
    )
    assert result is True
    assert fresh.stderr.count("could not hook") == 1


def test_seams_are_imported_with_the_first_watched_module_and_not_earlier(fresh):
    fresh.write({"wrapt.py": "from vllm import no_such_name\n"})  # whatever the seams import, it is here or fails late
    result = fresh(
        """
        import sys
        from ascend_hotfix import gate
        gate.arm()
        import vllm.other
        result = ["ascend_hotfix.seams" in sys.modules, "wrapt" in sys.modules]
        """,
        recorder=False,
    )
    assert result == [False, False]
