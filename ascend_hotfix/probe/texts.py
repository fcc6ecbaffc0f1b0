"""Every sentence that a probe says, in English and Chinese. The codes are stable: machines match on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LABELS", "SENTENCES", "Said", "label_of"]

SENTENCES: dict[str, tuple[str, str]] = {
    # -- what keeps a server from being asked -------------------------------------------------------------------------
    "url-wrong": (
        "{url!r} is not the URL of a server; give one such as http://localhost:8000",
        "{url!r} 不是服务地址；请写成 http://localhost:8000 这样的形式",
    ),
    "url-credentials": (
        "the URL of {host} holds a user name or password; leave them out and give a key by OPENAI_API_KEY",
        "{host} 的 URL 中含有用户名或密码；请去掉，并用 OPENAI_API_KEY 提供密钥",
    ),
    "key-wrong": (
        "the API key holds characters that no HTTP header can carry; check OPENAI_API_KEY or --api-key",
        "API 密钥含有 HTTP 头不能携带的字符；请检查 OPENAI_API_KEY 或 --api-key",
    ),
    "refused": (
        "{url}: nobody listens there (connection refused); is the server up and the port right? "
        "One that still loads is waited for with --wait SECONDS",
        "{url}：该端口没有服务（连接被拒绝）；请确认服务已启动、端口正确。仍在加载的服务可用 --wait 秒数 等待",
    ),
    "closed": (
        "{url}: the server closed the connection without a whole answer; if it speaks TLS, name it with https://; "
        "else its log says why",
        "{url}：服务没有给出完整的回答就关闭了连接；若它使用 TLS，请用 https://；否则原因见服务日志",
    ),
    "not-ready": (
        "{url}: HTTP {status}: the server still loads, or its engine has died ({words}); --wait SECONDS waits for it",
        "{url}：HTTP {status}：服务仍在加载，或引擎已经退出（{words}）；可用 --wait 秒数 等待",
    ),
    "no-host": (
        "{url}: no such host ({words})",
        "{url}：找不到该主机（{words}）",
    ),
    "unreachable": (
        "{url}: cannot be reached ({words})",
        "{url}：无法连接（{words}）",
    ),
    "timeout": (
        "{url}: no whole answer in {seconds} s; --timeout SECONDS gives it longer",
        "{url}：{seconds} 秒内没有完整的回答；可用 --timeout 秒数 延长",
    ),
    "time-up": (
        "the time for the whole probe is over; --max-time SECONDS gives it longer",
        "探测的总时间已用完；可用 --max-time 秒数 延长",
    ),
    "too-many": (
        "{count} requests were sent, which is the most that a probe sends",
        "已发送 {count} 个请求，达到探测的上限",
    ),
    "certificate": (
        "{url}: its certificate is not trusted here ({words}); name the file of its CA in SSL_CERT_FILE",
        "{url}：此处不信任它的证书（{words}）；请用 SSL_CERT_FILE 指定其 CA 文件",
    ),
    "no-tls": (
        "{url}: no TLS connection ({words}); if the server speaks plain HTTP, name it with http://",
        "{url}：无法建立 TLS 连接（{words}）；若服务使用明文 HTTP，请用 http://",
    ),
    "no-http": (
        "{url}: what answers there does not speak HTTP",
        "{url}：该端口的应答不是 HTTP",
    ),
    "redirect": (
        "{url}: leads elsewhere, to {target}; redirects are not followed: name the server itself",
        "{url}：被重定向到 {target}；探测不跟随重定向，请直接给出服务地址",
    ),
    "key-missing": (
        "{url}: HTTP {status}: it wants an API key; set OPENAI_API_KEY or give --api-key ({words})",
        "{url}：HTTP {status}：需要 API 密钥；请设置 OPENAI_API_KEY 或给出 --api-key（{words}）",
    ),
    "key-refused": (
        "{url}: HTTP {status}: it does not accept this API key ({words})",
        "{url}：HTTP {status}：不接受此 API 密钥（{words}）",
    ),
    "too-busy": (
        "{url}: HTTP 429: it takes no more requests now ({words}); try again later",
        "{url}：HTTP 429：服务暂不接受更多请求（{words}）；请稍后再试",
    ),
    "http-error": (
        "{url}: HTTP {status}: {words}",
        "{url}：HTTP {status}：{words}",
    ),
    "html": (
        "{url}: answers with a web page, not with JSON ({words}); is this an OpenAI-compatible server, and no proxy before it?",
        "{url}：返回的是网页而不是 JSON（{words}）；请确认这是 OpenAI 兼容的服务，而不是前面的代理",
    ),
    "not-json": (
        "{url}: the answer is not JSON: {words}",
        "{url}：回答不是 JSON：{words}",
    ),
    "too-long": (
        "{url}: the answer is longer than {size} MiB",
        "{url}：回答超过 {size} MiB",
    ),
    "protocol": (
        "{url}: the answer is not one of the OpenAI completions API: {words}",
        "{url}：回答不符合 OpenAI completions API：{words}",
    ),
    "no-completions": (
        "{url}: there is no completions API ({words}); a probe needs it, and the URL is that of the server, "
        "such as http://localhost:8000",
        "{url}：没有 completions API（{words}）；探测需要它。请给出服务本身的地址，例如 http://localhost:8000",
    ),
    "no-models": (
        "{url}: no list of models ({words}); check the URL, or name the model with --model NAME",
        "{url}：没有模型列表（{words}）；请检查 URL，或用 --model 名称 指定模型",
    ),
    "no-model": (
        "{url}: the server lists no model",
        "{url}：服务没有列出任何模型",
    ),
    "unknown-model": (
        "{url}: has no model {model!r}; it has {known}",
        "{url}：没有模型 {model!r}；现有 {known}",
    ),
    "several-models": (
        "{url}: has several models; choose one with --model (with --against-model for the server named by --against): {known}",
        "{url}：有多个模型；请用 --model（--against 所指的服务用 --against-model）选择一个：{known}",
    ),
    "lang-en": ("English", "英文"),
    "lang-zh": ("Chinese", "中文"),
    # -- language -----------------------------------------------------------------------------------------------------
    "sane": (
        "perplexity {perplexity} ({language}); shuffled words are {order} nats a token less likely, words read before "
        "{copy} nats likelier: a language model speaks. A small fault shows only beside another server: --against URL",
        "困惑度 {perplexity}（{language}）；词序打乱后每个词元的对数概率低 {order} 奈特，重复读到的词高 {copy} 奈特："
        "这是正常的语言模型。小的错误只有与另一服务比较才能看出：--against URL",
    ),
    "garbage": (
        "perplexity {perplexity} ({language}, the better one), where guessing among {vocabulary} tokens has {vocabulary}; "
        "shuffled words are {order} nats a token less likely, words read before {copy} nats likelier: "
        "no model that has learnt a language computes this. The server computes wrong, or its weights are random",
        "困惑度 {perplexity}（{language}，较好的一种），而在 {vocabulary} 个词元中随机猜测也有 {vocabulary}；"
        "词序打乱后每个词元的对数概率低 {order} 奈特，重复读到的词高 {copy} 奈特：学会语言的模型不会这样。服务计算有误，或权重是随机的",
    ),
    "not-numbers": (
        "log-probabilities are not numbers (NaN): the server computes wrong",
        "对数概率不是数（NaN）：服务计算有误",
    ),
    "unclear-language": (
        "perplexity {perplexity} ({language}, the better one) of a vocabulary of {vocabulary} or more; shuffled words are "
        "{order} nats a token less likely, words read before {copy} nats likelier: a very small or unusual model, or a "
        "larger one that is partly wrong. A server known to be right tells: --against URL",
        "困惑度 {perplexity}（{language}，较好的一种），词表至少 {vocabulary}；词序打乱后每个词元的对数概率低 {order} 奈特，"
        "重复读到的词高 {copy} 奈特：可能是很小或特殊的模型，也可能是部分出错的大模型。请与确认正确的服务比较：--against URL",
    ),
    "weak-in": (
        "it knows little {language} (perplexity {perplexity}), which is not held against it",
        "它不太懂{language}（困惑度 {perplexity}），这不算错误",
    ),
    "no-prompt-logprobs": (
        "perplexity was not checked: the server tells no log-probabilities of a prompt, neither by prompt_logprobs nor "
        "by echo with logprobs{why}",
        "未检查困惑度：服务不提供提示词的对数概率，prompt_logprobs 与 echo 加 logprobs 都不行{why}",
    ),
    "shortened": (
        "texts were cut to fit the server's context: {names}",
        "为适应服务的上下文长度，下列文本被截短：{names}",
    ),
    # -- answers ------------------------------------------------------------------------------------------------------
    "answers": (
        "{hits} of {count} prompts are continued as everybody would",
        "{count} 个提示中有 {hits} 个的续写符合常识",
    ),
    "answers-other": (
        "{hits} of {count} prompts are continued as everybody would: a small model, or one of other languages or purposes",
        "{count} 个提示中有 {hits} 个的续写符合常识：可能是小模型，或面向其他语言、用途的模型",
    ),
    "answers-degenerate": (
        "every completion says one thing again and again",
        "所有续写都在不断重复同一内容",
    ),
    "answers-unclear": (
        "{hits} of {count} prompts are continued as everybody would: a small or unusual model, or a server that computes wrong",
        "{count} 个提示中有 {hits} 个的续写符合常识：可能是小模型或特殊模型，也可能是服务计算有误",
    ),
    "answers-none": (
        "no prompt fits the server's context",
        "没有一个提示能放进服务的上下文",
    ),
    # -- alone and in a batch, prefill and decode -----------------------------------------------------------------------
    "batch-same": (
        "{same} of {count} prompts are continued with the same words alone and in a batch of {size}; log-probabilities "
        "differ by {mean} on average, by {worst} at most: rounding",
        "{count} 个提示中有 {same} 个在单独与 {size} 个一批时续写相同；对数概率平均相差 {mean}，最多 {worst}：属于舍入误差",
    ),
    "batch-same-text": (
        "all {count} prompts are continued with the same words alone and in a batch of {size}; no log-probabilities to compare",
        "{count} 个提示在单独与 {size} 个一批时续写全部相同；没有对数概率可比",
    ),
    "batch-unclear": (
        "{same} of {count} prompts are continued with the same words alone and in a batch of {size}; log-probabilities "
        "differ by {mean} on average, by {worst} at most: more than rounding usually does",
        "{count} 个提示中有 {same} 个在单独与 {size} 个一批时续写相同；对数概率平均相差 {mean}，最多 {worst}：超过通常的舍入误差",
    ),
    "batch-unclear-text": (
        "{same} of {count} prompts are continued with the same words alone and in a batch of {size}; whether rounding "
        "explains it cannot be seen without log-probabilities",
        "{count} 个提示中有 {same} 个在单独与 {size} 个一批时续写相同；没有对数概率，无法判断是否为舍入误差",
    ),
    "batch-wrong": (
        "{same} of {count} prompts are continued with the same words alone and in a batch of {size}; log-probabilities "
        "differ by {mean} on average, by {worst} at most: an answer depends on what else is asked",
        "{count} 个提示中有 {same} 个在单独与 {size} 个一批时续写相同；对数概率平均相差 {mean}，最多 {worst}：回答取决于同批的其他请求",
    ),
    "decode-same": (
        "of {count} generated tokens the log-probabilities differ by {mean} on average, by {worst} at most, when they are "
        "sent again as a prompt: rounding",
        "{count} 个生成的词元再作为提示发送时，对数概率平均相差 {mean}，最多 {worst}：属于舍入误差",
    ),
    "decode-unclear": (
        "of {count} generated tokens the log-probabilities differ by {mean} on average, by {worst} at most, when they are "
        "sent again as a prompt: more than rounding usually does",
        "{count} 个生成的词元再作为提示发送时，对数概率平均相差 {mean}，最多 {worst}：超过通常的舍入误差",
    ),
    "decode-wrong": (
        "of {count} generated tokens the log-probabilities differ by {mean} on average, by {worst} at most, when they are "
        "sent again as a prompt: prefill and decode do not compute the same",
        "{count} 个生成的词元再作为提示发送时，对数概率平均相差 {mean}，最多 {worst}：预填充与解码的计算不一致",
    ),
    "decode-no-logprobs": (
        "not checked: the server tells no log-probabilities of a prompt",
        "未检查：服务不提供提示词的对数概率",
    ),
    "decode-too-few": (
        "not checked: only {count} generated tokens come back as the same tokens when they are sent as a prompt",
        "未检查：再作为提示发送时，只有 {count} 个生成的词元保持不变",
    ),
    "decode-cannot": (
        "not checked: the server tells no log-probabilities of what it generates",
        "未检查：服务不提供生成内容的对数概率",
    ),
    "batch-none": (
        "not checked: {count} prompts fit the server's context, and a batch needs two",
        "未检查：只有 {count} 个提示能放进服务的上下文，而一批至少需要两个",
    ),
    # -- against another server -----------------------------------------------------------------------------------------
    "against-near": (
        "mean KL from {other} at least {kl} nats over {count} tokens (allowed {allowed}), best token the same at {same}; "
        "perplexity {perplexity}, there {reference}",
        "与 {other} 相比，{count} 个词元上的平均 KL 至少 {kl} 奈特（允许 {allowed}），{same} 处最佳词元相同；"
        "困惑度 {perplexity}，对方 {reference}",
    ),
    "against-far": (
        "mean KL from {other} at least {kl} nats over {count} tokens, where {allowed} is allowed (--max-kl); best token "
        "the same at {same}; perplexity {perplexity}, there {reference}: the two do not compute the same model",
        "与 {other} 相比，{count} 个词元上的平均 KL 至少 {kl} 奈特，超过允许的 {allowed}（--max-kl）；{same} 处最佳词元相同；"
        "困惑度 {perplexity}，对方 {reference}：两者计算的不是同一个模型",
    ),
    "against-bound": (
        "a server tells the best {top} tokens at each position, here {covered} of the other server's probability; for "
        "the others the least divergence that is possible counts, so the KL of the whole vocabulary is this or more",
        "服务在每个位置只给出最佳 {top} 个词元，在此占对方概率的 {covered}；其余按可能的最小散度计算，因此整个词表上的 KL 不小于此值",
    ),
    "against-tokens": (
        "not compared: the two servers cut the texts into different tokens",
        "未比较：两个服务的分词不同",
    ),
    "against-no-texts": (
        "not compared: no log-probabilities of the texts were got from the server itself",
        "未比较：没有得到该服务自己的文本对数概率",
    ),
    "against-no-logprobs": (
        "KL was not checked: {which} tells no log-probabilities of the best tokens of a prompt",
        "未检查 KL：{which} 不提供提示词各位置最佳词元的对数概率",
    ),
    "against-not-numbers": (
        "log-probabilities of one of the servers are not numbers (NaN)",
        "其中一个服务的对数概率不是数（NaN）",
    ),
    "diverges": (
        "greedy completions first differ after {prompt!r}, at token {index}: {ours!r}, there {theirs!r}; {same} of {count} are the same",
        "贪心续写首先在 {prompt!r} 之后的第 {index} 个词元处不同：{ours!r}，对方为 {theirs!r}；{count} 个中有 {same} 个相同",
    ),
    "diverges-nowhere": (
        "all {count} greedy completions are the same",
        "{count} 个贪心续写全部相同",
    ),
    "against-garbage": (
        "the other server's own texts look like garbage: what it says proves nothing",
        "对方服务自己的输出也像是乱码：不能作为依据",
    ),
    # -- the end --------------------------------------------------------------------------------------------------------
    "not-reached": (
        "not checked: {why}",
        "未检查：{why}",
    ),
    "plan": (
        "sends {url} about {requests} requests, {read} tokens to read and at most {write} to generate, within {seconds} s",
        "将向 {url} 发送约 {requests} 个请求，约 {read} 个词元待读取，最多生成 {write} 个词元，时限 {seconds} 秒",
    ),
    "asked": (
        "{requests} requests, {read} tokens read, {write} generated, {seconds} s",
        "{requests} 个请求，读取 {read} 个词元，生成 {write} 个，用时 {seconds} 秒",
    ),
    "text-line": (
        "{name}: perplexity {perplexity} over {tokens} tokens; its words shuffled {shuffled}, said again {repeated}",
        "{name}：困惑度 {perplexity}（{tokens} 个词元）；词序打乱后 {shuffled}，再读一遍时 {repeated}",
    ),
    "batch-line": (
        "“{prompt}” -> “{alone}” alone, “{together}” in the batch",
        "“{prompt}” -> 单独 “{alone}”，批中 “{together}”",
    ),
    "verdict-right": (
        "Everything that was asked is right.",
        "所检查的内容全部正确。",
    ),
    "verdict-wrong": (
        "The server is wrong: see above.",
        "服务有误：见上。",
    ),
    "verdict-unclear": (
        "Nothing is known to be wrong, but something could not be checked or told: see above.",
        "没有发现确定的错误，但有内容无法检查或判断：见上。",
    ),
    "server": (
        "{url}, model {model}{version}{longest}",
        "{url}，模型 {model}{version}{longest}",
    ),
    "way-prompt_logprobs": (
        "prompt_logprobs with the best {top} tokens (vLLM)",
        "prompt_logprobs，每个位置 {top} 个最佳词元（vLLM）",
    ),
    "way-echo": (
        "echo with logprobs, the best {top} tokens",
        "echo 加 logprobs，每个位置 {top} 个最佳词元",
    ),
    "way-completions": (
        "completions alone: no log-probabilities of prompts",
        "仅 completions：没有提示词的对数概率",
    ),
}

LABELS: dict[str, tuple[str, str]] = {
    "right": ("right", "正确"),
    "wrong": ("WRONG", "错误"),
    "unclear": ("unclear", "不确定"),
    "unchecked": ("unchecked", "未检查"),
    "server": ("server", "服务"),
    "way": ("asks by", "方式"),
    "against": ("against", "比较"),
    "asked": ("asked", "请求"),
    "language": ("language", "语言"),
    "answers": ("answers", "回答"),
    "batch": ("batch", "批处理"),
    "decode": ("decode", "解码"),
    "note": ("note", "注"),
    "says": ("says", "续写"),
    "text": ("text", "文本"),
}


def label_of(name: str, language: str) -> str:
    """A word of the report's left column in ``en`` or ``zh``."""
    return LABELS[name][language == "zh"]


@dataclass(frozen=True)
class Said:
    """A sentence by its code, with the values that it names; a value may be a sentence or a label itself."""

    code: str
    params: Mapping[str, object] = field(default_factory=dict)

    def in_language(self, language: str) -> str:
        """The sentence in ``en`` or ``zh``."""
        values = {name: _in(value, language) for name, value in self.params.items()}
        return SENTENCES[self.code][language == "zh"].format_map(values)


def _in(value: object, language: str) -> object:
    return value.in_language(language) if isinstance(value, Said) else value
