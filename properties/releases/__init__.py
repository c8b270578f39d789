"""Properties of engines' own code: scenarios, states sent between ranks, slots and plans."""
