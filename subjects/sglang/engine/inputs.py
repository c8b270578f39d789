"""What a scheduler receives: requests, and what its users do with them, as the release's own messages."""

from array import array
from collections.abc import Sequence
from typing import Any

from subjects.sglang.release import find

_MESSAGES = "sglang.srt.managers.io_struct"
_ABSENT = ("input_text", "input_embeds", "mm_inputs", "token_type_ids", "token_ids_logprob")
"""Fields of a request that have no default."""
_CAPACITY = 1000
"""Of a session, in characters; the release keeps the number."""


def message(name: str, **given: Any) -> Any:
    """A message of the release by the name of its class."""
    return find(f"{_MESSAGES}:{name}")(**given)


def generate(
    id: str,  # noqa: A002
    tokens: Sequence[int],
    max_tokens: int,
    stop: int | None = None,
    **more: Any,
) -> Any:
    """A request that samples greedily and stops after `max_tokens`, and before that behind the token `stop`."""
    ends = {"ignore_eos": True} if stop is None else {"ignore_eos": False, "stop_token_ids": [stop]}
    parameters = find("sglang.srt.sampling.sampling_params:SamplingParams")(
        max_new_tokens=max_tokens, temperature=0.0, **ends
    )
    parameters.normalize(None)
    return message(
        "TokenizedGenerateReqInput",
        rid=id,
        input_ids=array("q", tokens),
        sampling_params=parameters,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        stream=True,
        **dict.fromkeys(_ABSENT),
        **more,
    )


def open_session(id: str, streaming: bool) -> Any:  # noqa: A002
    """A session begins."""
    return message("OpenSessionReqInput", capacity_of_str_len=_CAPACITY, session_id=id, streaming=streaming)


def session_parameters(session: str, after: str, offset: int, *, drops_output: bool, replaces: bool) -> Any:
    """What a request says of its session: the request that it continues, and which of its tokens it keeps."""
    return message(
        "SessionParams",
        id=session,
        rid=after or None,
        offset=offset if offset > 0 else None,
        replace=replaces or None,
        drop_previous_output=drops_output or None,
    )
