"""What is said: values and rules, pure. Nothing here does I/O, looks at a clock, or knows who runs.

Start with `events` (the vocabulary of a log), then `rules` (what may follow what) and `schedule` (how a batch of calls
runs); `pending` and `recovery` say what a failed step still owes, `history` what a model sees.
"""

__all__: list[str] = []
