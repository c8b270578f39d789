"""All inputs of decisions up to a bound; a module for each topic, as in `strategies`."""
