"""What every rewrite rule promises; a rule's test inherits it and gives models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.execute.accuracy import Tolerance, compare
from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied, refill
from aoe.graph.rewrites.editing import apply_edits, choose_disjoint
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import RewriteMatch, RewriteRefusal, RewriteRule
from aoe.graph.rewrites.registry import RULES
from aoe.ort.sessions import run_session, session_options
from aoe.ort.static_shapes import infer_tensors
from support.contracts.small_models import type_results
from support.reference_faults import misjudged

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]
MakeModel = Callable[[], onnx.ModelProto]
Refused = tuple[MakeModel, str]

SEED = 7
_MOST_ROUNDS = 8
_REFERENCE_TOLERANCE = 1e-4
"""How far ONNX Runtime itself may be from onnx.reference, relative to the largest result."""
_FINITE = (0.0, -0.0, 1e-40, -1e-20, 1.0, -3.0, 3.0, 80.0, -80.0, 1e4)
_ODD = (np.nan, np.inf, -np.inf)
_EACH_MODEL = frozenset({"test_result_is_kept"})
"""Tests that take every model every day; others take the first, and the rest with `-m slow`."""
_IN_TYPES = {
    TensorProto.FLOAT: np.float32,
    TensorProto.INT64: np.int64,
    TensorProto.BOOL: np.bool_,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT32: np.int32,
}


def view(proto: onnx.ModelProto) -> ModelGraph:
    """Return a model as rules see it: prepared, with the shapes ONNX Runtime proves."""
    ready = prepared(proto)
    return ModelGraph(ready, infer_tensors(ready, default_device().open_session), block=0)


def matches_of(graph: ModelGraph, *rules: RewriteRule) -> list[RewriteMatch]:
    """Return the matches of rules, without refusals."""
    found = [finding for rule in rules for finding in rule.find(graph)]
    return [finding for finding in found if isinstance(finding, RewriteMatch)]


def rewritten(proto: onnx.ModelProto, *rules: RewriteRule) -> tuple[onnx.ModelProto, int]:
    """Return a model with every match put in until none is left, and the number of rounds."""
    for number in range(_MOST_ROUNDS + 1):
        graph = view(proto)
        chosen = choose_disjoint(graph, matches_of(graph, *rules))
        if not chosen:
            return proto, number
        proto = apply_edits(graph.proto, [match.edit for match in chosen])
        type_results(proto)
    return proto, _MOST_ROUNDS + 1


def feed_of(proto: onnx.ModelProto, *, seed: int = SEED, special: Sequence[float] = ()) -> Feed:
    """Return normally distributed inputs, with special values strewn in; integers are 0 and 1."""
    rng = np.random.default_rng(seed)
    constants = {tensor.name for tensor in proto.graph.initializer}
    feed = {}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        dtype = _IN_TYPES[tensor.elem_type]
        if np.dtype(dtype).kind == "f":
            array: Array = rng.standard_normal(shape).astype(dtype)
            if special and array.size:
                count = max(1, array.size // 16)
                at = rng.integers(0, array.size, count)
                array.reshape(-1)[at] = rng.choice(np.array(special), count)
        else:
            array = rng.integers(0, 2, shape).astype(dtype)
        feed[value.name] = array
    return feed


def run_model(proto: onnx.ModelProto, feed: Feed, *, optimize: bool) -> list[Array]:
    """Return the results of ONNX Runtime, on 2 threads."""
    options = session_options(threads=2, optimize=optimize)
    session = default_device().open_session(proto.SerializeToString(), options)
    return run_session(session, feed)


def assert_equal(
    expected: Iterable[Array], actual: Iterable[Array], tolerance: float, what: str
) -> None:
    """Fail unless results have the same bits, or are as close as the tolerance says."""
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        assert one.shape == other.shape and one.dtype == other.dtype, f"{what}, result {number}"
        if tolerance == 0 or one.dtype.kind != "f":
            same = (one == other) & (np.signbit(one) == np.signbit(other))
            same |= (one != one) & (other != other)
            assert same.all(), f"{what}, result {number}: {(~same).sum()} elements differ"
            continue
        finite = np.abs(one[np.isfinite(one)])
        absolute = tolerance * float(finite.max(initial=1e-3))
        deviation = compare(one, other, Tolerance(relative=tolerance, absolute=absolute))
        assert deviation.acceptable, f"{what}, result {number}: {deviation.detail}"


def read_elsewhere(proto: onnx.ModelProto, name: str, *, inside_if: bool) -> onnx.ModelProto:
    """Return a model in which a value is a result too, or is read by the branches of an If."""
    model = copied(proto)
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    known = {value.name: value.type.tensor_type for value in inferred.value_info}
    kind = known[name].elem_type if name in known else TensorProto.FLOAT
    if not inside_if:
        model.graph.output.append(helper.make_tensor_value_info(name, kind, None))
        type_results(model)
        return model
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name}_{side}"], f"{side}_{name}")],
            side,
            [],
            [helper.make_tensor_value_info(f"{name}_{side}", kind, None)],
        )
        for side in ("then", "else")
    ]
    model.graph.input.append(helper.make_tensor_value_info("choice", TensorProto.BOOL, []))
    model.graph.node.append(
        helper.make_node(
            *("If", ["choice"], ["chosen"], "If_chosen"),
            then_branch=branches[0],
            else_branch=branches[1],
        )
    )
    model.graph.output.append(helper.make_tensor_value_info("chosen", kind, None))
    type_results(model)
    return model


def float_values(proto: onnx.ModelProto) -> list[str]:
    """Return the results of nodes whose type is a known one, those of the model left out."""
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    outputs = {value.name for value in proto.graph.output}
    return [
        value.name
        for value in inferred.value_info
        if value.name not in outputs and value.type.tensor_type.elem_type in _IN_TYPES
    ]


def surrounded(proto: onnx.ModelProto, draw: Callable[[int], int]) -> onnx.ModelProto:
    """Return a model with element-wise operators in front of its inputs and behind its results.

    Args:
        proto: A model.
        draw: Returns a number below the one it is given.
    """
    model = copied(proto)
    before = ("Identity", "Relu", "Neg", "Tanh")
    nodes = []
    for value in proto.graph.input:
        if value.type.tensor_type.elem_type != TensorProto.FLOAT:
            continue
        outer = f"{value.name}_outer"
        next(v for v in model.graph.input if v.name == value.name).name = outer
        op_type = before[draw(len(before))]
        nodes.append(helper.make_node(op_type, [outer], [value.name], f"before_{value.name}"))
    behind = ("Abs", "Sigmoid", "Relu", "Transpose")
    for value in proto.graph.output:
        if value.type.tensor_type.elem_type != TensorProto.FLOAT:
            continue
        outer = f"{value.name}_outer"
        op_type = behind[draw(len(behind))]
        model.graph.node.append(
            helper.make_node(op_type, [value.name], [outer], f"behind_{value.name}")
        )
        if draw(2):
            kept = next(v for v in model.graph.output if v.name == value.name)
            model.graph.output.remove(kept)
        model.graph.output.append(helper.make_tensor_value_info(outer, TensorProto.FLOAT, None))
    nodes += [copied(node) for node in model.graph.node]
    refill(model.graph.node, nodes)
    type_results(model)
    return model


class RewriteRuleTests:
    """What every rule promises; a subclass names it and gives models."""

    rule_name: ClassVar[str]  # Name in the registry
    matching: ClassVar[Mapping[str, MakeModel]]  # Models it finds something in, by label
    # Models it must leave alone, with words of the reason; empty where nothing looks like a match.
    refused: ClassVar[Mapping[str, Refused]] = {}
    # False where NaN and infinities are not kept, as the rule's `needs` says.
    odd_values: ClassVar[bool] = True

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests that take a model once for each case."""
        if "make_model" in metafunc.fixturenames:
            everyday = len(self.matching) if metafunc.function.__name__ in _EACH_MODEL else 1
            models = [
                pytest.param(make, marks=() if number < everyday else pytest.mark.slow, id=label)
                for number, (label, make) in enumerate(self.matching.items())
            ]
            metafunc.parametrize("make_model", models)
        if "refusal" in metafunc.fixturenames:
            metafunc.parametrize("refusal", list(self.refused.values()), ids=list(self.refused))

    @property
    def rule(self) -> RewriteRule:
        """The rule under test."""
        return RULES[self.rule_name]

    def test_a_match_names_the_nodes_it_removes(self, make_model: MakeModel) -> None:
        graph = view(make_model())
        matches = matches_of(graph, self.rule)
        assert matches
        for match in matches:
            names = {graph.nodes[index].name for index in match.edit.removed}
            assert match.rule == self.rule_name
            assert set(match.nodes) == names

    def test_result_is_kept(self, make_model: MakeModel) -> None:
        original = make_model()
        model, rounds = rewritten(original, self.rule)
        assert rounds > 0
        specials: list[Sequence[float]] = [(), _FINITE]
        if self.odd_values:
            specials.append((*_FINITE, *_ODD))
        for special in specials:
            feed = feed_of(original, special=special)
            for optimize in (False, True):
                expected = run_model(original, feed, optimize=optimize)
                actual = run_model(model, feed, optimize=optimize)
                what = f"optimised {optimize}, special values {special}"
                assert_equal(expected, actual, self.rule.tolerance, what)

    def test_result_is_what_the_standard_says(self, make_model: MakeModel) -> None:
        original = make_model()
        if operator := misjudged(original):
            pytest.skip(f"onnx.reference computes {operator} wrongly")
        feed = feed_of(original, seed=SEED + 1)
        try:
            expected = ReferenceEvaluator(original).run(None, dict(feed))
        except (NotImplementedError, RuntimeError, TypeError, ValueError, KeyError):
            pytest.skip("onnx.reference does not know an operator")
        actual = run_model(rewritten(original, self.rule)[0], feed, optimize=False)
        tolerance = max(self.rule.tolerance, _REFERENCE_TOLERANCE)
        pairs = [np.asarray(one, other.dtype) for one, other in zip(expected, actual, strict=True)]
        assert_equal(pairs, actual, tolerance, "onnx.reference")

    def test_rule_comes_to_rest(self, make_model: MakeModel) -> None:
        assert rewritten(make_model(), self.rule)[1] <= _MOST_ROUNDS

    def test_model_is_left_as_it_is(self, make_model: MakeModel) -> None:
        graph = view(make_model())
        before = graph.proto.SerializeToString(deterministic=True)
        chosen = choose_disjoint(graph, matches_of(graph, self.rule))
        apply_edits(graph.proto, [match.edit for match in chosen])
        assert graph.proto.SerializeToString(deterministic=True) == before

    def test_refusals_say_why(self, refusal: tuple[MakeModel, str]) -> None:
        make, words = refusal
        findings = list(self.rule.find(view(make())))
        assert not [finding for finding in findings if isinstance(finding, RewriteMatch)]
        whys = [finding.why for finding in findings if isinstance(finding, RewriteRefusal)]
        assert all(whys) and all(f.nodes for f in findings)
        assert (not words and not whys) or any(words in why for why in whys), whys

    @pytest.mark.parametrize("inside_if", [False, True], ids=["result", "if"])
    def test_what_others_read_is_kept(self, make_model: MakeModel, inside_if: bool) -> None:
        original = make_model()
        for name in float_values(original)[:10]:
            model = read_elsewhere(original, name, inside_if=inside_if)
            feed = feed_of(model)
            try:
                expected = run_model(model, feed, optimize=False)
            except RunError:
                continue  # ONNX Runtime loses what an If reads behind two Casts
            changed, _ = rewritten(model, self.rule)
            actual = run_model(changed, feed, optimize=False)
            assert_equal(expected, actual, self.rule.tolerance, f"{name} read elsewhere")

    @settings(
        max_examples=8,  # each makes sessions of two models, and there are 28 rules
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(data=st.data())
    def test_result_is_kept_inside_other_graphs(self, data: st.DataObject) -> None:
        label = data.draw(st.sampled_from(sorted(self.matching)))
        model = surrounded(
            self.matching[label](), lambda count: data.draw(st.integers(0, count - 1))
        )
        values, share = float_values(model), data.draw(st.integers(0, 2))
        if values and share:
            name = data.draw(st.sampled_from(values))
            model = read_elsewhere(model, name, inside_if=share == 2)
        feed = feed_of(model, seed=data.draw(st.integers(0, 99)))
        try:
            expected = run_model(model, feed, optimize=False)
        except RunError:
            return  # as above
        changed, _ = rewritten(model, self.rule)
        actual = run_model(changed, feed, optimize=False)
        # what follows may make a small difference a larger share of a smaller result
        assert_equal(expected, actual, 10 * self.rule.tolerance, label)
