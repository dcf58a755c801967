"""Gradients of `DistributedDataParallel`: record, measure, group."""
