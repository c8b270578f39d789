"""A serving engine around the verified functions, with everything but a model: it sends requests through them."""
