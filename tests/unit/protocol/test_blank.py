"""Every response of every API can be made blank and written in every version."""

import pytest

from mainstem.protocol.api import APIS
from mainstem.protocol.blank import blank


@pytest.mark.parametrize("key", sorted(APIS))
def test_a_blank_response_can_be_written_in_every_version(key: int) -> None:
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        message = blank(api.response)
        assert api.response.decode(message.encode(version), version) == message
