"""The weights and params seams on a stand-in model: named modules, parameters and a loader as vLLM's."""

from __future__ import annotations

import gc
import json
import os
import re
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ascend_hotfix import log
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import JSON_VERSION, LEDGER, STATES
from ascend_hotfix.records import RULE_FIELDS, Config, Dequantize, Drop, Fill, Fix, Prefix, Segments, Suffix
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import instances, watch, weights
from ascend_hotfix.seams.hooking import Wrapped
from ascend_hotfix.seams.watch import DOCTOR


class Parameter:
    """Holds a value; ``data.fill_`` as torch's."""

    def __init__(self) -> None:
        self.value: object = "unwritten"
        self.data = self

    def fill_(self, value: float) -> None:
        self.value = value


class Model:
    """Loads by name, and refuses a name that it does not have."""

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {"qkv_proj": ["q_proj", "k_proj"]}

    def __init__(self, *names: str) -> None:
        self.held = {name: Parameter() for name in names}

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Any]:
        return iter(self.held.items())

    def named_buffers(self, remove_duplicate: bool = True) -> Iterator[Any]:
        return iter(())

    def named_modules(self) -> Iterator[Any]:
        found = {""}
        for name in self.held:
            segments = name.split(".")[:-1]
            found.update(".".join(segments[:end]) for end in range(1, len(segments) + 1))
        return ((name, None) for name in found)

    def load_weights(self, weights: Any) -> set[str]:
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            for fused, shards in self.packed_modules_mapping.items():
                for shard in shards:
                    name = name.replace(shard, fused)
            parameters[name].value = tensor
            loaded.add(name)
        return loaded


weights.arm_class(Model)


class DraftModel(Model):
    """A draft, whose loader moves its layers below ``mtp_block``."""

    def load_weights(self, weights: Any) -> set[str]:
        return super().load_weights((re.sub(r"(layers\.\d+)\.", r"\1.mtp_block.", name), t) for name, t in weights)


weights.arm_class(DraftModel)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_HOTFIX_MODELS", raising=False)
    LEDGER.entries.clear()
    LEDGER.findings.clear()


def load(model: Model, tensors: dict[str, Any], /, **rules: Any) -> set[str]:
    fix = Fix(id="fix", why="w", refs=("r",), **rules)
    weights.remember(model, Scope(("tiny",), [Selection("patch", fix)]))
    return model.load_weights(iter(tensors.items()))


def hits(seam: str) -> int:
    return LEDGER.entry("patch", "fix", seam).hits


def test_a_name_that_misses_is_renamed_to_one_that_lands() -> None:
    model = Model("model.layers.0.fc.weight")
    tensors = {"language_model.model.layers.0.fc.weight": 1}
    assert load(model, tensors, weights=(Prefix("language_model.model", "model"),)) == {"model.layers.0.fc.weight"}
    assert model.held["model.layers.0.fc.weight"].value == 1 and hits("weights") == 1


def test_a_name_that_lands_is_left_alone() -> None:
    model = Model("model.fc.weight", "model.language_model.fc.weight")
    load(model, {"model.fc.weight": 1}, weights=(Prefix("model", "model.language_model"),))
    assert model.held["model.fc.weight"].value == 1 and hits("weights") == 0


def test_fused_names_count_as_landing() -> None:
    model = Model("model.attn.qkv_proj.weight")
    load(model, {"model.attn.q_proj.weight": 1}, weights=(Prefix("model", "language_model"),))
    assert hits("weights") == 0
    load(model, {"attn.k_proj.weight": 2}, weights=(Prefix("", "model"),))
    assert hits("weights") == 1 and model.held["model.attn.qkv_proj.weight"].value == 2


def test_a_name_that_a_drafts_loader_puts_below_its_block_counts_as_landing() -> None:
    model = DraftModel("model.layers.2.mtp_block.self_attn.mla_attn.fa_k.offset", "model.layers.2.mtp_block.fc.weight")
    tensors = {"model.layers.2.self_attn.fa_k.offset": 1, "model.layers.2.fc.weight": 2}
    load(model, tensors, weights=(Segments("self_attn.fa_k", "self_attn.mla_attn.fa_k"), Segments("fc", "fd")))
    assert [one.value for one in model.held.values()] == [1, 2]
    assert hits("weights") == 1


