"""Search spaces: listing, drawing, neighbours and features."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.schedule import Choice, Configuration, Knob, Space
from aoe.schedule.space import ENUMERATED_MAX, SAMPLED


def make_space(**changes: object) -> Space:
    settings: dict[str, object] = {
        "knobs": (
            Knob("vector", (4, 8, 16)),
            Knob("unroll", (1, 2, 4)),
            Knob("order", ("xy", "yx", "tiled")),
        ),
        "constraint": lambda values: int(values["vector"]) * int(values["unroll"]) <= 32,
        "first_guesses": ({"vector": 16, "unroll": 2, "order": "xy"},),
    }
    return Space(**{**settings, **changes})  # type: ignore[arg-type]


def make_configuration(vector: int = 8, unroll: int = 2, order: str = "xy") -> Configuration:
    return Configuration({"vector": vector, "unroll": unroll, "order": order})


def wide_space(constraint: object = None) -> Space:
    knobs = tuple(Knob(f"k{at}", tuple(range(8))) for at in range(7))
    if constraint is None:
        return Space(knobs=knobs)
    return Space(knobs=knobs, constraint=constraint)  # type: ignore[arg-type]


# Configurations.


def test_configurations_are_equal_whatever_the_order_of_their_knobs() -> None:
    one, other = Configuration({"a": 1, "b": "x"}), Configuration({"b": "x", "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one == {"b": "x", "a": 1}
    assert one != Configuration({"a": 1, "b": "y"})


def test_configuration_is_a_mapping_with_a_short_text() -> None:
    configuration = make_configuration()
    assert dict(configuration) == {"vector": 8, "unroll": 2, "order": "xy"}
    assert str(configuration) == "order=xy unroll=2 vector=8"
    assert str(Configuration({})) == "default"


def test_configuration_does_not_follow_the_mapping_it_was_made_of() -> None:
    values: dict[str, Choice] = {"a": 1}
    configuration = Configuration(values)
    values["a"] = 2
    assert configuration["a"] == 1
    with pytest.raises(TypeError):
        configuration["a"] = 3  # type: ignore[index]


def test_configuration_survives_pickling() -> None:
    configuration = make_configuration()
    again = pickle.loads(pickle.dumps(configuration))
    assert again == configuration
    assert hash(again) == hash(configuration)


def test_changing_a_knob_leaves_the_original_alone() -> None:
    configuration = make_configuration(vector=8)
    assert configuration.changed("vector", 16) == make_configuration(vector=16)
    assert configuration["vector"] == 8


# Knobs.


@pytest.mark.parametrize(
    "choices",
    [(), (1, 1), (2, 1), (1, "x"), ("x", "x"), (True, False), (1.0, 2.0)],
)
def test_a_knob_refuses_choices_that_make_no_sense(choices: tuple[Choice, ...]) -> None:
    with pytest.raises(ValueError, match=r"^k: choices must"):
        Knob("k", choices)


def test_a_knob_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        Knob("", (1,))


# Listing.


def test_lists_every_legal_configuration_once() -> None:
    space = make_space()
    listed = space.configurations()
    assert len(listed) == len(set(listed)) == space.size == 24
    assert space.combinations == 27
    assert space.is_enumerable
    assert all(space.is_legal(configuration) for configuration in listed)


def test_listing_is_done_once() -> None:
    asked = []

    def constraint(values: Mapping[str, Choice]) -> bool:
        asked.append(values)
        return True

    space = make_space(constraint=constraint, first_guesses=())
    assert asked == []
    assert space.configurations() is space.configurations(seed=7)
    assert space.size == 27
    assert len(asked) == 27


def test_a_space_without_knobs_has_one_configuration() -> None:
    assert Space(knobs=()).configurations() == (Configuration({}),)
    assert Space(knobs=()).features([Configuration({})]).shape == (1, 0)


def test_a_space_with_too_many_combinations_is_sampled() -> None:
    space = wide_space()
    assert not space.is_enumerable
    assert space.size == space.combinations == 8**7
    sample = space.configurations(seed=3)
    assert len(set(sample)) == len(sample) == SAMPLED
    assert sample is space.configurations(seed=3)
    assert sample != space.configurations(seed=4)
    assert sample == wide_space().configurations(seed=3)


def test_a_space_with_too_many_legal_configurations_is_sampled() -> None:
    space = Space(knobs=tuple(Knob(f"k{at}", tuple(range(8))) for at in range(5)))
    assert space.combinations == 32_768 > ENUMERATED_MAX
    assert not space.is_enumerable
    assert len(space.configurations()) == SAMPLED


def test_a_large_product_with_few_legal_configurations_is_listed() -> None:
    space = Space(
        knobs=tuple(Knob(f"k{at}", tuple(range(8))) for at in range(6)),
        constraint=lambda values: len(set(values.values())) == 1,
    )
    assert space.is_enumerable
    assert space.size == 8


def test_the_sample_of_a_large_space_starts_with_the_first_guesses() -> None:
    guess = {f"k{at}": 7 for at in range(7)}
    space = Space(knobs=wide_space().knobs, first_guesses=(guess,))
    assert space.configurations(seed=1)[0] == Configuration(guess)


def test_drawing_keeps_to_the_constraint_and_ends() -> None:
    space = make_space()
    drawn = list(space.draw(random.Random(0)))
    assert set(drawn) == set(space.configurations())
    assert len(drawn) == space.size
    assert drawn[0] == Configuration(space.first_guesses[0])


def test_drawing_from_a_large_space_without_anything_legal_ends() -> None:
    assert wide_space(lambda _: False).configurations() == ()


def test_only_whole_choices_of_the_knobs_are_legal() -> None:
    space = make_space()
    assert space.is_legal({"vector": 8, "unroll": 4, "order": "yx"})
    for wrong in (
        {"vector": 8, "unroll": 4},
        {"vector": 8, "unroll": 4, "order": "yx", "more": 1},
        {"vector": 8, "unroll": 4, "odrer": "yx"},
        {"vector": 5, "unroll": 4, "order": "yx"},
        {"vector": 16, "unroll": 4, "order": "yx"},
    ):
        assert not space.is_legal(wrong)  # type: ignore[arg-type]


def test_an_illegal_first_guess_is_refused() -> None:
    with pytest.raises(ValueError, match="first guess is not in the space"):
        make_space(first_guesses=({"vector": 16, "unroll": 4, "order": "xy"},))


def test_a_knob_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names each knob once"):
        Space(knobs=(Knob("a", (1,)), Knob("a", (2,))))


# Neighbours.


def test_neighbours_are_one_place_away_or_any_other_word() -> None:
    near = make_space().neighbours(make_configuration(vector=8, unroll=2, order="xy"))
    assert set(near) == {
        make_configuration(vector=4),
        make_configuration(vector=16),
        make_configuration(unroll=1),
        make_configuration(unroll=4),
        make_configuration(order="yx"),
        make_configuration(order="tiled"),
    }


def test_neighbours_stop_at_the_ends_and_at_the_constraint() -> None:
    near = make_space().neighbours(make_configuration(vector=16, unroll=2))
    assert {(configuration["vector"], configuration["unroll"]) for configuration in near} == {
        (8, 2),
        (16, 1),
        (16, 2),
    }


@given(st.integers(0, 23), st.integers(0, 23))
def test_being_a_neighbour_is_mutual(one: int, other: int) -> None:
    space = make_space()
    first, second = space.configurations()[one], space.configurations()[other]
    assert (second in space.neighbours(first)) == (first in space.neighbours(second))


# Features.


def test_features_are_logarithms_and_one_hot_words() -> None:
    rows = make_space().features(
        [make_configuration(8, 4, "xy"), make_configuration(16, 1, "tiled")]
    )
    np.testing.assert_array_equal(rows, [[3, 2, 1, 0, 0], [4, 0, 0, 0, 1]])
    assert rows.dtype == np.float64


def test_features_of_numbers_that_have_no_logarithm() -> None:
    space = Space(knobs=(Knob("zero", (0, 1, 3)), Knob("sign", (-5, 0, 9)), Knob("one", (7,))))
    low = Configuration({"zero": 0, "sign": -5, "one": 7})
    high = Configuration({"zero": 3, "sign": 9, "one": 7})
    np.testing.assert_array_equal(space.features([low, high]), [[0, 0], [2, 2]])


def test_features_tell_all_configurations_apart() -> None:
    space = make_space()
    rows = space.features(space.configurations())
    assert len(np.unique(rows, axis=0)) == space.size


def test_features_of_nothing_keep_their_width() -> None:
    assert make_space().features([]).shape == (0, 5)
