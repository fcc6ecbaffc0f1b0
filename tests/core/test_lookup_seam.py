"""The lookup seam on stand-ins for the two kinds of upstream: one that raises on a miss, one that says float."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ascend_hotfix import log, scope
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.records import Children, Exact, Fix, Packed, Prefix, Scheme, per_expert
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import build, hooking, lookup


class UnquantizedLinear:
    """What upstream gives for a float layer."""


class Quantized:
    """What upstream gives for a quantized layer."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme


class AscendQuantConfig:
    """Looks the scheme up as upstream does up to 0.29: a missing name is a KeyError."""

    def __init__(self, description: dict[str, Any], packed: dict[str, list[str]] | None = None) -> None:
        self.quant_description = description
        self.packed_modules_mapping = packed or {}

    def read(self, name: str) -> str | None:
        return self.quant_description[name + ".weight"]

    def get_quant_method(self, layer: object, prefix: str) -> Any:
        parent, _, last = prefix.rpartition(".")
        shards = self.packed_modules_mapping.get(last)
        names = [prefix] if shards is None else [f"{parent}.{shard}" for shard in shards]
        schemes = {self.read(name) for name in names}
        if len(schemes) > 1:
            raise ValueError("not all shards")
        scheme = schemes.pop()
        return UnquantizedLinear() if scheme in (None, "FLOAT") else Quantized(scheme)


class AscendModelSlimConfig(AscendQuantConfig):
    """As 0.30: a module that is missing in the description is silently float."""

    def read(self, name: str) -> str | None:
        return self.quant_description.get(name + ".weight")

    get_quant_method = AscendQuantConfig.__dict__["get_quant_method"]


class Refusing(AscendQuantConfig):
    """Finds the scheme of experts below their names (0.30, and 0.11 in a way of its own) and has no method for it."""

    def read(self, name: str) -> str | None:
        raise NotImplementedError("no W8A16 for experts")


lookup.arm_class(AscendQuantConfig)
lookup.arm_class(AscendModelSlimConfig)
BOTH = pytest.mark.parametrize("config_class", [AscendQuantConfig, AscendModelSlimConfig])


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_HOTFIX_MODELS", raising=False)
    LEDGER.entries.clear()
    LEDGER.findings.clear()


def ask(config: Any, prefix: str, **rules: Any) -> Any:
    fix = Fix(id="fix", why="w", refs=("r",), **rules)
    with scope.pinned(Scope(("tiny",), [Selection("patch", fix)])):
        return config.get_quant_method(object(), prefix)


def hits(seam: str = "lookup") -> int:
    return LEDGER.entry("patch", "fix", seam).hits


@BOTH
def test_a_name_that_is_there_is_not_touched(config_class: type) -> None:
    config = config_class({"visual.fc1.weight": "W8A8", "model.visual.fc1.weight": "FLOAT"})
    assert ask(config, "visual.fc1", lookup=(Prefix("visual", "model.visual"),)).scheme == "W8A8"
    assert hits() == 0


@BOTH
def test_a_missed_name_is_described_as_the_one_the_rule_gives(config_class: type) -> None:
    config = config_class({"model.visual.fc1.weight": "W8A8", "model.visual.fc1.deq_scale": "W8A8"})
    assert ask(config, "visual.fc1", lookup=(Prefix("visual", "model.visual"),)).scheme == "W8A8"
    assert config.quant_description["visual.fc1.deq_scale"] == "W8A8", "companions are described as well"
    assert hits() == 1


def test_a_layer_without_a_prefix() -> None:
    config = AscendQuantConfig({"version": "1.0.0", "lm_head.weight": "W8A8"})
    assert ask(config, "", lookup=(Exact("", "lm_head"),)).scheme == "W8A8"


@BOTH
def test_a_fused_module_gets_its_shards(config_class: type) -> None:
    shards = {f"l.mlp.experts.{e}.{p}_proj.weight": "W8A8" for e in (0, 1) for p in ("gate", "up", "down")}
    config = config_class(shards)
    assert ask(config, "l.mlp.experts", packed=(Packed("experts", per_expert()),)).scheme == "W8A8"
    assert hits("packed") == 1


