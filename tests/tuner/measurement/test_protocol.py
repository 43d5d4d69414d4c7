"""Messages arrive whole, in time or not at all."""

import os
from collections.abc import Iterator

import pytest

from tuner.measurement import protocol
from tuner.measurement.protocol import Channel, ChannelClosedError, ProtocolError


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    (one_reads, other_writes), (other_reads, one_writes) = os.pipe(), os.pipe()
    one, other = Channel(one_reads, one_writes), Channel(other_reads, other_writes)
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def raw() -> Iterator[tuple[Channel, int]]:
    """A channel and the end at which anything can be written into it."""
    (reads, far), (unread, writes) = os.pipe(), os.pipe()
    channel = Channel(reads, writes)
    yield channel, far
    channel.close()
    os.close(unread)
    os.close(far)


def test_messages_keep_their_order(pair: tuple[Channel, Channel]):
    one, other = pair
    for number in range(3):
        one.send({"id": number, "text": "a\nb"})
    assert [other.receive(5)["id"] for _ in range(3)] == [0, 1, 2]


def test_silence_is_a_timeout_and_the_half_that_came_is_kept(raw: tuple[Channel, int]):
    channel, far = raw
    os.write(far, b'{"version":1,')
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    os.write(far, b'"id":7}\n')
    assert channel.receive(5)["id"] == 7


def test_a_reader_that_never_reads_is_a_timeout(raw: tuple[Channel, int]):
    channel, _ = raw
    with pytest.raises(TimeoutError):
        channel.send({"text": "x" * (1 << 20)}, 0.05)


def test_the_other_side_gone_is_closed(pair: tuple[Channel, Channel]):
    one, other = pair
    other.close()
    with pytest.raises(ChannelClosedError):
        one.receive(5)
    with pytest.raises(ChannelClosedError):
        one.send({"id": 1}, 5)


@pytest.mark.parametrize("line", [b"garbage", b"[1]", b'{"id":1}', b'{"version":99}', b"\xff\x00", b""])
def test_anything_else_is_a_protocol_error(raw: tuple[Channel, int], line: bytes):
    channel, far = raw
    os.write(far, line + b"\n")
    with pytest.raises(ProtocolError):
        channel.receive(5)


def test_a_line_is_bounded(raw: tuple[Channel, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "MAX_LINE_BYTES", 1000)
    channel, far = raw
    os.write(far, b"x" * 2000)
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        channel.receive(5)
