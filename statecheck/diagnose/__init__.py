"""Everything after the first failure: minimise, confirm, attribute, explain. `Case -> Diagnosis`."""
