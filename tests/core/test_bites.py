"""Behaviour of seams that a deliberate break once left unnoticed, on stand-ins for the modules that are hooked.

Each test goes in by the front door: the module has just been imported, what upstream calls is called. With the
behaviour taken out it fails; the tests on real upstream show the same thing where it matters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ascend_hotfix import scope, seams
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER, Ledger
from ascend_hotfix.records import ClassAlias, Fix, Prefix, Scheme
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import ignore, layers, schemes
from ascend_hotfix.seams.watch import Watch

Mine = Callable[..., None]
PATCH = """
from ascend_hotfix.records import *
PATCH = ModelPatch(model_types={types!r}, fixes=(Fix(id="fix", why="w", refs=("r",), {rules}),))
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No patch and no hit of another test; an error of ours is raised."""
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    monkeypatch.setattr(layers, "_ARMED", [])
    LEDGER.entries.clear()
    LEDGER.findings.clear()
    scope.reset()
    yield
    scope.reset()
    LEDGER.entries.clear()


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mine:
    """Puts a patch of the user's in place, which alone is used."""

    def write(rules: str, *types: str) -> None:
        file = tmp_path / "mine.py"
        file.write_text(PATCH.format(types=types or ("tiny",), rules=rules))
        monkeypatch.setenv("ASCEND_HOTFIX_PATH", str(file))
        monkeypatch.setenv("ASCEND_HOTFIX_MODELS", "mine")
        scope.reset()

    return write


