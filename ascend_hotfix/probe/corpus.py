"""The texts that a probe sends. They are short, plain and written for this purpose, so that no model knows them by heart.

Every text has a control: the same words in another order, said twice. A model that has learnt a language finds the text
likelier than its shuffled words, and a model that attends to what it has read finds the second copy likelier than the
first, whatever its language, vocabulary and size. One whose weights or kernels are wrong does neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CONTINUATIONS", "NEW_TOKENS", "TEXTS", "WARM_UP", "Continuation", "Text"]

WARM_UP = "Hello, how are you today?"
"""What a server is asked first, to see which log-probabilities it tells."""

NEW_TOKENS = 16
"""Tokens that each greedy completion may have."""


@dataclass(frozen=True)
class Text:
    """One text to be scored; ``language`` is ``en`` or ``zh``."""

    name: str
    language: str
    content: str

    @property
    def units(self) -> list[str]:
        """Words of an English text, characters of a Chinese one."""
        return self.content.split() if self.language == "en" else list(self.content)

    def shuffled(self) -> str:
        """The same units in another, fixed order."""
        units = self.units
        step = _coprime_step(len(units))
        return self._joined([units[(index + 1) * step % len(units)] for index in range(len(units))])

    def control(self) -> str:
        """The shuffled units, twice."""
        return self._joined([self.shuffled(), self.shuffled()])

    def shortened(self) -> Text:
        """The first half of it, for a server that takes no longer prompts."""
        units = self.units
        return Text(self.name, self.language, self._joined(units[: max(len(units) // 2, 1)]))

    def _joined(self, parts: list[str]) -> str:
        return (" " if self.language == "en" else "").join(parts)


def _coprime_step(count: int) -> int:
    """About 0.38 of *count*, with no divisor in common with it: multiples of it meet every index once, far from its neighbours."""
    step = max(round(count * 0.38), 1)
    while math.gcd(step, count) != 1:
        step += 1
    return step


TEXTS = (
    Text(
        "village",
        "en",
        "The old bridge in our village was built by two brothers who wanted to bring their sheep to the market. "
        "Every spring the river rises, and the children stand on the wall to watch the water carry branches and leaves away.",
    ),
    Text(
        "kitchen",
        "en",
        "Heat the oil in a large pan and add the onions. When they are soft, stir in the rice and cook it for two minutes. "
        "Pour in the hot water, cover the pan, and wait until all of the water is gone.",
    ),
    Text(
        "science",
        "en",
        "Plants use the light of the sun to make sugar from water and carbon dioxide. "
        "At night they cannot do so, because there is no light, but they still need energy to grow.",
    ),
    Text(
        "river",
        "zh",
        "村子旁边有一条小河，河水很清，夏天孩子们常常在河里游泳。下雨以后河水会变得很急，大人就不让他们下水了。",
    ),
    Text(
        "lesson",
        "zh",
        "学习一门新的语言需要时间和耐心。每天读一点书，写几句话，过了一年，你就可以和别人用这种语言聊天了。",
    ),
    Text("weather", "zh", "今天早上天气很冷，路上的人都穿着厚厚的衣服。到了中午，太阳出来了，街上慢慢变得热闹起来。"),
)


@dataclass(frozen=True)
class Continuation:
    """A prompt to be continued greedily. ``expected``: any of these in the answer is what a working model would say."""

    prompt: str
    expected: tuple[str, ...]


CONTINUATIONS = (
    Continuation("1, 2, 3, 4, 5, 6, 7,", ("8",)),
    Continuation("Monday, Tuesday, Wednesday, Thursday,", ("Friday",)),
    Continuation("Question: What is the capital of France?\nAnswer: The capital of France is", ("Paris",)),
    Continuation("中国的首都是", ("北京",)),
    Continuation("星期一，星期二，星期三，星期四，", ("星期五",)),
    Continuation(
        "Anna keeps the red key in the kitchen, the green key in the garden, and the blue key in the garage. "
        "Her brother Tom wants to open the shed, so he asks her where he can find the green key. "
        "Anna thinks about it for a moment and tells him that the green key is in the",
        ("garden",),
    ),
)
