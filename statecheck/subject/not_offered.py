"""How an adapter says that a subject does not have what a call needs."""


class NotOffered(Exception):
    """The subject does not offer what the call needs, which is no failure.

    Only this class says so: an exception of the subject's own that has the same name is a failure like any other.
    """
