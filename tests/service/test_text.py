"""Text that is sent has whole characters and ends before a stop string, however the tokens were cut."""

from hypothesis import given
from hypothesis import strategies as st

from service.generator.text import TextAssembler

LETTERS = st.text(alphabet="ab€😀 ", max_size=30)


def pieces_of(data: bytes, cuts: list[int], stop: tuple[str, ...]) -> list[str]:
    assembler = TextAssembler(stop)
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    made, at = [], 0
    for end in ends:
        if assembler.stopped:
            break
        made.append(assembler.feed(data[at:end], final=end == len(data)))
        at = end
    return made


@given(LETTERS, st.lists(st.integers(0, 200), max_size=12))
def test_without_stop_strings_nothing_is_lost_and_no_character_is_split(text: str, cuts: list[int]):
    pieces = pieces_of(text.encode(), cuts, ())
    assert "".join(pieces) == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)


@given(
    LETTERS,
    st.lists(st.integers(0, 200), max_size=12),
    st.lists(st.text(alphabet="ab€ ", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_the_text_ends_before_the_first_stop_string(text: str, cuts: list[int], stops: list[str]):
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(stops))]
    longest = max((len(stop) for stop in stops if ends and text[: ends[0]].endswith(stop)), default=0)
    wanted = text[: ends[0] - longest] if ends else text
    assert "".join(pieces_of(text.encode(), cuts, tuple(stops))) == wanted


def test_a_broken_character_at_the_end_is_replaced():
    assembler = TextAssembler()
    assert assembler.feed("€".encode()[:2]) == ""
    assert assembler.feed(b"", final=True) == "\N{REPLACEMENT CHARACTER}"


def test_what_may_become_a_stop_string_waits():
    assembler = TextAssembler(("END",))
    assert assembler.feed(b"the E") == "the "
    assert assembler.feed(b"N") == ""
    assert assembler.feed(b"d") == "ENd"
    assert not assembler.stopped
    assert assembler.feed(b"END and more") == ""
    assert assembler.stopped
