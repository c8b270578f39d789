"""The recurrences that kernels compute, one token at a time, on floats and lists, and how far a kernel's result may lie from them.

Each recurrence is a function of a few lines: `conv` (causal convolution with a window), `ssm` (Mamba-1 and Mamba-2), `delta` (the delta rule,
without a gate, with one for each head as in GDN, and with one for each channel as in KDA) and `linear` (linear attention with a decay, as in
RetNet, lightning attention and simple GLA). `rows` has the rule that they share: which slot of a pool a sequence reads and writes. `bounds` has
the error bound. A state of a head is a list of rows, `[V][K]` or `[P][N]`.
"""