def test_a_name_in_a_layer_that_is_left_to_the_draft_is_renamed_in_the_target_too() -> None:
    # The target's loader knows a draft's layer by its number and skips it; under another name it raises.
    class Target(Model):
        config = SimpleNamespace(num_hidden_layers=2, num_nextn_predict_layers=1)

        def load_weights(self, weights: Any) -> set[str]:
            return super().load_weights(w for w in weights if not w[0].startswith("model.layers.2."))

    weights.arm_class(Target)
    tensors = {"core.model.layers.0.fc.weight": 1, "core.model.layers.2.eh_proj.weight": 2}
    assert load(Target("model.layers.0.fc.weight"), tensors, weights=(Prefix("core", ""),)) == {
        "model.layers.0.fc.weight"
    }
    beyond = {"core.model.layers.3.eh_proj.weight": 2}
    with pytest.raises(KeyError, match=r"core\.model\.layers\.3"):
        load(Target("model.layers.0.fc.weight"), beyond, weights=(Prefix("core", ""),))


def test_a_leaf_that_no_parameter_has_is_renamed() -> None:
    model = Model("attn.k_scale", "attn.fc.weight")
    load(model, {"attn.fc.kv_scale": 1}, weights=(Suffix("fc.kv_scale", "k_scale"),))
    assert model.held["attn.k_scale"].value == 1


def test_a_tensor_is_dropped_only_where_no_parameter_takes_it() -> None:
    model = Model("fc.weight", "rot.weight")
    assert load(model, {"fc.weight": 1, "rot.weight": 2}, drop=(Drop("rot.weight"),)) == {"fc.weight", "rot.weight"}
    assert hits("drop") == 0
    model = Model("fc.weight")
    assert load(model, {"fc.weight": 1, "rot.weight": 2}, drop=(Drop("rot.weight"),)) == {"fc.weight"}
    assert hits("drop") == 1


def test_what_no_tensor_fills_is_filled_and_reported_as_loaded() -> None:
    model = Model("gate.weight", "gate.bias")
    assert load(model, {"gate.weight": 1}, fill=(Fill("gate.bias", 0.0),)) == {"gate.weight", "gate.bias"}
    assert model.held["gate.bias"].value == 0.0 and hits("fill") == 1
    model = Model("gate.weight", "gate.bias")
    load(model, {"gate.weight": 1, "gate.bias": 5}, fill=(Fill("gate.bias", 0.0),))
    assert model.held["gate.bias"].value == 5 and hits("fill") == 1


def test_a_loader_finds_a_parameter_under_its_old_name_and_reports_the_real_one() -> None:
    model = Model("mlp.experts.routed_experts.w13_weight", "mlp.experts.routed_experts.w2_weight")
    rules = {"params": (Segments("experts.routed_experts", "experts"),)}
    loaded = load(model, {"mlp.experts.w13_weight": 1}, **rules)
    assert loaded == {"mlp.experts.routed_experts.w13_weight"}
    assert model.held["mlp.experts.routed_experts.w13_weight"].value == 1
    assert hits("params") == 1, "the alias that nobody asked for is not counted"
    assert dict(model.named_parameters()) == model.held, "aliases are gone after loading"


def test_a_right_loader_leaves_the_aliases_unused() -> None:
    model = Model("mlp.experts.routed_experts.w13_weight")
    rules = {"params": (Segments("experts.routed_experts", "experts"),)}
    load(model, {"mlp.experts.routed_experts.w13_weight": 1}, **rules)
    assert hits("params") == 0
    assert LEDGER.entry("patch", "fix", "params").state != "applied"


def test_a_look_of_ours_at_an_alias_is_no_hit() -> None:
    class Experts(Model):
        def load_weights(self, weights: Any) -> set[str]:
            parameters = dict(self.named_parameters())
            for _, tensor in weights:
                parameters["mlp.experts.routed_experts.w13_weight"].value = tensor
            return set(self.held)

    weights.arm_class(Experts)
    model = Experts("mlp.experts.routed_experts.w13_weight")
    rules = {"params": (Segments("experts.routed_experts", "experts"),), "drop": (Drop("other.weight"),)}
    load(model, {"mlp.experts.0.gate_proj.weight": 1}, **rules)
    assert model.held["mlp.experts.routed_experts.w13_weight"].value == 1
    assert hits("params") == 0