def test_what_is_added_to_the_mapping_does_not_reach_the_model_class() -> None:
    shared: dict[str, list[str]] = {"other": ["a"]}
    config = AscendQuantConfig({"l.q_proj.weight": "W8A8", "l.k_proj.weight": "W8A8"}, shared)
    ask(config, "l.qkv_proj", packed=(Packed("qkv_proj", ("q_proj", "k_proj")),))
    assert shared == {"other": ["a"]}
    assert config.packed_modules_mapping["qkv_proj"] == ["q_proj", "k_proj"]


def test_rename_and_fuse_together() -> None:
    config = AscendQuantConfig({"model.language_model.l.q.weight": "W8A8", "model.language_model.l.k.weight": "W8A8"})
    method = ask(
        config,
        "language_model.model.l.qk",
        lookup=(Prefix("language_model.model", "model.language_model"),),
        packed=(Packed("qk", ("q", "k")),),
    )
    assert method.scheme == "W8A8"
    assert (hits(), hits("packed")) == (2, 1)


def test_an_optional_shard_has_the_scheme_of_its_neighbour() -> None:
    config = AscendQuantConfig({"l.q.weight": "W8A8", "l.k.weight": "W8A8"}, {"qkv": ["q", "k", "v"]})
    packed = (Packed("qkv", ("q", "k", "v"), optional=("v",)),)
    assert ask(config, "l.qkv", packed=packed).scheme == "W8A8"


def test_the_description_tells_which_names_were_given_a_default() -> None:
    config = AscendQuantConfig({"fc1.weight": "W8A8"})
    for name in ("fc1", "fc2"):
        ask(config, name, types=(Scheme("fc2", "FLOAT"),))
    assert list(config.quant_description.defaulted) == ["fc2.weight"]


def test_a_default_is_taken_only_where_nothing_is_said() -> None:
    config = AscendQuantConfig({"l.1.fc.weight": "W8A8"})
    rules = {"types": (Scheme("l.*.fc", "FLOAT"),)}
    assert isinstance(ask(config, "l.2.fc", **rules), UnquantizedLinear)
    assert ask(config, "l.1.fc", **rules).scheme == "W8A8"
    assert hits("types") == 1


def test_what_does_not_make_a_silent_miss_a_quantized_layer_is_taken_back() -> None:
    config = AscendModelSlimConfig({"model.visual.fc1.weight": "FLOAT"})
    assert isinstance(ask(config, "visual.fc1", lookup=(Prefix("visual", "model.visual"),)), UnquantizedLinear)
    assert dict(config.quant_description) == {"model.visual.fc1.weight": "FLOAT"}
    assert hits() == 0


def test_an_override_replaces_what_the_description_says_and_counts_it() -> None:
    config = AscendQuantConfig({"l.gate.weight": "W8A8", "l.fc.weight": "W8A8"})
    rules = {"types": (Scheme("l.gate", "FLOAT"),), "override": "the router is float", "versions": {"vllm": ">=0"}}
    assert isinstance(ask(config, "l.gate", **rules), UnquantizedLinear)
    assert ask(config, "l.fc", **rules).scheme == "W8A8"
    assert hits("types") == 1


def test_an_error_of_upstreams_keeps_its_type_and_says_what_is_near() -> None:
    """vllm-ascend PR #10222: the messages of a failed lookup did not name the layer."""
    config = AscendQuantConfig({"model.visual.blocks.0.attn.qkv.weight": "W8A8", "kv_cache_type": None})
    with pytest.raises(KeyError) as caught:
        ask(config, "visual.blocks.0.attn.qkv", lookup=(Prefix("text", "model.text"),))
    assert caught.value.args == ("visual.blocks.0.attn.qkv.weight",)
    (hint,) = [line for line in LEDGER.findings if "asks the quant description" in line]
    assert "nearest names: model.visual.blocks.0.attn.qkv.weight" in hint and "doctor" in hint
    assert "built with prefix 'visual.blocks.0.attn.qkv'" in hint


def test_what_upstream_refuses_as_before_is_taken_back_and_does_not_count() -> None:
    described = {"mlp.experts.0.gate_proj.weight": "W8A16"}
    config = Refusing(dict(described))
    with pytest.raises(NotImplementedError, match="no W8A16 for experts"):
        ask(config, "mlp.experts", describe=(Children("**.experts"),))
    assert dict(config.quant_description) == described
    assert hits("describe") == 0


