"""The trainer: batches in, gradients out; checkpoints that can be trusted."""
