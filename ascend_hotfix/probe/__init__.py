"""``ascend-hotfix probe URL``: is a running OpenAI-compatible server right? Standard library only, no vLLM, no NPU."""