def test_a_loader_that_calls_the_one_of_its_base_class_has_no_hits_of_its_own() -> None:
    class Draft(Model):
        def load_weights(self, weights: Any) -> set[str]:
            return super().load_weights(weights)

    weights.arm_class(Draft)
    model = Draft("mlp.experts.routed_experts.w13_weight")
    rules = {"params": (Segments("experts.routed_experts", "experts"),)}
    load(model, {"mlp.experts.routed_experts.w13_weight": 1}, **rules)
    assert hits("params") == 0


def test_an_error_of_the_loader_keeps_its_type_and_names_the_tensor() -> None:
    model = Model("fc.weight")
    with pytest.raises(KeyError) as caught:
        load(model, {"fc.weight": 1, "other.weight": 2}, weights=(Prefix("a", "b"),))
    assert caught.value.args == ("other.weight",)
    assert any("stopped at the checkpoint tensor 'other.weight'" in line for line in LEDGER.findings)


def test_an_error_of_ours_passes_the_tensor_on_unless_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> str:
        raise RuntimeError("ours")

    monkeypatch.setattr(weights._Load, "_renamed", fail)
    model = Model("fc.weight")
    assert load(model, {"fc.weight": 1}, weights=(Prefix("a", "b"),)) == {"fc.weight"}
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    with pytest.raises(log.StrictError):
        load(Model("fc.weight"), {"fc.weight": 1}, weights=(Prefix("a", "b"),))


def test_none_leaves_everything_to_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_MODELS", "none")
    with pytest.raises(KeyError) as caught:
        load(Model("model.fc.weight"), {"x.fc.weight": 1}, weights=(Prefix("x", "model"),))
    assert not getattr(caught.value, "__notes__", [])


def test_the_weights_of_an_inner_model_are_renamed_once() -> None:
    inner = Model("layers.0.fc.weight")

    class Wrapper(Model):
        def load_weights(self, weights: Any) -> set[str]:
            stripped = ((name.removeprefix("model."), tensor) for name, tensor in weights)
            return {"model." + name for name in inner.load_weights(stripped)}

    weights.arm_class(Wrapper)
    wrapper = Wrapper("model.layers.0.fc.weight")
    fix = Fix(id="fix", why="w", refs=("r",), weights=(Prefix("layers", "model.layers"),))
    shared = Scope(("tiny",), [Selection("patch", fix)])
    weights.remember(inner, shared)
    weights.remember(wrapper, shared)
    assert wrapper.load_weights(iter({"layers.0.fc.weight": 1}.items())) == {"model.layers.0.fc.weight"}
    assert inner.held["layers.0.fc.weight"].value == 1 and hits("weights") == 1


class DType(SimpleNamespace):
    """A dtype, as far as the seam asks."""

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self.name)


class Int8:
    """A tensor or parameter of one byte, as far as the seam asks."""

    dtype: ClassVar[DType] = DType(name="torch.int8", is_floating_point=False, itemsize=1)
    shape: ClassVar[tuple[int, ...]] = (4, 4)


class Bf16(Int8):
    """A float tensor of the same shape."""

    dtype = DType(name="torch.bfloat16", is_floating_point=True, itemsize=2)


def test_a_quantized_layer_with_a_scale_of_another_name_is_not_held_back_for_the_scale_of_a_record() -> None:
    """Block scales are called weight_scale_inv; a record about weight_scale has nothing to do with that layer."""
    model = Model("model.fc.weight", "model.fc.weight_scale_inv")
    model.held["model.fc.weight"].dtype = Int8.dtype  # type: ignore[attr-defined]
    model.held["model.fc.weight"].shape = Int8.shape  # type: ignore[attr-defined]
    weight = Int8()
    load(model, {"model.fc.weight": weight, "model.fc.weight_scale_inv": 2}, tensors=(Dequantize("model.*"),))
    assert model.held["model.fc.weight"].value is weight
    assert [line for line in LEDGER.findings if "dequantized" in line] == [] and hits("tensors") == 0


