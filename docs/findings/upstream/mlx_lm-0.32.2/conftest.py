"""A small model with random weights: large ones, since a lost state hardly changes the logits of a new model."""

import mlx.core as mx
import pytest
from mlx.utils import tree_map


@pytest.fixture
def make_model():
    """Makes a model from its module and arguments."""

    def make(module, **arguments):
        mx.random.seed(0)
        model = module.Model(module.ModelArgs(model_type=module.__name__.rpartition(".")[2], **arguments))
        model.update(
            tree_map(lambda w: mx.random.normal(w.shape) * 0.25 if w.ndim > 1 else w, model.parameters())
        )
        return model

    return make
