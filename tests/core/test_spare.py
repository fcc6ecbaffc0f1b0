"""Which parameters need no tensor: read from the source of what builds them, here of a made vllm-ascend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ascend_hotfix.seams import spare
from ascend_hotfix.seams.spare import Spare

SOURCE = """
PACKED = "ascend_conv1d_weight"

def initialize(conv1d):
    conv1d.register_parameter(PACKED, Parameter(empty(4)))

def pack(conv1d):
    replace_parameter(conv1d, PACKED, conv1d.weight)

class Scheme:
    def create_weights(self, layer):
        made = {}
        made["fa_q.scale"] = empty(4)
        made["fa_k.scale"] = empty(4)
        made["indexer.q_rot"] = empty(4)

    def process_weights_after_loading(self, layer):
        return layer.fa_k.scale

class AscendNorm(Norm):
    def __init__(self):
        self.weight = Parameter(ones(4))
        self.bias = Parameter(zeros(4))
        self.shift_offset = Parameter(empty(4))

class KVCacheMethod:
    def create_weights(self, layer):
        layer.k_scale = Parameter(tensor(-1.0))
        layer.v_scale = Marked()
        layer.c_scale = Parameter(empty(4))
        layer.k_zero_point = Parameter(zeros(4))

class LinearMethod:
    def create_weights(self, layer):
        layer.weight_scale = Parameter(ones(4))

class AscendW8A8LinearMethod:
    pass

class AscendW8A8MixLinearMethod:
    pass

class Marked(Parameter):
    def __new__(cls):
        return super().__new__(cls, tensor(-1.0))
"""
BEFORE = """
class Parameter:
    pass
class Norm:
    pass
"""


class Module:
    """As torch.nn.Module, as far as is asked."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class Model(Module):
    """Has the modules that it is given, by their names."""

    def __init__(self, config: Any = None, names: dict[str, Any] | None = None, **modules: Any) -> None:
        super().__init__(config=config)
        self._modules, self._names = modules, names or {}

    def named_modules(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        return iter(self._modules.items())

    def named_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        return iter(self._names.items())


@pytest.fixture
def ascend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The made vllm-ascend, imported."""
    folder = tmp_path / "vllm_ascend"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "made.py").write_text(BEFORE + SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    caches = (spare._starts, spare._ascend_files, spare._trees, spare._is_derived, spare._made_and_unread)
    for cache in caches:
        cache.cache_clear()
    import vllm_ascend.made as made

    yield made
    for cache in caches:
        cache.cache_clear()
    for name in ("vllm_ascend", "vllm_ascend.made"):
        sys.modules.pop(name, None)


def of(method: Any) -> Module:
    return Module(quant_method=method)


def test_what_is_added_with_a_number_that_stands_for_none_is_spare(ascend: Any) -> None:
    model = Model(ln_q=object.__new__(ascend.AscendNorm), attn=of(ascend.KVCacheMethod()), fc=of(ascend.LinearMethod()))
    found = Spare(model)
    names = ("ln_q.bias", "attn.k_scale", "attn.v_scale", "attn.k_zero_point")
    assert [found.is_spare(name, ()) for name in names] == [True] * 4
    names = ("ln_q.weight", "ln_q.shift_offset", "attn.c_scale", "fc.weight_scale", "fc.bias", "gone.bias")
    assert [found.is_spare(name, ()) for name in names] == [False] * 6


def test_what_vllm_ascend_derives_or_reads_nowhere_is_spare(ascend: Any) -> None:
    found = Spare(Model())
    assert found.is_spare("a.conv1d.ascend_conv1d_weight", ())
    assert found.is_spare("a.attn.fa_q.scale", ()) and not found.is_spare("a.attn.fa_k.scale", ())
    assert found.is_spare("a.indexer.q_rot", ()) and not found.is_spare("a.indexer.weight", ())


@pytest.mark.parametrize("tensor", ["b.fa_q.scale", "fa_q.scale", "b.fa_q.scale.weight"])
def test_a_tensor_that_is_called_so_was_meant_for_it(ascend: Any, tensor: str) -> None:
    assert not Spare(Model()).is_spare("a.attn.fa_q.scale", (), [tensor])
    assert Spare(Model()).is_spare("a.attn.fa_q.scale", (), ["b.other.scale"])


def test_another_name_of_the_same_parameter_and_a_tied_head_are_spare() -> None:
    ParallelLMHead = type("ParallelLMHead", (Module,), {})
    weight = object()
    names = {"embed.weight": weight, "head.weight": weight}
    assert Spare(Model(names=names)).is_spare("head.weight", {"embed.weight"})
    assert not Spare(Model(names=names)).is_spare("head.weight", {"other.weight"})
    for tied in (True, False):
        model = Model(Module(tie_word_embeddings=tied), lm_head=ParallelLMHead())
        assert Spare(model).is_spare("lm_head.weight", ()) == tied


def test_a_draft_has_embedding_and_head_of_the_target() -> None:
    VocabParallelEmbedding = type("VocabParallelEmbedding", (Module,), {})
    model = Model(any_name=VocabParallelEmbedding(), norm=Module())
    found = {draft: Spare(model, draft=draft) for draft in (True, False)}
    assert [found[draft].is_spare("any_name.weight", ()) for draft in (True, False)] == [True, False]
    assert not found[True].is_spare("norm.weight", ())


def test_the_factors_of_a_product_that_was_written_are_spare_where_the_layer_is_static(ascend: Any) -> None:
    static, mix = of(ascend.AscendW8A8LinearMethod()), of(ascend.AscendW8A8MixLinearMethod())
    model = Model(a=static, b=static, m=mix)
    written = {"a.deq_scale", "m.deq_scale"}
    found = Spare(model)
    assert found.is_spare("a.weight_scale", written) and found.is_spare("a.weight_offset", written)
    assert not found.is_spare("b.weight_scale", written), "no product"
    assert not found.is_spare("m.weight_scale", written), "its dynamic path reads the factor"
    assert not Spare(model).is_spare("a.weight_scale", {"a.deq_scale", "b.weight_scale"}), "others have theirs"