def test_the_ledger_of_a_load_is_what_the_document_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "folder"
    monkeypatch.setenv("ASCEND_HOTFIX_LEDGER", str(folder))
    load(Model("b.weight", "c.weight"), {"a.weight": 1}, weights=(Prefix("a", "b"),), drop=(Drop("never.there"),))
    [file] = folder.iterdir()
    written = json.loads(file.read_text(encoding="utf-8"))
    text = (Path(__file__).parents[2] / "docs" / "ledger-json.md").read_text(encoding="utf-8")
    schema = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])  # type: ignore[index]
    assert broken(written, schema) == []
    assert schema["properties"]["version"]["enum"] == [JSON_VERSION]
    entry = schema["properties"]["entries"]["items"]["properties"]
    assert (entry["seam"]["enum"], entry["state"]["enum"]) == (list(RULE_FIELDS), list(STATES))
    assert re.findall(r"^\| `([a-z ]+)` \|", text.partition("| state |")[2], re.MULTILINE) == list(STATES)
    named = set(re.findall(r"`(?:entries\[\]\.)?(\w+)`", text.partition("| state |")[0]))
    assert {*schema["properties"], *entry} <= named
    assert (re.fullmatch(rf".+-{os.getpid()}-[0-9a-f]{{16}}\.json", file.name) is not None, written["pid"]) == (
        True,
        os.getpid(),
    )
    assert [(e["seam"], e["state"], e["hits"], e["examples"]) for e in written["entries"]] == [
        ("weights", "applied", 1, ["a.weight -> b.weight"]),
    ]
    assert written["findings"] == ["Model: 1 parameter never written, with whatever memory held: c.weight. " + DOCTOR]


def broken(value: Any, rules: dict[str, Any], at: str = "$") -> list[str]:
    """Where *value* breaks *rules*, as much of JSON Schema as the document uses."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int}
    if not isinstance(value, kinds[rules["type"]]):
        return [f"{at} is no {rules['type']}"]
    found = [f"{at} is none of {rules['enum']}"] if value not in rules.get("enum", [value]) else []
    if isinstance(value, list):
        found += [f"{at} is too long"] if len(value) > rules.get("maxItems", len(value)) else []
        found += [line for one in value for line in broken(one, rules["items"], f"{at}[]")]
    if isinstance(value, dict):
        found += [f"{at} lacks {key}" for key in rules["required"] if key not in value]
        for key, one in value.items():
            known = rules["properties"].get(key)
            found += [f"{at} has {key}"] if known is None else broken(one, known, f"{at}.{key}")
    return found


def test_a_load_that_fails_writes_the_ledger_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_LEDGER", str(tmp_path))
    with pytest.raises(KeyError):
        load(Model("b.weight"), {"a.weight": 1, "other.weight": 2}, weights=(Prefix("a", "b"),))
    [file] = tmp_path.iterdir()
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [entry["state"] for entry in written["entries"]] == ["applied"]
    assert "stopped at the checkpoint tensor 'other.weight'" in written["findings"][0]


def test_a_ledger_that_cannot_be_written_is_a_finding_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASCEND_HOTFIX_LEDGER", str(tmp_path / "file" / "folder"))
    drop = (Drop("never.there"),)
    assert load(Model("a.weight", "c.weight"), {"a.weight": 1}, drop=drop) == {"a.weight"}
    told, other = LEDGER.findings
    assert told == f"ASCEND_HOTFIX_LEDGER={tmp_path / 'file' / 'folder'}: Not a directory; " + (
        "expected a folder that can be made and written"
    )
    assert "1 parameter never written" in other
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    with pytest.raises(log.StrictError, match="Not a directory"):
        load(Model("a.weight"), {"a.weight": 1}, drop=drop)


EXPERTS = "model.layers.0.mlp.experts"


class ExpertsModel(Model):
    """Takes the experts of one layer into one quantized parameter."""

    def __init__(self) -> None:
        super().__init__(f"{EXPERTS}.w2_weight")
        self.held[f"{EXPERTS}.w2_weight"].dtype = Int8.dtype  # type: ignore[attr-defined]
        self.held[f"{EXPERTS}.w2_weight"].shape = (9, 4, 4)  # type: ignore[attr-defined]
        self.taken: list[str] = []

    def load_weights(self, weights: Any) -> set[str]:
        self.taken = [name for name, _ in weights]
        return set(self.held)


weights.arm_class(ExpertsModel)


def of_experts(numbers: Iterable[int], tensor: Any, kind: str = "down_proj.weight") -> dict[str, Any]:
    return {f"{EXPERTS}.{number}.{kind}": tensor for number in numbers}


def test_one_expert_unlike_the_others_is_found_among_them() -> None:
    tensors = {**of_experts(range(9), Int8()), **of_experts([6], Bf16())}
    model = ExpertsModel()
    load(model, tensors, weights=(Prefix("language_model", "model"),))
    assert model.taken == list(tensors)
    assert ["1 float tensor " in line and f"{EXPERTS}.6.down_proj.weight" in line for line in LEDGER.findings] == [True]


def test_an_expert_that_is_missing_from_one_of_its_layers_is_found() -> None:
    tensors = of_experts(range(9), Int8()) | of_experts([0, 1, 2, 3, 4, 6, 7, 8], Int8(), "down_proj.scale")
    load(ExpertsModel(), tensors, weights=(Prefix("language_model", "model"),))
    assert any("experts are missing" in line and "experts.{5}.down_proj.scale" in line for line in LEDGER.findings)


def test_an_overriding_rule_for_one_expert_acts_on_it_alone() -> None:
    model = ExpertsModel()
    override = {"override": "it is taken from elsewhere", "versions": {"vllm-ascend": ">=0.11"}}
    load(model, of_experts(range(9), Int8()), drop=(Drop(f"{EXPERTS}.6.**"),), **override)
    assert model.taken == list(of_experts([0, 1, 2, 3, 4, 5, 7, 8], None)) and hits("drop") == 1


# --- weights in parts ------------------------------------------------------------------------------------------------


def finish(model: Model) -> None:
    """vLLM's end of a load."""
    Wrapped(lambda model: None, instances._processing)(model)


def test_a_first_load_in_parts_is_judged_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    model = Model("gate.weight", "gate.bias", "fc.weight")
    load(model, {"gate.weight": 1}, fill=(Fill("gate.bias", 0.0),))
    assert ["1 parameter never written" in line and "fc.weight" in line for line in LEDGER.findings] == [True]
    model.load_weights([("fc.weight", 2)])
    assert LEDGER.findings == []
    finish(model)
    incomplete = Model("gate.weight", "fc.weight")
    load(incomplete, {"gate.weight": 1}, drop=(Drop("never.there"),))
    with pytest.raises(log.StrictError, match="1 parameter never written"):
        finish(incomplete)


def test_a_tensor_that_comes_after_the_fill_takes_its_hit_back() -> None:
    model = Model("gate.weight", "gate.bias")
    load(model, {"gate.weight": 1}, fill=(Fill("gate.bias", 0.0),))
    assert model.held["gate.bias"].value == 0.0 and hits("fill") == 1
    model.load_weights([("gate.bias", 5)])
    assert model.held["gate.bias"].value == 5 and hits("fill") == 0
    for tensors in ([("gate.weight", 2)], [("gate.weight", 3)]):
        assert model.load_weights(tensors) == {"gate.weight"}
    assert model.held["gate.bias"].value == 5 and hits("fill") == 0


def test_a_live_model_is_filled_no_more_whatever_wrote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders of sharded states and servers that copy from each other write parameters without load_weights."""
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    model = Model("gate.weight", "gate.bias")
    fix = Fix(id="fix", why="w", refs=("r",), fill=(Fill("gate.bias", 0.0),))
    held = weights.remember(model, Scope(("tiny",), [Selection("patch", fix)]))
    held.fill()
    model.held["gate.bias"].value = 5
    finish(model)
    assert model.load_weights([("gate.weight", 2)]) == {"gate.weight"}
    held.refill()
    assert model.held["gate.bias"].value == 5 and hits("fill") == 0 and LEDGER.findings == []


def test_dummy_weights_are_filled_and_then_overwritten() -> None:
    model = Model("gate.weight", "gate.bias")
    fix = Fix(id="fix", why="w", refs=("r",), fill=(Fill("gate.bias", 0.0),))
    weights.remember(model, Scope(("tiny",), [Selection("patch", fix)])).fill()

    def initialize_dummy_weights(model: Model) -> None:
        for parameter in model.held.values():
            parameter.value = "random"

    Wrapped(initialize_dummy_weights, instances._dummy)(model)
    finish(model)
    assert model.held["gate.bias"].value == 0.0
    model.load_weights([("gate.weight", 1)])
    assert model.held["gate.bias"].value == 0.0 and hits("fill") == 1
    model.load_weights([("gate.bias", 5)])
    model.load_weights([("gate.weight", 1)])
    assert model.held["gate.bias"].value == 5 and hits("fill") == 0


class Silent(Model):
    """Reports nothing of what it loads, as some of vLLM's classes."""

    def load_weights(self, weights: Any) -> None:  # type: ignore[override]
        super().load_weights(weights)


