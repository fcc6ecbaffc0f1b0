"""What belongs to one model does not reach the next: scope, hits, the fingerprint, and what was found unused."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ascend_hotfix import log, scope, toggles
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.names import layer_number
from ascend_hotfix.seams import instances, models, schemes
from ascend_hotfix.seams.hooking import Wrapped

PATCH = """
from ascend_hotfix.records import Fix, ModelPatch, Prefix, Suffix
PATCH = ModelPatch(model_types=("tiny", "tiny_mtp"), fixes=(
    Fix(id="both", why="w", refs=("r",), lookup=(Prefix("{old}", "b"),)),
    Fix(id="names", why="w", refs=("r",), weights=(Suffix("never.there", "x"),)),
))
"""


class Config(SimpleNamespace):
    """A model's config; equal ones are different objects, as transformers' are."""


class VllmConfig:
    """As much of vLLM's as is asked."""

    def __init__(self, layers: int, *, draft: str = "", ranks: int = 1) -> None:
        hf_config = Config(model_type="tiny", num_hidden_layers=layers)
        self.model_config = SimpleNamespace(hf_config=hf_config, model="", quantization=None)
        self.quant_config = None
        self.parallel_config = SimpleNamespace(pipeline_parallel_size=ranks)
        self.speculative_config: Any = None
        if draft:
            config = SimpleNamespace(hf_config=Config(model_type=draft), model="", quantization=None)
            self.speculative_config = SimpleNamespace(draft_model_config=config, target_model_config=self.model_config)

    def compute_hash(self) -> str:
        return "0123456789"


class Model:
    """Has nothing to load."""

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any:
        return iter(())

    def named_buffers(self, remove_duplicate: bool = True) -> Any:
        return iter(())

    def named_modules(self) -> Any:
        return iter(())

    def load_weights(self, weights: Any) -> set[str]:
        return {name for name, _ in weights}


@pytest.fixture
def patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the user's patch, as a new server would read it."""
    file = tmp_path / "mine.py"
    monkeypatch.setenv(toggles.PATH, str(file))
    monkeypatch.setenv(toggles.MODELS, "mine")
    monkeypatch.setattr(models, "_check_classes", lambda: None)
    LEDGER.entries.clear()
    LEDGER.findings.clear()
    LEDGER.begin()  # takes what other tests have left
    LEDGER.builds.clear()

    def write(old: str = "a") -> None:
        file.write_text(PATCH.format(old=old))
        scope.reset()

    write()
    return write


def build(config: VllmConfig, hits: int = 0, **arguments: Any) -> Model:
    """What vLLM's ``initialize_model`` would build, with *hits* of the fix ``mine.both``."""

    def initialize_model(vllm_config: Any, **_: Any) -> Model:
        for _number in range(hits):
            LEDGER.hit("mine", "both", "lookup")
        return Model()

    model: Model = Wrapped(initialize_model, models._initialize_model)(vllm_config=config, **arguments)
    return model


def load(model: Model) -> None:
    """Loads, and comes to vLLM's end of a load."""
    model.load_weights(iter([("a.weight", 1)]))
    Wrapped(lambda model, *_: None, instances._processing)(model, None, None)


def test_each_config_has_a_scope_of_its_own(patch: Any) -> None:
    short, long = VllmConfig(2), VllmConfig(46)
    assert scope.of_config(short) is scope.of_config(short)
    layers = [scope.of_config(one).config.num_hidden_layers for one in (short, long, short)]
    assert layers == [2, 46, 2]
    draft = "model.layers.2.eh_proj"
    assert layer_number(draft) == 2
    found = [schemes._is_draft_layer(draft, scope.of_config(one).config) for one in (short, long)]
    assert found == [True, False]


def test_many_configs_leave_a_bounded_number_of_scopes(patch: Any) -> None:
    for number in range(200):
        scope.of_config(VllmConfig(number))
    assert len(scope._SCOPES) <= scope._MOST_SCOPES


def test_a_second_model_reports_its_own_hits_alone(patch: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "vllm.ascend_hotfix")
    load(build(VllmConfig(2), hits=3))
    load(build(VllmConfig(2)))
    told = [one.getMessage().partition("loaded: ")[2] for one in caplog.records if "loaded: " in one.getMessage()]
    assert told == ["applied mine.both (3 hits)", "nothing had to be fixed"]
    models_written: Any = LEDGER.to_json()["models"]
    assert [sum(entry["hits"] for entry in one["entries"]) for one in models_written] == [3, 0]
    assert [one["model"] for one in models_written] == ["Model", "Model"]
    assert LEDGER.used() == {"mine.both": 3}


def test_the_fingerprint_is_what_the_fixes_say_and_not_how_often_they_hit(patch: Any) -> None:
    once, twice, never = VllmConfig(2), VllmConfig(2), VllmConfig(2)
    kept = [build(one, hits) for one, hits in ((once, 1), (twice, 2), (never, 0))]
    assert once.compute_hash() == twice.compute_hash() != "0123456789"
    first = once.compute_hash()
    assert never.compute_hash() == "0123456789", "another model of this process has hits, this one has none"
    patch("c")
    other = VllmConfig(2)
    kept.append(build(other, 1))
    assert other.compute_hash() != first, "as many hits of a fix that says something else"


def test_what_was_built_with_a_config_is_forgotten_with_it(patch: Any) -> None:
    config = VllmConfig(2)
    model = build(config, 1)
    key = id(config)
    assert key in models._BUILDS
    del config, model
    gc.collect()
    assert key not in models._BUILDS


UNUSED = "mine.names: its weights rules matched nothing in Model"


def test_a_rule_that_a_draft_may_need_is_unused_when_the_draft_is_loaded_too(
    patch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_STRICT", "1")
    config = VllmConfig(2, draft="tiny_mtp")
    load(build(config, hits=1))
    assert LEDGER.findings == []
    draft = build(config, model_config=config.speculative_config.draft_model_config)
    with pytest.raises(log.StrictError, match=UNUSED):
        load(draft)
    assert not any("mine.both" in one for one in LEDGER.findings), "the target needed that one"


def test_a_rule_for_the_target_alone_does_not_wait_for_a_draft_of_another_type(patch: Any) -> None:
    load(build(VllmConfig(2, draft="other"), hits=1))
    assert [one.partition(";")[0] for one in LEDGER.findings] == [UNUSED]


def test_on_one_rank_of_a_pipeline_a_rule_may_be_for_another_one(patch: Any) -> None:
    load(build(VllmConfig(2, ranks=2), hits=1))
    assert LEDGER.findings == []