def test_an_error_of_ours_does_not_reach_upstream_unless_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bool:
        raise RuntimeError("ours")

    monkeypatch.setattr(lookup._Attempt, "_rename", fail)
    config = AscendModelSlimConfig({"a.weight": "W8A8"})
    assert isinstance(ask(config, "b", lookup=(Prefix("b", "a"),)), UnquantizedLinear)
    assert any("internal error" in line and "ours" in line for line in LEDGER.findings)
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    with pytest.raises(log.StrictError, match="ours"):
        ask(config, "b", lookup=(Prefix("b", "a"),))


def test_the_description_reads_as_the_dict_it_was_made_from() -> None:
    plain = {"a.weight": "W8A8", "version": "1.0.0", "layers": [1, 2], "none": None}
    description = lookup.Description(plain)
    assert description == plain and list(description.items()) == list(plain.items())
    with description.watching():
        assert description.get("b.weight") is None and description.get("none", 3) is None
        assert "c.weight" not in description
    assert description.misses == ["b.weight", "c.weight"]
    assert pickle.loads(pickle.dumps(description)) == plain


def test_only_what_a_lookup_asks_for_is_remembered_and_only_until_the_next() -> None:
    config = AscendQuantConfig({"a.weight": "W8A8"})
    ask(config, "a", lookup=(Prefix("visual", "model.visual"),))
    for number in range(1000):
        assert f"{number}.weight" not in config.quant_description
    assert config.quant_description.misses == []
    with config.quant_description.watching():
        other = threading.Thread(target=config.quant_description.get, args=("theirs.weight",))
        other.start()
        other.join()
        config.quant_description.get("ours.weight")
    assert config.quant_description.misses == ["ours.weight"]


@BOTH
def test_a_layer_of_many_shards_is_mended_to_the_last(config_class: type) -> None:
    """Upstream that raises names one shard at a time, so each takes a mending."""
    shards = [f"s{number}" for number in range(200)]
    config = config_class({f"model.visual.{shard}.weight": "W8A8" for shard in shards}, {"fused": shards})
    assert ask(config, "visual.fused", lookup=(Prefix("visual", "model.visual"),)).scheme == "W8A8"
    assert hits() == 200


def test_what_never_comes_to_an_end_is_upstreams_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class AscendQuantConfig(globals()["AscendQuantConfig"]):  # type: ignore[misc]
        asked = 0

        def read(self, name: str) -> str | None:
            self.asked += 1
            return self.quant_description[f"visual.{self.asked}.weight"]

    monkeypatch.setattr(lookup, "MOST_MENDINGS", 100)
    config = AscendQuantConfig({f"model.visual.{number}.weight": "W8A8" for number in range(1000)})
    with pytest.raises(KeyError, match=r"visual\.101\.weight"):
        ask(config, "x", lookup=(Prefix("visual", "model.visual"),))


def test_an_error_that_cannot_be_told_passes_through_all_the_same() -> None:
    class Untold(NotImplementedError):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class AscendQuantConfig(globals()["AscendQuantConfig"]):  # type: ignore[misc]
        def read(self, name: str) -> str | None:
            raise Untold

    with pytest.raises(Untold):
        ask(AscendQuantConfig({"a.weight": "W8A8"}), "b", lookup=(Prefix("b", "a"),))