weights.arm_class(Silent)


class Forgetful(ExpertsModel):
    """Leaves the experts out of its report (GraniteMoeHybrid on vLLM 0.23)."""

    def load_weights(self, weights: Any) -> set[str]:
        super().load_weights(weights)
        return set()


weights.arm_class(Forgetful)


def test_what_a_loader_does_not_report_is_known_by_where_it_lands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    silent = Silent("gate.weight", "gate.bias")
    load(silent, {"gate.weight": 1, "gate.bias": 5}, fill=(Fill("gate.bias", 0.0),))
    silent.load_weights([("gate.weight", 2)])
    assert silent.held["gate.bias"].value == 5 and hits("fill") == 0
    finish(silent)
    forgetful = Forgetful()
    load(forgetful, of_experts(range(9), Int8()), drop=(Drop("never.there"),))
    finish(forgetful)
    assert LEDGER.findings == []


def test_one_tensor_at_a_time_asks_for_the_models_places_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("a.weight", "b.weight")
    load(model, {"x.a.weight": 1, "b.weight": 1}, weights=(Prefix("x", ""),))
    finish(model)
    made = []
    places = weights.Places.__init__
    monkeypatch.setattr(weights.Places, "__init__", lambda *args: made.append(1) or places(*args))
    for _ in range(5):
        model.load_weights([("x.a.weight", 2)])
    assert model.held["a.weight"].value == 2 and len(made) == 1


def test_a_live_model_whose_parameters_have_been_replaced_is_looked_at_again() -> None:
    model = Model("a.weight")
    load(model, {"x.a.weight": 1}, weights=(Prefix("x", ""),))
    finish(model)
    model.load_weights([("x.a.weight", 2)])
    gone = weakref.ref(model.held["a.weight"])
    model.held = {"c.weight": Parameter()}
    gc.collect()
    assert gone() is None, "what is remembered of the model holds no memory of it"
    model.load_weights([("x.c.weight", 3)])
    assert model.held["c.weight"].value == 3


def test_the_check_of_a_load_does_not_keep_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("a.weight")
    load(model, {"a.weight": 1}, drop=(Drop("never.there"),))
    finish(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_quantized_module_that_a_record_about_another_scale_covers_passes_unsaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layers of a draft have no parameter in the target, and int8 weights no block scale."""
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    monkeypatch.setattr(watch, "_tensor_parallel_size", lambda: 1)
    model = Passing("model.fc.weight")
    model.held["model.fc.weight"].dtype, model.held["model.fc.weight"].shape = Bf16.dtype, Bf16.shape  # type: ignore[attr-defined]
    rules = {"tensors": (Dequantize("model.**", scale="weight_scale_inv"),)}
    load(model, {"model.fc.weight": Bf16(), "model.layers.2.fc.weight": Int8()}, **rules)
    finish(model)
    assert LEDGER.findings == [] and "model.layers.2.fc.weight" in model.passed


class Passing(Model):
    """Takes note of every name, and skips those that it does not have."""

    def load_weights(self, weights: Any) -> set[str]:
        self.passed = [name for name, _ in weights]
        return set(self.held)


weights.arm_class(Passing)


@pytest.mark.parametrize("method", ["fp8", "ascend"])
def test_a_dequantize_record_is_for_the_checkpoints_of_its_own_fix(method: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method}}))
    where = Config(remove=("quantization_config",), where={"quantization_config.quant_method": "fp8"})
    fix = Fix(id="fix", why="w", refs=("r",), config=(where,), tensors=(Dequantize("fc.*"),))
    current = Scope(("tiny",), [Selection("patch", fix)], model=str(tmp_path))
    assert bool(weights.Tensors(Model(), current)) == (method == "fp8")
