"""The sentences of :mod:`ascend_hotfix.doctor.texts` in Chinese: message, consequence, remedy of each code.

Each code has its entry. Placeholders are those of the English sentences.
"""

from __future__ import annotations

__all__ = ["LABELS_ZH", "PHRASES_ZH", "TEXTS_ZH"]

REDOWNLOAD = "重新下载 {place}，并与发布方给出的大小或校验值比较"
REQUANTIZE = "换用完整的权重，或用 msModelSlim 重新量化"
GARBAGE = "不报错：参数保持分配时的内存内容，输出错误"
CAST = "不报错：数值被直接转换类型，输出错误"
LOADER = "vllm serve 在权重加载时停止，或者只悄悄复制一部分"

LABELS_ZH = {
    "fault": "错误",
    "warning": "警告",
    "note": "提示",
    "e.g.": "例如",
    "one of": "任选其一",
    "then": "后果",
    "do": "处理",
    "code": "代码",
    "checkpoint": "权重文件",
    "description": "量化描述",
    "rule": "规则",
    "parameter": "参数",
    "refused": "被拒绝",
    "module": "模块",
    "asks as": "查询名",
    "finds": "查到",
    "misses": "未查到",
    "gets": "量化方法",
    "error": "错误",
    "like it": "相近",
    "path": "路径",
    "model": "模型",
    "weights": "权重",
    "serve as": "服务命令",
    "known": "支持版本",
    "schemes": "量化方案",
    "installed": "已安装",
    "patched": "已修复",
    "static": "静态检查",
    "dry run": "试加载",
    "suggested": "建议补丁",
    "severity": "级别",
    "count": "数量",
    "finding": "结果",
    "where": "位置",
}

PHRASES_ZH = {
    "no entry": "没有这个名字的条目",
    "refused": "{role} 拒绝：{error}（{place}）",
    "nowhere": "无：加载时被悄悄放弃",
    "more": "……另有 {count} 个张量",
    "not built": "（构建出的模型中没有）",
    "no prefix": "（空前缀）",
    "no method": "无",
    "float": "{method}（浮点）",
    "only described": "{name}：只出现在量化描述中；没有这个名字的张量、模块或参数，也没有层查询它",
    "unknown": "{name}：没有这个名字的张量、模块、前缀或参数",
    "no model type": "没有 model_type",
    "no architecture": "没有 architectures",
    "settled then": "在此版本和已启用的补丁下无影响：试加载能找到所有名字",
    "settled do": "无需处理；换用其他版本或不启用这些补丁时，可能找不到这些名字",
    "size": "{files} 个文件，{tensors} 个张量",
    "known from": "vllm-ascend {release} 起",
    "seconds": "{seconds} 秒",
    "static": LABELS_ZH["static"],
    "dry run": LABELS_ZH["dry run"],
    "skipped": "跳过：{reason}",
    "failed": "未能进行：{reason}",
    "mend first": "请先解决 {codes}",
    "no dry run": "这个 ascend-hotfix 安装缺少 {module}",
    "internal error": "内部错误：{error}；ASCEND_HOTFIX_STRICT=1 会显示位置",
    "not installed": "未安装 {missing}；--static-only 可略过这一步",
    "clean with it": "{file}：使用它时试加载没有发现错误；启动方式：{environment} vllm serve ...",
    "remain with it": "{file}：使用它后仍有 {count} 条结果；启动方式：{environment} vllm serve ...",
    "not written": "没有写入 {file}；{stage}{why}",
    "counts": "{faults} 个错误，{warnings} 个警告，{notes} 个提示：{verdict}",
    "wrong": "照现在这样，这份权重不能正确加载",
    "unchecked": "检查未能全部完成",
    "files right": "文件没有问题；这个版本的 vLLM 能否正确加载，要由试加载判断",
    "right patched": "应用上述修复后，这份权重可以正确加载；名字、形状和方案相符，没有读取数值",
    "right": "这份权重可以正确加载",
}

