"""Align mode: which state is copied where when a step crosses a block boundary, on integers and bytes."""