def test_what_lookups_added_is_not_taken_for_the_checkpoints() -> None:
    config = AscendQuantConfig(
        {"model.visual.fc1.weight": "W8A8", "x.q.weight": "W8A8", "version": "1"}, {"qv": ["q", "v"]}
    )
    ask(config, "visual.fc1", lookup=(Prefix("visual", "model.visual"),))
    ask(config, "fc9", types=(Scheme("fc9", "FLOAT"),))
    ask(config, "x.qv", packed=(Packed("qv", ("q", "v"), optional=("v",)),))
    held = config.quant_description
    assert {"visual.fc1.weight", "fc9.weight", "x.v.weight"} <= held.keys()
    for description in (held, copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
        assert set(description.modules()) == {"model.visual.fc1", "x.q"}
        assert list(description.defaulted) == ["fc9.weight"]
        assert build.quantized_names(type("Config", (), {"quant_description": description})()) == description.modules()


def test_a_scope_whose_overrides_were_made_keeps_its_address() -> None:
    """Were it gone, another could get its id, and be taken for it."""
    config = AscendQuantConfig({"l.gate.weight": "W8A8"})
    fix = Fix(
        id="fix", why="w", refs=("r",), types=(Scheme("l.*", "FLOAT"),), override="float", versions={"vllm": ">=0"}
    )
    current = Scope(("tiny",), [Selection("patch", fix)])
    with scope.pinned(current):
        config.get_quant_method(object(), "l.gate")
    held = weakref.ref(current)
    del current
    gc.collect()
    assert held() is not None
    assert dict(config.quant_description) == {"l.gate.weight": "FLOAT"}


def test_an_inherited_method_is_wrapped_once() -> None:
    class Base:
        def __init__(self) -> None:
            self.calls = 0

        @classmethod
        def names(cls) -> list[str]:
            return [cls.__name__]

    class Derived(Base):
        pass

    called: list[object] = []

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        called.append(instance)
        return wrapped(*args, **kwargs)

    for name in ("__init__", "names"):
        assert hooking.wrap(Base, name, wrapper)
        assert not hooking.wrap(Derived, name, wrapper)
    Derived()
    assert Derived.names() == ["Derived"] and len(called) == 2

    class Alone(Base.__mro__[1]):  # type: ignore[misc]
        pass

    assert hooking.wrap(Alone, "__init__", wrapper) and hooking.is_wrapped(Alone.__dict__["__init__"])


# --- several threads -------------------------------------------------------------------------------------------------


def test_a_lookup_does_not_hear_what_another_thread_asks() -> None:
    """The second thread begins its lookup between the first one's question and its answer."""
    inside, second = threading.Event(), threading.Event()

    class AscendQuantConfig(globals()["AscendQuantConfig"]):  # type: ignore[misc]
        def read(self, name: str) -> str | None:
            if name == "visual.fc2":
                second.set()
            try:
                return super().read(name)
            finally:
                if name == "visual.q" and not inside.is_set():
                    inside.set()
                    second.wait(0.3)  # as long as it would take the other to get in

    config = AscendQuantConfig({f"model.visual.{n}.weight": "W8A8" for n in ("q", "k", "fc2")}, {"qk": ["q", "k"]})
    rules = {"lookup": (Prefix("visual", "model.visual"),)}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, config, "visual.qk", **rules)
        assert inside.wait(10)
        other = pool.submit(ask, config, "visual.fc2", **rules)
        assert [one.result().scheme for one in (first, other)] == ["W8A8", "W8A8"]


@BOTH
def test_lookups_from_several_threads_are_those_of_one(config_class: type) -> None:
    layers, threads = 60, 8
    quantized = {f"model.visual.{n}.{shard}.weight": "W8A8" for n in range(layers) for shard in ("q", "k")}
    floating = {f"model.visual.{n}.fc.weight": "FLOAT" for n in range(layers)}
    rules = {"lookup": (Prefix("visual", "model.visual"),), "packed": (Packed("qk", ("q", "k")),)}
    names = [f"visual.{n}.{part}" for n in range(layers) for part in ("qk", "fc", "none")]

    def kind(config: Any, name: str) -> str:
        try:
            return str(getattr(ask(config, name, **rules), "scheme", "float"))
        except KeyError as error:
            return str(error)

    alone = config_class({**quantized, **floating})
    wanted = {name: kind(alone, name) for name in names}
    assert len(set(wanted.values())) > 1
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for start in range(3):
            config = config_class({**quantized, **floating})
            barrier = threading.Barrier(threads)

            def run(number: int, config: Any = config, barrier: threading.Barrier = barrier) -> dict[str, str]:
                barrier.wait()
                return {name: kind(config, name) for name in names[number % 3 :] + names[: number % 3]}

            with ThreadPoolExecutor(threads) as pool:
                assert [one == wanted for one in pool.map(run, range(threads))] == [True] * threads, start
            assert dict(config.quant_description) == dict(alone.quant_description)
    finally:
        sys.setswitchinterval(before)


def test_a_description_that_upstream_replaces_is_read_anew() -> None:
    config = AscendQuantConfig({"x.weight": "W8A8"})
    ask(config, "x", lookup=(Prefix("visual", "model.visual"),))
    config.quant_description = {"model.visual.fc1.weight": "W4A8"}
    assert ask(config, "visual.fc1", lookup=(Prefix("visual", "model.visual"),)).scheme == "W4A8"


def test_nearest_names_share_their_end() -> None:
    known = ["model.layers.0.mlp.gate.weight", "lm_head.weight", "model.language_model.layers.0.mlp.up.weight"]
    assert lookup.nearest("model.layers.0.mlp.up.weight", known)[0] == known[2]
