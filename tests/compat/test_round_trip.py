"""Every client that people have can write to our broker and read it back, over the versions it chooses by itself."""

import time

from tests.compat.drivers.client import Client, Sent
from tests.compat.scenarios import eventually, new_name


def test_what_a_client_produces_it_consumes_in_a_group_and_resumes_after(client: Client) -> None:
    topic, group = new_name("round-trip"), new_name("group")
    now = int(time.time() * 1000)
    sent = [Sent(f"value {i}", f"key {i}", (("header", str(i)),), timestamp=now + i) for i in range(20)]
    offsets = client.produce(topic, sent, codec="gzip")
    assert [offset for _, offset in offsets] == list(range(20))
    member = client.join("first", group, topic)
    got = eventually(lambda: member.state().records, lambda records: len(records) >= 20)
    assert [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in got] == [
        (i, one.timestamp, one.key, one.value, one.headers) for i, one in enumerate(sent)
    ]
    member.commit()
    member.leave()
    client.produce(topic, [Sent("later")])
    again = client.join("second", group, topic)
    assert [one.value for one in eventually(lambda: again.state().records, bool)] == ["later"]
    again.leave()
