"""The engine of an installed SGLang, with a forward that names tokens in its states."""
