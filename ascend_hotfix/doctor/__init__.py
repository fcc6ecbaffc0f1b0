"""The doctor: will this installed vLLM and vllm-ascend load this checkpoint right, and if not, what fixes it?

``checkpoint`` reads the files, ``static`` checks them without vLLM, ``dryrun`` builds the model on the meta device,
``findings`` is what both report and ``report`` shows it. Nothing that runs in a server imports this package.
"""