TEXTS_ZH: dict[str, tuple[str, str, str]] = {
    "not-a-directory": (
        "{place} 不是目录",
        "vLLM 会把它当作仓库名去下载",
        "请给出包含 config.json 和 *.safetensors 的目录",
    ),
    "no-config": (
        "{place} 中没有 config.json，不是模型目录",
        "vllm serve 停止：找不到 config.json",
        "请给出包含 config.json 的目录；如果量化工具没有复制它，从浮点模型复制 config.json",
    ),
    "no-safetensors": (
        "{place} 中没有 *.safetensors 文件；目录中有：{found}",
        "vllm serve 停止：找不到模型权重",
        "下载权重；*.bin 权重先转换为 safetensors",
    ),
    "json-corrupt": ("{place} 不是有效的 JSON：{problem}", "vllm serve 以 JSONDecodeError 停止", REDOWNLOAD),
    "json-encoding": (
        "{place} 不是 UTF-8 文本：{problem}",
        "vllm serve 以 UnicodeDecodeError 或 JSONDecodeError 停止",
        "把 {place} 存为不带 BOM 的 UTF-8，或重新下载",
    ),
    "json-kind": (
        "{place} 的顶层是 {kind}，应为一个对象（object）",
        "vllm serve 以 TypeError 或 AttributeError 停止",
        REDOWNLOAD,
    ),
    "json-repeated": (
        "{place} 中有 {count} 个键重复出现且取值不同，如 {example}",
        "vLLM 悄悄采用最后一个值",
        "在 {place} 中只保留正确的一个",
    ),
    "config-value": (
        "{place}：{key} 为 {found}，应为 {expected}",
        "vllm serve 在读取配置或构建模型时停止",
        "更正 {place} 中的 {key}，或换用浮点模型的 config.json",
    ),
    "file-unreadable": (
        "{place} 无法读取：{problem}",
        "vllm serve 以 OSError 停止",
        "检查文件（或链接的目标）是否存在、当前用户是否可读",
    ),
    "lfs-pointer": (
        "{count} 个文件只是 Git LFS 指针，不是内容本身（{example}）",
        "vllm serve 在读取 safetensors 头时停止",
        "git -C DIR lfs pull",
    ),
    "file-truncated": (
        "{count} 个文件被截断（{example}）：现有 {found} 字节，按文件头应为 {expected}",
        "vllm serve 停止：safetensors 报告数据不完整",
        "重新下载，并与发布方给出的大小或校验值比较",
    ),
    "file-too-long": (
        "{place} 有 {found} 字节，按文件头应为 {expected}",
        "vllm serve 停止：safetensors 不接受不属于任何张量的字节",
        REDOWNLOAD,
    ),
    "header-corrupt": ("{place} 的 safetensors 文件头无效：{problem}", "vllm serve 在读取文件头时停止", REDOWNLOAD),
    "tensor-offsets": (
        "{place}：{count} 个张量的数据重叠或留有空隙",
        "vllm serve 停止：safetensors 报告偏移无效",
        REDOWNLOAD,
    ),
    "tensor-size": (
        "{place}：{count} 个张量的字节数与 dtype 和 shape 不符",
        "vllm serve 停止：safetensors 报告张量信息无效",
        REDOWNLOAD,
    ),
    "dtype-unknown": (
        "{place}：{count} 个张量的 dtype 为 {dtype}，safetensors 没有这种类型",
        "vllm serve 在读取文件头时停止",
        REDOWNLOAD,
    ),
    "tensor-duplicate": (
        "{count} 个张量同时在 vLLM 都会读取的两个文件中：{files}",
        "不报错：后读取的文件生效，而读取顺序不定",
        "把不属于这份权重的文件移出目录（浮点权重与量化权重放在了一起？）",
    ),
    "shard-file-absent": (
        "缺少 {count} 个文件：{example}（{source}）",
        "vllm serve 以 FileNotFoundError 或 KeyError 停止，或者带着从未写入的参数提供服务",
        "下载缺少的文件；同一次导出的文件编号是连续的",
    ),
    "index-stale": (
        "{place} 列出了 {count} 个不存在的文件，而目录中有其他 safetensors 文件：它属于另一个模型",
        "vllm serve 以 FileNotFoundError 停止：vLLM 读取的正是这个名字的索引",
        "删除 {place}（它来自浮点模型），或换成量化权重的索引",
    ),
    "index-no-weight-map": (
        "{place} 没有 weight_map 层，直接把名字映射到文件（msModelSlim 对 Omni 模型如此写出）",
        "无影响：vLLM 不读取这个名字的索引",
        "无需处理",
    ),
    "index-unusable": (
        "{place} 没有 weight_map",
        "vllm serve 以 KeyError: 'weight_map' 停止",
        '把内容放入 {{"weight_map": ...}}，或删除该文件，vLLM 会读取全部 *.safetensors',
    ),
    "index-entry": ("{place}：{count} 个条目没有给出文件名", "vllm serve 以 TypeError 停止", REDOWNLOAD),
    "index-empty": (
        "{place} 没有列出任何张量",
        "vllm serve 停止：找不到模型权重",
        "删除 {place}，vLLM 会读取全部 *.safetensors",
    ),
    "index-outside": (
        "{place} 用路径（如 {example}）而不是目录内的文件名指定了 {count} 个张量的位置",
        "vLLM 只读取该目录本身的文件：参数保持分配时的内存内容，或找不到权重",
        "把文件放入该目录，并在 {place} 中只写文件名",
    ),
    "index-path": (
        "{place} 用路径（如 {example}）指定了 {count} 个张量的位置，而它们就在该目录中",
        "vLLM 按目录中的文件加载，不受影响；按索引查找的工具会失败或读到另一个文件",
        "重新生成索引",
    ),
    "index-wrong-file": (
        "{place}：{count} 个张量实际在另一个文件中",
        "vLLM 读取整个文件，不受影响；按索引查找的工具会失败",
        "重新生成索引",
    ),
    "tensor-absent": (
        "{place} 列出的 {count} 个张量不在任何文件中",
        "参数保持分配时的内存内容：输出错误而不报错，或出现 KeyError",
        REQUANTIZE,
    ),
    "tensor-unlisted": (
        "文件中的 {count} 个张量没有列在 {place} 中",
        "vLLM 照样加载；旧导出的残留也会被加载",
        "确认索引与文件来自同一次导出",
    ),
    "file-unread": (
        "{count} 个文件没有列在 model.safetensors.index.json 中，vLLM 不会读取（{example}）",
        "参数从未写入：输出错误而不报错，或出现 KeyError",
        "如果 model.safetensors.index.json 来自浮点模型就删除它，否则按现有文件重新生成",
    ),
    "optional-file-absent": (
        "缺少 {place}；量化描述的 optional 中提到了它",
        "用到该文件时报错（草稿模型输入的旋转），其余情况无影响",
        "下载 {place}",
    ),
    "optional-file-outside": (
        "量化描述的 optional 指定的 {place} 在模型目录之外",
        "这里不检查该文件；只有在该路径存在的机器上才可能用到它",
        "把文件放入 optional/ 目录，并在量化描述中相应改名",
    ),
    "sharded-export": (
        "权重是按 {ranks} 个 rank 切分的导出（model-rank-*-part-*.safetensors）",
        "直接 vllm serve 会在 gate_up_proj 之类的融合名字上出现 KeyError",
        "vllm serve DIR --load-format sharded_state --tensor-parallel-size {ranks}",
    ),
    "sharded-rank-absent": (
        "按 rank 切分的导出缺少 {missing}",
        "vllm serve --load-format sharded_state 停止：该 rank 找不到文件或缺少键",
        "从导出的机器复制缺少的文件",
    ),
    "sharded-rank-differs": (
        "按 rank 切分的导出中有 {count} 个张量不是每个 rank 都有",
        "vllm serve --load-format sharded_state 停止：缺少键",
        "一次性重新导出所有 rank",
    ),
    "sharded-parallel-size": (
        "导出按 {ranks} 个 rank 切分，而服务将使用 {asked} 个",
        "vllm serve --load-format sharded_state 停止，或加载大小错误的切片",
        "vllm serve DIR --load-format sharded_state --tensor-parallel-size {ranks}",
    ),
    "rank-folders": (
        "{place} 的权重分散在各 rank 的目录中（{found}），没有合并",
        "vllm serve 停止：找不到模型权重",
        "用 msModelSlim 的分布式保存器（会合并各 rank）或在单设备上重新量化",
    ),
    "description-absent": (
        "{count} 个张量已量化（如 {example}），但没有 quant_model_description.json",
        "vllm serve --quantization ascend 停止：找不到 ModelSlim 量化配置",
        "从发布方或 msModelSlim 的输出目录复制 quant_model_description.json",
    ),
    "description-name": (
        "量化描述名为 {place}；vllm-ascend 只打开 quant_model_description.json",
        "vllm serve --quantization ascend 停止：找不到 ModelSlim 量化配置",
        "ln -s {place} DIR/quant_model_description.json",
    ),
    "description-unread": (
        "{place} 是另一份量化描述；只有 {read} 会被读取",
        "如果 {read} 与权重相符，则无影响",
        "如果 {place} 属于另一次导出，把它移出目录",
    ),
    "description-in-config": (
        "量化描述在 config.json 的 quantization_config 中；vllm-ascend 从那里读取",
        "无影响",
        "无需处理",
    ),
    "description-shadowed": (
        "config.json 中有不含逐张量条目的 quantization_config，它遮住了 quant_model_description.json",
        "第一个层就出现 KeyError（vllm-ascend 0.29 及以前；之后除非其中只有方法名）",
        "从 config.json 删除 quantization_config，并以 --quantization ascend 启动",
    ),
    "description-format-only": (
        "config.json 的 quantization_config 只写了方法名；vllm-ascend {version} 仍会读取描述文件",
        "此版本无影响；0.30 以前的版本会出现 KeyError",
        "无需处理",
    ),
    "description-empty": (
        "{place} 没有描述任何张量",
        "vllm serve --quantization ascend 以 KeyError 停止，或把每一层都当作浮点",
        "从 msModelSlim 的输出目录复制 quant_model_description.json",
    ),
    "description-entry": (
        "{place}：{count} 个条目不是量化方案名，而是 {kind}",
        "vllm serve 停止：不支持该方案",
        "从 msModelSlim 的输出目录复制 quant_model_description.json",
    ),
    "description-prefixed": (
        "量化描述的元数据键带有前缀（{example}）",
        "vllm-ascend 按原名找不到它们，会采用默认值",
        "方案不需要 group_size 时无需处理",
    ),
    "quant-method-empty": (
        "config.json 的 quantization_config 中 quant_method 为空",
        "旧版本的 vllm serve --quantization ascend 停止：与配置中的方法不一致",
        "从 config.json 删除 quantization_config",
    ),
    "not-modelslim": (
        "这是 {method} 权重，不是 ModelSlim 权重（{evidence}）",
        "vllm serve --quantization ascend 停止：model.embed_tokens.weight 的 KeyError，或找不到量化描述",
        "{advice}",
    ),
    "float-checkpoint": (
        "这是浮点权重：没有量化的张量，也没有量化描述",
        "vllm serve --quantization ascend 停止：找不到 ModelSlim 量化配置",
        "去掉 --quantization 运行 vllm serve DIR，或先用 msModelSlim 量化",
    ),
    "described-tensor-absent": (
        "{count} 个张量被描述为 {scheme}，但不在任何文件中",
        "加载时 KeyError，或参数保持分配时的内存内容：输出错误而不报错",
        REQUANTIZE,
    ),
    "described-float-absent": (
        "{count} 个张量被描述为 FLOAT，但不在任何文件中",
        "如果模型有该参数，它保持分配时的内存内容：输出错误而不报错",
        "从浮点模型取得这些张量；模型没有该参数时删除条目",
    ),
    "tensor-undescribed": (
        "文件中的 {count} 个权重不在量化描述中",
        "vllm-ascend 0.29 及以前对该层 KeyError；0.30 起悄悄当作浮点",
        "在 {place} 中补上条目（bf16 权重写 FLOAT）：ascend-hotfix doctor DIR --suggest FILE 会写出补丁",
    ),
    "expert-undescribed": (
        "文件中的 {count} 个专家权重不在量化描述中",
        "无影响：vllm-ascend 只查询每层的第一个专家；但量化描述与权重文件不是同一次导出的",
        "与发布方的量化描述比较",
    ),
    "draft-undescribed": (
        "草稿（MTP）层的 {count} 个张量不在量化描述中",
        "模型可以加载；打开投机解码后第一个草稿层 KeyError",
        "在 {place} 中补上条目（bf16 权重写 FLOAT）：ascend-hotfix doctor DIR --suggest FILE 会写出补丁",
    ),
    "extra-undescribed": (
        "权重以外的 {count} 个张量不在量化描述中",
        "vllm-ascend 只查询权重，可以加载；但描述与文件不是同一次导出",
        "与发布方的量化描述比较",
    ),
    "description-renamed": (
        "量化描述写 {described}，文件中写 {filed}，共 {count} 处",
        "第一个层就 KeyError；0.30 起量化层被当作浮点",
        "ascend-hotfix doctor DIR --suggest FILE   （把改名写成补丁）",
    ),
    "scheme-unknown": (
        "量化描述中 {count} 个条目的方案是 {scheme}，ModelSlim 不写这种方案",
        "vllm serve 停止：不支持该方案",
        "更正 {place} 中的条目{nearest}",
    ),
    "model-quant-type": (
        "model_quant_type 写的是 {said}，但没有这样的权重；多数是 {most}",
        "无影响：各层的方案以自己的条目为准",
        "无需处理",
    ),
    "float-but-quantized": (
        "{count} 个权重被描述为 FLOAT，实际存为 {dtype}",
        "不报错：整数被直接转换进浮点参数，输出错误",
        "更正量化描述中的条目，或换用浮点张量",
    ),
    "quantized-but-float": (
        "{count} 个权重被描述为 {scheme}，实际存为 {dtype}",
        "不报错：数值被直接转换为整数，输出错误",
        "在量化描述中改为 FLOAT，或用 msModelSlim 重新量化",
    ),
    "weight-dtype": ("{count} 个 {scheme} 权重存为 {dtype}，应为 {expected}", CAST, REQUANTIZE),
    "weight-shape": (
        "{count} 个 {scheme} 权重的 shape 为 {shape}，应为 {expected}",
        "vllm serve 在权重加载时停止",
        REQUANTIZE,
    ),
    "scheme-inconsistent": (
        "{count} 个条目与所在层不一致：{leaf} 为 {scheme}，应为 {other}",
        "vllm-ascend 只看权重自己的条目",
        "让该层的条目一致",
    ),
    "companion-absent": ("{count} 个 {scheme} 层缺少 {leaf}", GARBAGE, REQUANTIZE),
    "companion-unread": (
        "{count} 个 {scheme} 层缺少 {leaf}",
        "vllm-ascend 0.11 到 0.30 的计算不用它，无影响；但 msModelSlim 总会写出它",
        "确认权重完整",
    ),
    "companion-unexpected": (
        "{count} 个 {scheme} 层带有 {leaf}，该方案不使用它",
        "加载时 KeyError，或被悄悄丢弃；量化描述中的方案可能有误",
        "与发布方的量化描述比较",
    ),
    "companion-dtype": ("{count} 个 {scheme} 层的 {leaf} 为 {dtype}，应为 {expected}", CAST, REQUANTIZE),
    "companion-shape": ("{count} 个 {scheme} 层的 {leaf} 与权重的 shape 不符：{problem}", LOADER, REQUANTIZE),
    "companion-foreign": (
        "{count} 个浮点层带有 {leaf}，它属于量化权重",
        "加载时 KeyError，或被悄悄丢弃",
        "在量化描述中把该层的条目改为它的方案",
    ),
    "shards-mixed": (
        "{count} 个融合层混用了方案：{mix}",
        "vllm serve 停止：融合层的各分片精度必须一致；或者只按第一个分片处理",
        "重新量化，使 {group} 一致（msModelSlim：整组使用同一方案）",
    ),
    "experts-mixed": (
        "{count} 个专家层混用了方案：{mix}",
        "vllm-ascend 对一层的全部专家只用一种方案：输出错误，或在权重加载时停止",
        "重新量化，使同一层的专家使用同一方案",
    ),
    "kv-scale-incomplete": ("{count} 个注意力层有 KV 缓存的 scale（C8），但缺少 {leaf}", GARBAGE, REQUANTIZE),
    "kv-scale-shape": ("{count} 个 KV 缓存 scale（C8）与其投影不符：{problem}", LOADER, REQUANTIZE),
    "kv-scale-layers": (
        "量化描述写 kv_cache_type C8，但 {count} 个注意力层没有 KV 缓存的 scale",
        "vllm-ascend 0.18 把每一层都当作 C8，使用从未写入的 scale；之后的版本逐层判断",
        "重新量化，为每一层写出 KV scale",
    ),
    "fa-scale-incomplete": ("{count} 个注意力层有 FAQuant 张量，但缺少 {leaf}", GARBAGE, REQUANTIZE),
    "expert-absent": ("缺少 {count} 个专家（{where}）", GARBAGE, REQUANTIZE),
    "expert-surplus": (
        "专家比 config.json 所写的 {expected} 个多出 {count} 个",
        "vllm serve 在权重加载时停止，或忽略多出的专家",
        "更正 config.json 中的专家数，或换用匹配的权重",
    ),
    "expert-part-absent": ("{count} 个专家缺少同层其他专家都有的 {leaf}", GARBAGE, REQUANTIZE),
    "expert-shape": ("{count} 个专家张量的 {what} 与同层其他专家不同", LOADER, REQUANTIZE),
    "layer-absent": ("{expected} 层中有 {count} 层没有任何张量（{where}）", GARBAGE, REQUANTIZE),
    "module-absent": ("{count} 层缺少 {module}；{others} 都有", GARBAGE, REQUANTIZE),
    "module-odd": (
        "{count} 层缺少 {module}，其余相同的 {others} 层都有",
        "如果模型有该参数，它保持分配时的内存内容：输出错误而不报错",
        REQUANTIZE,
    ),
    "router-bias-absent": (
        "{count} 个路由没有 {leaf}，而该模型的路由需要它",
        "不报错：vLLM 用从未写入的偏置做路由，输出错误",
        "从浮点模型把这些张量复制进权重；丢弃 buffer 的量化工具会丢失它们",
    ),
    "router-bias-filled": (
        "{count} 个路由没有 {leaf}；{patch} 用 {value} 填充",
        "模型可以加载；只有浮点模型的偏置也是 {value} 时路由才正确",
        "与浮点模型比较，不同则从中复制这些张量",
    ),
    "patch-problem": (
        "{problem}",
        "该补丁或条目不会被使用；其余照常，服务在没有它的情况下运行",
        "改正它，或从 ASCEND_HOTFIX_PATH 或 ASCEND_HOTFIX_MODELS 中去掉",
    ),
    "draft-absent": (
        "config.json 声明了 {expected} 个草稿（MTP）层，文件中没有",
        "模型可以加载；无法用自带的草稿做投机解码",
        "不使用 --speculative-config，或把草稿层也量化",
    ),
    "skipped-by-prefix": (
        "{count} 个量化层 {module} 有名字开头相同的 FLOAT 邻居 {neighbour}",
        "vllm-ascend 0.16 到 0.29 会把该层当作浮点：它只比较名字开头，不看点号",
        "pip install 'vllm-ascend>=0.30'，或换用两者方案一致的权重",
    ),
    "release-too-old": (
        "vllm-ascend {installed} 早于 {oldest}，后者才有 ModelSlim 的量化表",
        "vllm serve 在第一个 scale 上 KeyError：没有启用量化，或不认识层名",
        "pip install 'vllm-ascend>={oldest}'，并安装它指定的 vLLM",
    ),
    "scheme-not-in-release": (
        "vllm-ascend {installed} 没有用于 {kind} 的 {scheme}；{count} 个权重使用它（{where}）",
        "vllm serve 以 NotImplementedError 停止：该类层不支持此方案",
        "安装支持它的 vllm-ascend 版本，或改用 {installed} 支持的方案重新量化",
    ),
    "model-type-new": (
        "vllm-ascend {installed} 不认识 {model_type}；{first} 起才支持",
        "vllm serve 停止：不支持该架构或 model_type，或第一个融合层 KeyError",
        "pip install 'vllm-ascend>={first}'，并安装它指定的 vLLM",
    ),
    "model-type-unlisted": (
        "vllm-ascend {installed} 没有 {model_type} 的量化表；{first} 起才有",
        "除非 ascend-hotfix 的补丁补上，否则第一个融合层或带前缀的名字会 KeyError",
        "运行 dry run（去掉 --static-only）；ascend-hotfix list 列出补丁",
    ),
    "build-failed": (
        "{place} 模型无法构建：{error}（{where}）",
        "vllm serve 在读取权重之前以此错误停止",
        "看看更新的 vllm-ascend 能否运行该模型，或报告这里给出的位置",
    ),
    "model-refused": (
        "此版本不接受这个模型或其配置（{example}）：{error}",
        "vllm serve 在构建模型之前以此错误停止",
        "更正错误信息所指之处，或换用支持该模型的版本；ascend-hotfix 不能增加模型类",
    ),
    "draft-unsupported": (
        "此版本没有用于 {count} 个草稿（MTP）张量的草稿模型：{error}",
        "模型可以加载；带 --speculative-config 的 vllm serve 以此错误停止",
        "不使用 --speculative-config，或换用支持该草稿的版本",
    ),
    "load-failed": (
        "{place} 模型的 load_weights 在结束时失败：{error}（{where}）",
        "vllm serve 读完全部权重后以此错误停止",
        "报告这里给出的位置",
    ),
    "lookup-missing": (
        "{count} 层向量化描述查询 {asked}（{example}），描述中是 {known}（{place}）",
        "vllm serve 在其中第一层 KeyError",
        "ascend-hotfix doctor DIR --suggest FILE 会写出规则",
    ),
    "lookup-silent": (
        "{count} 层向量化描述查询 {asked}（{example}），描述中是 {known}；上游把它们当作浮点",
        "此版本不会 KeyError：量化张量被加载进浮点层，或被拒绝",
        "ascend-hotfix doctor DIR --suggest FILE 会写出规则",
    ),
    "row-missing": (
        "{count} 个融合层 {fused}（{example}）没有分片表项；量化描述中有 {shards}（{place}）",
        "vllm serve 在其中第一层 KeyError",
        "ascend-hotfix doctor DIR --suggest FILE 会写出表项",
    ),
    "lookup-refused": (
        "{count} 层得不到量化方案（{example}）：{error}（{place}）",
        "vllm serve 以此错误停止",
        "更正量化描述：融合层的各分片必须是同一方案",
    ),
    "scheme-unsupported": (
        "此 vllm-ascend 没有用于 {kind} 层的 {scheme}（{count} 处，如 {example}）",
        "vllm serve 以 NotImplementedError 停止",
        "换用支持它的 vllm-ascend 版本，或用其他方案量化",
    ),
    "tensor-refused": (
        "{place} 模型的 load_weights 拒绝 {count} 个张量，如 {example}：查询的是 {asked}（{where}）",
        "vllm serve 在其中第一个张量处以此错误停止",
        "ascend-hotfix doctor DIR --suggest FILE 会寻找规则",
    ),
    "tensor-shape-refused": (
        "{count} 个张量（如 {example}）与其参数不符：{error}（{where}）",
        "vllm serve 在其中第一个张量处以此错误停止",
        "换用与这份 config.json 匹配的权重",
    ),
    "tensor-unused": (
        "{place} 模型没有参数接收 {count} 个 {leaf} 张量，如 {example}",
        "不报错：这些张量被放弃，它们的修正也随之丢失",
        "用 explain 查看其中一个名字；ascend-hotfix doctor DIR --suggest FILE 会寻找规则",
    ),
    "parameter-unwritten": (
        "{place} 模型的 {count} 个 {leaf} 参数没有张量填充，如 {example}",
        GARBAGE,
        "换用完整的权重；如果发布方没有提供，补丁可以填充",
    ),
    "parameter-filled": (
        "{place} 模型的 {count} 个 {leaf} 参数没有张量填充，如 {example}；{patch} 用 {value} 填充",
        "模型可以加载；只有浮点模型的这些张量也是 {value} 时输出才正确",
        "与浮点模型比较，不同则从中复制这些张量",
    ),
    "parameter-partial": (
        "{leaf} 参数的 {count} 个部分（如 {example}）没有写入：{where}",
        "不报错：这些部分保持分配时的内存内容，输出错误",
        "换用完整的权重",
    ),
    "tensor-cut": (
        "{count} 个张量 {shape}（如 {example}）大于其参数；{what} 被截掉",
        "不报错：张量的其余部分被悄悄丢弃",
        "换用与这份 config.json 匹配的权重",
    ),
    "tensor-spread": (
        "{count} 个张量 {source}（如 {example}）被展开到 {target}",
        "不报错：一个值被复制到整行或整列",
        "换用完整的权重",
    ),
    "quantized-into-float": (
        "{count} 个 {source} 张量（如 {example}）被加载进 {target} 参数",
        "不报错：整数被当作权重，输出错误",
        "更正量化描述中的方案，或用补丁更正该层查询的名字",
    ),
    "float-into-quantized": (
        "{count} 个 {source} 张量（如 {example}）被加载进 {target} 参数",
        "不报错：权重被截成整数，输出错误",
        "更正量化描述中的方案：描述说已量化，张量却是浮点",
    ),
    "dtype-cast": (
        "{count} 个 {source} 张量（如 {example}）被加载进 {target} 参数",
        "不报错：数值被悄悄转换",
        "使用量化工具原样写出的权重",
    ),
    "suggest-nothing": (
        "没有可建议的补丁：改名规则解决不了发现的问题",
        "没有写入 {place}",
        "按各条结果的处理方法操作",
    ),
    "suggest-choice": (
        "选择 {number}：{what}",
        "没有写入 {place}：仅凭名称无法确定，选错会悄悄加载错误的权重",
        "对照浮点模型决定；ascend-hotfix doctor DIR --suggest {file} --choose {first} 采用第一项",
    ),
    "suggest-option": (
        "选择 {number}：{what}",
        "不作选择时，这些参数保持内存中的随机内容",
        "与浮点模型比较；ascend-hotfix doctor DIR --suggest {file} --choose {first} 采用第一项",
    ),
    "suggest-no-name": (
        "改名规则解决不了：{what}",
        "该结果仍然存在：无论位于哪一层，它们查询的都是同一个名字",
        "补丁可以说明该部件的位置：Inside(类, 外层的类, 名字)，见 docs/records.md",
    ),
    "suggest-unknown": (
        "没有选择 {choice}",
        "没有写入 {place}",
        "去掉 --choose 可查看现有的选择",
    ),
    "suggest-worse": (
        "没有写入补丁：用找到的规则再试加载后，仍有 {left}",
        "没有写入 {place}",
        "按各条结果的处理方法操作",
    ),
}
