"""The borders between the words: what an interval may and may not decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.measure.statistics import Quantity
from deepstone.papers.verdict import (
    ABOUT,
    BAND,
    HOLDS,
    MORE_THAN,
    NO_LONGER,
    REVERSED,
    UNDECIDED,
    UP_TO,
    WEAKER,
    WORDS,
    Bound,
    Judgement,
    Word,
    enough,
    of_count,
    of_equality,
    of_parts,
    of_rank,
    of_ratio,
    of_share,
    of_shortfall,
    of_small_lead,
)

ratios = st.floats(0.01, 100)
BOUNDS = (UP_TO, MORE_THAN, ABOUT)
bounds = st.sampled_from(BOUNDS)


def between(low: float, high: float) -> Quantity:
    return Quantity.of(median=(low + high) / 2, low=low, high=high, n=3)


def by_word(intervals: Mapping[Word, Sequence[tuple[float, float]]]) -> pytest.MarkDecorator:
    """Intervals of which a word is to be said, from low to high."""
    rows = [(low, high, word) for word, found in intervals.items() for low, high in found]
    return pytest.mark.parametrize(("low", "high", "word"), rows)


@given(ratios)
def test_without_an_interval_nothing_is_decided(value: float) -> None:
    alone = Quantity.without_interval(value)
    judged = [of_rank(alone), of_equality(alone, far=1.25), of_share(alone, 0.9), of_shortfall(alone, 0.9)]
    judged += [of_ratio(alone, 2.0, bound) for bound in BOUNDS]
    judged += [of_small_lead(alone, 1.2, bound, far=2.0) for bound in BOUNDS]
    assert {judgement.word for judgement in judged} == {UNDECIDED}
    assert all(alone.no_interval in judgement.why for judgement in judged)


@st.composite
def intervals(draw: st.DrawFn) -> Quantity:
    low, high = sorted((draw(ratios), draw(ratios)))
    return between(low, high)


@by_word(
    {
        HOLDS: [(1.6, 1.7), (2.5, 9.0)],
        WEAKER: [(1.2, 1.5), (1.001, 1.59)],
        NO_LONGER: [(0.95, 1.05), (1.01, 1.04)],
        REVERSED: [(0.5, 0.99)],
        UNDECIDED: [(1.59, 2.5), (0.97, 1.06), (0.5, 1.01), (0.5, 3.0)],
    }
)
def test_a_published_gain_of_two(low: float, high: float, word: str) -> None:
    assert of_ratio(between(low, high), 2.0, UP_TO).word == word


@pytest.mark.parametrize(("published", "limit"), [(2.0, 1.6), (4.0, 3.2), (3.2, 2.56), (1.15, 1.075), (1.03, 1.015)])
def test_what_is_enough(published: float, limit: float) -> None:
    """0.8 of a large gain; near 1, where that would be no gain at all, half of the gain."""
    assert enough(published, UP_TO) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("bound", "low", "high", "word"),
    [
        (UP_TO, 3.35, 3.46, HOLDS),
        (MORE_THAN, 3.35, 3.46, WEAKER),
        (MORE_THAN, 3.9, 4.1, UNDECIDED),
        (MORE_THAN, 4.0, 4.1, HOLDS),
        (ABOUT, 3.35, 3.46, HOLDS),
        (ABOUT, 3.15, 3.2, WEAKER),
        (ABOUT, 3.2, 3.3, UNDECIDED),
    ],
)
def test_the_slack_of_up_to_is_given_to_nothing_else(bound: Bound, low: float, high: float, word: str) -> None:
    assert of_ratio(between(low, high), 4.0, bound).word == word


@given(published=st.floats(1.001, 100), bound=bounds)
def test_what_is_enough_is_a_gain_and_no_more_than_published(published: float, bound: Bound) -> None:
    assert 1 < enough(published, bound) <= published
    assert enough(published, UP_TO) >= 0.8 * published


@given(interval=intervals(), published=st.floats(1.2, 50), bound=bounds)
def test_every_word_means_what_it_says(interval: Quantity, published: float, bound: Bound) -> None:
    word = of_ratio(interval, published, bound).word
    assert word in WORDS
    assert (word == HOLDS) == (interval.low >= enough(published, bound))
    if word == NO_LONGER:
        assert BAND[0] <= interval.low
        assert interval.high <= BAND[1]
    if word == REVERSED:
        assert interval.high < 1
    if word == WEAKER:
        assert interval.low > 1
        assert interval.high < enough(published, bound)


@given(interval=intervals(), published=st.floats(1.2, 50), bound=bounds, wider=st.floats(1, 3))
def test_a_wider_interval_decides_nothing_else(
    interval: Quantity, published: float, bound: Bound, wider: float
) -> None:
    """Less certainty may make a verdict undecided, or leave it; it never gives another verdict but for the band's."""
    spread = Quantity.of(median=interval.median, low=interval.low / wider, high=interval.high * wider, n=interval.n)
    before, after = of_ratio(interval, published, bound).word, of_ratio(spread, published, bound).word
    if before == NO_LONGER:
        assert after in (NO_LONGER, UNDECIDED)
    else:
        assert after in (before, UNDECIDED)


