"""Other ways to search for a planted defect, as a user may write them in an afternoon."""
