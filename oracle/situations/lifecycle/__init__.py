"""Situations of requests' lives."""
