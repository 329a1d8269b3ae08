"""The learner: rewarded samples in, a sealed checkpoint out, or a reason why there is none.

Enters: `Sample` rows that wait and the policy's champion. Leaves: a `Checkpoint`, as a row, on its topic and in MLflow; each
sample it trained on is marked consumed in the transaction that records the checkpoint. `loop.py` says when.
"""