@given(interval=intervals())
def test_a_rank_turned_around_is_reversed(interval: Quantity) -> None:
    turned = Quantity.of(median=1 / interval.median, low=1 / interval.high, high=1 / interval.low, n=interval.n)
    opposite = {HOLDS: REVERSED, REVERSED: HOLDS}
    word = of_rank(interval).word
    if word in opposite:
        assert of_rank(turned).word in (opposite[word], NO_LONGER)  # 1 / 1.05 lies in the band, 0.95 is its end


def test_equal_things() -> None:
    assert of_equality(between(0.97, 1.03), far=1.25).word == HOLDS
    assert of_equality(between(1.1, 1.2), far=1.25).word == WEAKER
    assert of_equality(between(1.3, 1.4), far=1.25).word == REVERSED
    assert of_equality(between(0.6, 0.7), far=1.25).word == REVERSED
    assert of_equality(between(1.03, 1.1), far=1.25).word == UNDECIDED
    assert of_equality(between(1.2, 1.3), far=1.25).word == UNDECIDED


@by_word(
    {
        HOLDS: [(1.10, 1.19)],
        # More than published, but comparable still; and less than published.
        WEAKER: [(1.21, 1.30), (1.06, 1.08)],
        NO_LONGER: [(0.98, 1.02)],
        # Of the second, the two are not comparable any more.
        REVERSED: [(1.6, 1.7), (100.0, 110.0), (0.5, 0.9)],
        UNDECIDED: [(1.10, 1.30), (1.30, 1.60), (0.98, 1.15)],
    }
)
def test_a_small_lead_has_two_sides(low: float, high: float, word: str) -> None:
    assert of_small_lead(between(low, high), 1.18, UP_TO, far=1.5).word == word


@by_word(
    {
        HOLDS: [(0.60, 0.70)],
        WEAKER: [(0.88, 0.90), (0.52, 0.55)],  # less is missing than a third, and more
        NO_LONGER: [(0.96, 0.99)],
        REVERSED: [(0.30, 0.40)],
        UNDECIDED: [(0.70, 0.80), (0.90, 0.97)],
    }
)
def test_two_thirds_of_what_is_possible_has_two_sides(low: float, high: float, word: str) -> None:
    assert of_shortfall(between(low, high), 0.68).word == word


def test_shares() -> None:
    assert of_share(between(0.7, 0.8), 0.83).word == HOLDS
    assert of_share(between(0.55, 0.6), 0.83).word == WEAKER
    assert of_share(between(0.3, 0.4), 0.83).word == REVERSED
    assert of_share(between(0.45, 0.6), 0.83).word == UNDECIDED


def test_counts() -> None:
    assert of_count(245, 245).word == HOLDS
    assert of_count(246, 245).word == REVERSED
    assert of_count(62_378_344, 62e6, tolerance=0.01).word == HOLDS


def test_parts_of_a_claim() -> None:
    def parts(*words: str) -> list[Judgement]:
        return [Judgement(word=word, why="") for word in words]  # type: ignore[arg-type]

    assert of_parts(parts(HOLDS, HOLDS)) == HOLDS
    assert of_parts(parts(HOLDS, REVERSED)) == WEAKER
    assert of_parts(parts(HOLDS, UNDECIDED)) == UNDECIDED
    assert of_parts(parts(HOLDS, NO_LONGER)) == WEAKER
    assert of_parts(parts(WEAKER, REVERSED)) == WEAKER
    assert of_parts(parts(REVERSED, NO_LONGER)) == REVERSED
    assert of_parts(parts(HOLDS, "not testable here")) == HOLDS
    assert of_parts(parts("not testable here")) == "not testable here"
