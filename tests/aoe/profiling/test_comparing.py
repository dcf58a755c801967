"""Two profiles: what is compared with what, though cut in another way."""

from __future__ import annotations

from dataclasses import replace

from support.engine.profiles import make_operator_profile, make_profile

from aoe.profiling.comparing import compare_profiles
from aoe.profiling.figures import OperatorProfile


def _operator(name: str, median_us: float, **nodes: str) -> OperatorProfile:
    return make_operator_profile(
        name, median_us=median_us, op_names=tuple(nodes), op_types=tuple(nodes.values())
    )


def test_operators_that_compute_the_same_nodes_are_compared() -> None:
    before = make_profile(_operator("c_nchwc", 100.0, conv="Conv", relu="Relu"))
    after = make_profile(_operator("kernel", 50.0, conv="Conv", relu="Relu"))
    (compared,) = compare_profiles(before, after).operators
    assert (compared.op_names, compared.kind) == (("conv", "relu"), "Conv + Relu")
    assert (compared.before_us, compared.after_us, compared.speedup) == (100.0, 50.0, 2.0)


def test_what_is_cut_in_another_way_is_compared_as_a_whole() -> None:
    before = make_profile(
        _operator("a", 60.0, conv="Conv", relu="Relu"),
        _operator("b", 30.0, exp="Exp"),
        _operator("c", 10.0, neg="Neg"),
    )
    after = make_profile(
        _operator("k", 20.0, relu="Relu", exp="Exp"),
        _operator("l", 40.0, conv="Conv"),
        _operator("m", 10.0, neg="Neg"),
    )
    whole, alone = compare_profiles(before, after).operators
    assert set(whole.op_names) == {"conv", "relu", "exp"}
    assert (whole.before_us, whole.after_us) == (90.0, 60.0)
    assert (alone.op_names, alone.speedup) == (("neg",), 1.0)


def test_reorders_are_compared_by_their_own_names() -> None:
    reorder = make_operator_profile("r1", op_type="ReorderOutput", op_names=(), median_us=8.0)
    same = make_profile(reorder)
    (kept,) = compare_profiles(same, same).operators
    assert (kept.op_names, kept.kind, kept.speedup) == (("r1",), "ReorderOutput", 1.0)
    (gone,) = compare_profiles(same, make_profile()).operators
    assert (gone.saved_us, gone.speedup) == (8.0, None)


def test_node_of_the_user_s_is_not_taken_for_a_reorder_of_its_name() -> None:
    reorder = make_operator_profile("conv", op_type="ReorderOutput", op_names=())
    compared = compare_profiles(make_profile(reorder), make_profile(_operator("x", 1.0, conv="C")))
    assert len(compared.operators) == 2


def test_what_has_changed_most_comes_first_faster_or_slower() -> None:
    before = make_profile(_operator("a", 10.0, a="A"), _operator("b", 10.0, b="B"))
    after = make_profile(_operator("a", 9.0, a="A"), _operator("b", 30.0, b="B"))
    compared = compare_profiles(before, after)
    assert [one.op_names for one in compared.operators] == [("b",), ("a",)]
    assert compared.operators[0].saved_us == -20.0


def test_kinds_sum_up_their_places() -> None:
    before = make_profile(
        _operator("a", 10.0, a="Conv"), _operator("b", 30.0, b="Conv"), _operator("c", 5.0, c="Exp")
    )
    after = make_profile(
        _operator("a", 10.0, a="Conv"), _operator("b", 10.0, b="Conv"), _operator("c", 5.0, c="Exp")
    )
    first, second = compare_profiles(before, after).kinds()
    assert (first.kind, first.places, first.speedup) == ("Conv", 2, 2.0)
    assert (second.kind, second.speedup) == ("Exp", 1.0)


def test_speedup_of_the_model_is_of_whole_runs() -> None:
    before = make_profile(_operator("a", 90.0, a="A"))
    after = make_profile(_operator("a", 40.0, a="A"))
    assert compare_profiles(before, after).speedup == 2.0


def test_what_speaks_against_comparing_is_told() -> None:
    before = make_profile(_operator("a", 1.0, a="A"))
    after = make_profile(_operator("b", 1.0, b="B"))
    assert compare_profiles(before, before).caveats == ()
    told = compare_profiles(
        before, replace(after, cpu_model="Other", threads=1, versions={"onnxruntime": "1.0"})
    ).caveats
    assert len(told) == 4
    assert told[0] == "measured with different CPUs: Test CPU and Other"
    assert told[-1] == "no node of one model is in the other"
