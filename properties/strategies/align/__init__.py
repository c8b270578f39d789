"""Inputs of align mode: models, caches, batches, and steps of both runners."""
