"""A small model with random weights: large ones, since a lost state hardly changes the logits of a new model."""

import pytest
import torch


@pytest.fixture
def make_model():
    """Makes a model of a class from its configuration; `torch` is seeded."""

    def make(model_class, config, std=0.25):
        torch.manual_seed(0)
        model = model_class(config).eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=std)
        return model

    return make


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield
