"""The proof of the gate: samples recorded on real GPUs, and what they say when they are decided again."""