def module(name: str, **holds: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(holds)
    return made


def examples(seam: str) -> list[str]:
    return LEDGER.entry("mine", "fix", seam).examples


def pinned(**fields: Any) -> Any:
    fix = Fix(id="fix", why="w", refs=("r",), **fields)
    return scope.pinned(Scope(("tiny",), [Selection("mine", fix)]))


# build: prefixes


def utils() -> ModuleType:
    def maybe_prefix(prefix: str, name: str) -> str:
        return f"{prefix}.{name}" if prefix else name

    return module("vllm.model_executor.models.utils", maybe_prefix=maybe_prefix, extract_layer_index=lambda name: 0)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes vLLM's current config one whose quant description holds these modules."""

    class Config:
        def __init__(self, names: tuple[str, ...]) -> None:
            self.quant_description = {f"{name}.weight": "W8A8" for name in names}

    def current(*names: str) -> None:
        config = Config(names)
        held = module("vllm.config", get_current_vllm_config=lambda: SimpleNamespace(quant_config=config))
        monkeypatch.setitem(sys.modules, "vllm", module("vllm"))
        monkeypatch.setitem(sys.modules, "vllm.config", held)

    return current


RULE = Prefix("model", "language_model.model")


def test_a_prefix_that_nothing_quantized_has_becomes_one_that_has(described: Callable[..., None]) -> None:
    described("language_model.model.layers.0.mlp")
    seams.on_import("vllm.model_executor.models.utils", made := utils())
    with pinned(build=(RULE,)):
        assert made.maybe_prefix("model", "layers") == "language_model.model.layers"
    assert made.maybe_prefix("model", "layers") == "model.layers"
    assert examples("build") == ["model.layers -> language_model.model.layers"]


def test_a_prefix_that_is_known_stays(described: Callable[..., None]) -> None:
    described("language_model.model.layers.0.mlp", "model.layers.0.mlp")
    seams.on_import("vllm.model_executor.models.utils", made := utils())
    with pinned(build=(RULE,)):
        assert made.maybe_prefix("model", "layers") == "model.layers"


def test_a_prefix_is_replaced_where_a_fix_overrides(described: Callable[..., None]) -> None:
    described("model.layers.0.mlp")
    seams.on_import("vllm.model_executor.models.utils", made := utils())
    with pinned(build=(RULE,), override="it must", versions={"vllm": ">=0.11"}):
        assert made.maybe_prefix("model", "layers") == "language_model.model.layers"


def test_a_model_file_that_bound_the_function_before_has_the_wrapped_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = utils()
    early = module("a_model_file", maybe_prefix=made.maybe_prefix)
    other = module("another_file", maybe_prefix=lambda prefix, name: "its own")
    monkeypatch.setitem(sys.modules, "a_model_file", early)
    monkeypatch.setitem(sys.modules, "another_file", other)
    seams.on_import("vllm.model_executor.models.utils", made)
    with pinned(build=(RULE,), override="it must", versions={"vllm": ">=0.11"}):
        assert early.maybe_prefix("model", "layers") == "language_model.model.layers"
        assert other.maybe_prefix("model", "layers") == "its own"


# describe: keys of the description


def slim(description: dict[str, Any]) -> Any:
    """A config of ModelSlim's that reads its file in ``maybe_update_config``; its class is armed."""

    class AscendModelSlimConfig:
        def __init__(self, held: dict[str, Any]) -> None:
            self.quant_description = held

        def maybe_update_config(self, model_name: str) -> None:
            file = Path(model_name) / "quant_model_description.json"
            self.quant_description = json.loads(file.read_text())

        def get_quant_method(self, layer: object, prefix: str) -> None:
            return None

    AscendModelSlimConfig.__module__ = "vllm_ascend.quantization.modelslim_config"
    seams.on_import(
        "vllm_ascend.quantization.modelslim_config",
        module("vllm_ascend.quantization.modelslim_config", AscendModelSlimConfig=AscendModelSlimConfig),
    )
    return AscendModelSlimConfig(description)


@pytest.mark.parametrize(
    ("held", "key"),
    [
        ({"a.weight": "W4A8_DYNAMIC"}, 256),
        ({"a.weight": "W8A8"}, None),
        ({"a.weight": "W4A8_DYNAMIC", "group_size": 32}, 32),
    ],
)
def test_a_key_that_the_description_lacks_is_put_in_where_the_scheme_needs_it(
    held: dict[str, Any], key: int | None, mine: Mine, tmp_path: Path
) -> None:
    mine('describe=(DescriptionSet("group_size", 256, schemes=("W4A8_DYNAMIC",)),)')
    (tmp_path / "config.json").write_text('{"model_type": "tiny"}')
    (tmp_path / "quant_model_description.json").write_text(json.dumps(held))
    config = slim({})
    config.maybe_update_config(str(tmp_path))
    assert config.quant_description.get("group_size") == key
    assert examples("describe") == (["group_size = 256"] if key == 256 else [])


# config: the draft's quantization


def detected(draft: Any, target: str | None = "ascend") -> Any:
    """A vLLM config after vllm-ascend has detected the target's quantization; *draft* is ``(model, quantization)``."""

    def maybe_auto_detect_quantization(vllm_config: Any) -> None:
        vllm_config.model_config.quantization = target

    made = module("vllm_ascend.quantization.utils", maybe_auto_detect_quantization=maybe_auto_detect_quantization)
    seams.on_import("vllm_ascend.quantization.utils", made)
    hf_config = SimpleNamespace(model_type="tiny", architectures=["Tiny"])
    model = SimpleNamespace(model="/a", quantization=None, hf_config=hf_config, hf_text_config=hf_config)
    other = draft and SimpleNamespace(model=draft[0], quantization=draft[1])
    config = SimpleNamespace(model_config=model, speculative_config=draft and SimpleNamespace(draft_model_config=other))
    made.maybe_auto_detect_quantization(config)
    return other and other.quantization


@pytest.mark.parametrize(
    ("draft", "target", "told"),
    [
        (("/a", None), "ascend", "ascend"),
        (("/a", "fp8"), "ascend", "fp8"),
        (("/another", None), "ascend", None),
        (("/a", None), None, None),
        (None, "ascend", None),
    ],
)
def test_a_draft_of_the_same_checkpoint_is_told_of_the_detected_quantization(
    draft: Any, target: str | None, told: str | None, mine: Mine
) -> None:
    mine("config=(DraftQuantization(),)")
    assert detected(draft, target) == told
    assert examples("config") == (["draft of /a: ascend"] if told == "ascend" else [])


# other formats: the class of a layer


def test_a_class_that_a_config_does_not_know_has_the_scheme_of_the_one_that_it_is_called_after() -> None:
    class Config:
        def __init__(self, **targets: str) -> None:
            self.target_scheme_map = dict(targets)

    fix = Fix(id="fix", why="w", refs=("r",), describe=(ClassAlias("RoutedExperts", "Linear"),))
    current = Scope(("tiny",), [Selection("mine", fix)])
    lacking, having, other = Config(Linear="int8"), Config(Linear="int8", RoutedExperts="its own"), Config(Conv="x")
    for config in (lacking, having, other):
        ignore.arm_config(config, current)
    assert lacking.target_scheme_map == {"Linear": "int8", "RoutedExperts": "int8"}
    assert having.target_scheme_map == {"Linear": "int8", "RoutedExperts": "its own"}
    assert other.target_scheme_map == {"Conv": "x"}
    assert LEDGER.entry("mine", "fix", "describe").hits == 1


# schemes: layers of the draft alone


@pytest.mark.parametrize(
    ("mtp_only", "layer", "applies"),
    [(True, 3, False), (True, 4, True), (True, 5, True), (False, 3, True)],
)
def test_a_scheme_for_draft_layers_is_for_those_behind_the_models_own(
    mtp_only: bool, layer: int, applies: bool
) -> None:
    config = SimpleNamespace(text_config=SimpleNamespace(num_hidden_layers=4))
    current = Scope(("tiny",), [], config)
    record = Scheme("model.layers.**", "FLOAT", mtp_only=mtp_only)
    assert schemes.applies(record, f"model.layers.{layer}.mlp.down_proj", current) is applies
    assert not schemes.applies(record, "model.norm", current) or not mtp_only


# models: the scope of a wrapper, and constructors that were replaced


class Tiny:
    """A model class without parameters."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)

    def named_parameters(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def named_modules(self) -> list[Any]:
        return []

    def load_weights(self, weights: Any) -> set[str]:
        return set()


def vllm_config(model_type: str) -> Any:
    hf_config = SimpleNamespace(model_type=model_type, architectures=["Tiny"])
    model = SimpleNamespace(hf_config=hf_config, hf_text_config=hf_config, model="/a", quantization=None)
    config = type("VllmConfig", (SimpleNamespace,), {"compute_hash": lambda self: "hash"})
    return config(model_config=model, quant_config=None, speculative_config=None)


def loader(build: Callable[[Any], Any]) -> ModuleType:
    """vLLM's module with ``initialize_model``, armed."""
    made = module(
        "vllm.model_executor.model_loader.utils",
        initialize_model=lambda vllm_config, *, model_config=None: build(vllm_config),
    )
    seams.on_import(made.__name__, made)
    return made


def test_the_model_inside_a_wrapper_has_the_wrappers_fixes_too(mine: Mine) -> None:
    mine('lookup=(Prefix("a", "b"),)', "wrapper")
    seen: list[tuple[str, ...]] = []

    def build(config: Any) -> Any:
        seen.append(scope.current().types)
        assert [one.name for one in scope.current().selected] == ["mine.fix"]
        inner = config.model_config.hf_config.model_type == "wrapper"
        return Tiny(inner=made.initialize_model(vllm_config("text")) if inner else None)

    made = loader(build)
    made.initialize_model(vllm_config("wrapper"))
    assert seen == [("wrapper",), ("wrapper", "text")]


def test_a_constructor_that_another_patch_replaced_is_wrapped_again_before_the_model_is_built(mine: Mine) -> None:
    mine('layers=(Inside("Part", "Block", "part"),)')

    class Part:
        def __init__(self, prefix: str = "") -> None:
            self.prefix = prefix

    class Block:
        def __init__(self, prefix: str = "") -> None:
            self.part = Part()

    def replaced(self: Any, prefix: str = "") -> None:
        self.prefix = f"{prefix}, as replaced"

    for one in (Part, Block):
        one.__module__ = "vllm.model_executor.models.tiny"
    seams.on_import(
        "vllm.model_executor.models.tiny", module("vllm.model_executor.models.tiny", Part=Part, Block=Block)
    )
    Part.__init__ = replaced  # type: ignore[method-assign]
    built = loader(lambda _: Tiny(block=Block("layers.0"))).initialize_model(vllm_config("tiny"))
    assert built.block.part.prefix == "layers.0.part, as replaced"


# watch: what upstream takes silently


class Float(str):
    """Stands for a torch.dtype."""

    is_floating_point = True


class Tensor:
    """Has a shape and a dtype, as torch's."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.dtype = shape, Float("torch.bfloat16")


class Loaded(Tiny):
    """A built model with these parameters."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def named_parameters(self, *_: Any, **__: Any) -> list[Any]:
        return [(name, None) for name in self.names]


@pytest.mark.parametrize(
    ("tensor", "parameter", "ranks", "cut"),
    [
        ((8, 4), (4, 4), 1, True),
        ((8, 4), (4, 4), 2, False),  # each rank has its part
        ((8, 4), (4, 4), 4, False),
        ((4, 8), (8, 4), 1, False),  # the loader transposes it
        ((4, 4), (8, 4), 1, False),
        ((8, 4), (4,), 1, False),
    ],
)
def test_a_tensor_that_is_cut_to_its_parameter_is_a_finding(
    tensor: tuple[int, ...], parameter: tuple[int, ...], ranks: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", module("vllm"))
    held = module("vllm.distributed", get_tensor_model_parallel_world_size=lambda: ranks)
    monkeypatch.setitem(sys.modules, "vllm.distributed", held)
    watch = Watch(Loaded())
    watch.passing("a.weight", Tensor(*tensor), "a.weight", Tensor(*parameter))
    found = list(watch.findings(None))
    assert ["1 tensor cut to a smaller parameter: a.weight" in one for one in found] == [True] * cut


# ledger: what was not needed


def test_what_nothing_asked_for_is_unused_after_loading_and_the_rest_as_it_was() -> None:
    ledger = Ledger()
    ledger.entry("p", "idle", "lookup")
    ledger.hit("p", "used", "lookup")
    ledger.mark("p", "gone", "lookup", "drifted", "a place")
    ledger.mark("p", "other", "lookup", "out of range", "a reason")
    ledger.settle()
    assert {entry.fix: entry.state for entry in ledger} == {
        "idle": "unused",
        "used": "applied",
        "gone": "drifted",
        "other": "out of range",
    }
