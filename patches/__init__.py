"""Shipped patches, data only. One file is one patch of the file's name.

- ``models``: what a model family needs, one file a family; its ``model_types`` are in no other file of this folder;
- ``formats``: what comes of how a checkpoint is stored or quantized (FP8, GPTQ, a quantized KV cache, fused tensors) and
  is so in several families, or is the matter of one format;
- ``every``: what any model may need.

``ascend-hotfix list MODEL_TYPE`` gathers from all three what is for one model.
"""
