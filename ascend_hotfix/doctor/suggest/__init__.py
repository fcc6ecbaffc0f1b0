"""The suggested patch: what is asked and what is there are aligned, and what follows is tried before it is offered.

Two processes share the work, and no file of theirs: :mod:`.propose` and what it uses run beside upstream, :mod:`.trial`
asks them.
"""
