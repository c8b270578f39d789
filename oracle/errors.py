class Refused(ValueError):
    """An input outside the documented domain: which argument, what it was, and the rule that it breaks.

    `rule` completes the sentence "argument = value, but should ...". An element of a sequence is
    named with its index, as in `query_start_loc[3]`.
    """

    def __init__(self, argument: str, value: object, rule: str) -> None:
        self.argument = argument
        self.value = value
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.argument} = {self.value!r}, but should {self.rule}"


def require(holds: bool, argument: str, value: object, rule: str) -> None:
    """Refuse `value` unless its rule holds."""
    if not holds:
        raise Refused(argument, value, rule)


def require_int(argument: str, value: object, minimum: int | None = None) -> None:
    """Refuse anything but an integer of at least `minimum`; a truth value is not an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(argument, value, "be an int")
    if minimum is not None:
        require(value >= minimum, argument, value, f"be >= {minimum}")
