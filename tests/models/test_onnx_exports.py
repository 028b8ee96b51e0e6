"""Models as skl2onnx, PyTorch, Keras and others export them: the same ends of the graph, around weights of our own."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from hinge import Device, Gate, OnnxModel
from hinge.errors import InvalidModel
from hinge.models import Classifier
from hinge.remotes import Deadline
from hinge.remotes.adapters import FunctionRemote
from hinge.tasks import Classification, Regression
from tests.models.exports import (
    CLASSES,
    FEATURES,
    FLOAT,
    INT64,
    PROBABILITIES,
    RANDOM,
    SAMPLES,
    SCORES,
    STRING,
    WEIGHTS,
    gemm,
    linear_classifier,
    save,
)
from tests.server.models import tensor


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize(
    ("classes", "names"),
    [({"classlabels_ints": [0, 1, 2]}, [0, 1, 2]), ({"classlabels_ints": [5, 7, 9]}, [5, 7, 9]),
     ({"classlabels_strings": ["a", "b", "c"]}, ["a", "b", "c"])],
)  # fmt: skip  # several to a line
def test_skl2onnx_answers_with_the_labels_of_the_model(
    tmp_path: Path, zipmap: bool, classes: dict[str, Any], names: list[Any]
) -> None:
    model = linear_classifier(tmp_path / "m.onnx", zipmap, classes)
    np.testing.assert_allclose(model.many(SAMPLES), PROBABILITIES, atol=1e-6)
    np.testing.assert_allclose(model(SAMPLES[0]), PROBABILITIES[0], atol=1e-6)
    best = PROBABILITIES.argmax(axis=1)
    answers = Classifier(model).answer_many(SAMPLES)
    assert [label for label, _ in answers] == [names[k] for k in best]
    np.testing.assert_allclose([confidence for _, confidence in answers], PROBABILITIES.max(axis=1), atol=1e-5)
    assert Classifier(model).answer(SAMPLES[1])[0] == answers[1][0]
    assert Classifier(model).answer(SAMPLES[1])[1] == pytest.approx(answers[1][1], abs=1e-6)
    assert Classifier(model, labels=["x", "y", "z"]).answer(SAMPLES[1])[0] == "xyz"[best[1]]
    assert FunctionRemote(model).ask(SAMPLES[:5], Deadline.after(60)).labels == [names[k] for k in best[:5]]


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize(
    ("classes", "names"),
    [({"classlabels_ints": [-1, 0, 300]}, [-1, 0, 300]), ({"classlabels_strings": ["a", "b", "ç"]}, ["a", "b", "ç"])],
)
def test_the_classes_of_a_model_are_read_from_its_file(
    tmp_path: Path, zipmap: bool, classes: dict[str, Any], names: list[Any]
) -> None:
    assert linear_classifier(tmp_path / "m.onnx", zipmap, classes).classes == names


@pytest.mark.parametrize(
    "labels",
    [
        helper.make_tensor("classes", TensorProto.INT32, [CLASSES], [-5, 7, 9]),
        numpy_helper.from_array(np.array([-5, 7, 9]), "classes"),
        helper.make_tensor("classes", TensorProto.STRING, [CLASSES], [b"a", b"b", b"c"]),
    ],
    ids=["32 bits", "64 bits, raw", "texts"],
)
def test_classes_that_a_label_is_picked_from_are_read_too(tmp_path: Path, labels: Any) -> None:
    """As skl2onnx writes networks and Bayes: the place of the largest score picks from a tensor, then casts."""
    node, weights = gemm()
    kind = STRING if labels.data_type == STRING else INT64
    cast = helper.make_node("Cast", ["reshaped"], ["label"], to=INT64)
    nodes = [
        node,
        helper.make_node("ArgMax", ["scores"], ["place"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["classes", "place"], ["picked"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["picked", "flat"], ["reshaped"]),
        cast if kind == INT64 else helper.make_node("Identity", ["reshaped"], ["label"]),
    ]
    flat = numpy_helper.from_array(np.array([-1], np.int64), "flat")
    ends = [tensor("label", kind, None), tensor("scores", FLOAT, None, CLASSES)]
    model = save(tmp_path / "m.onnx", nodes, ends, weights, labels, flat)
    assert model.classes is not None
    best = SCORES.argmax(axis=1)
    assert [label for label, _ in Classifier(model).answer_many(SAMPLES)] == [model.classes[k] for k in best]


def test_classes_that_the_file_does_not_tell_are_not_known(tmp_path: Path) -> None:
    node, weights = gemm()
    top = helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0)
    scores = tensor("scores", FLOAT, None, CLASSES)
    assert save(tmp_path / "m.onnx", [node], [scores], weights).classes is None
    assert save(tmp_path / "m.onnx", [node, top], [tensor("label", INT64, None), scores], weights).classes is None


@pytest.mark.parametrize("zipmap", [True, False])
def test_no_samples_have_no_answers(tmp_path: Path, zipmap: bool) -> None:
    model = linear_classifier(tmp_path / "m.onnx", zipmap, {"classlabels_ints": [5, 7, 9]})
    settings: list[dict[str, Any]] = [{}, {"task": Classification([*"abc"])}, {"task": Regression(1.0)}]
    for setting in settings:
        with Device(model, lambda _: 5, Gate(offload_cost=0.5), **setting) as device:
            assert device.infer_many([]) == device.infer_many(SAMPLES[:0]) == []


def test_a_forest_answers_by_its_votes(tmp_path: Path) -> None:
    """One tree of one node, as skl2onnx has them: class 0 up to 0.5 in the first feature, beyond it 1 or 2."""
    tree = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "nodes_hitrates": [1.0] * 3,
        "nodes_missing_value_tracks_true": [0] * 3, "class_treeids": [0, 0, 0], "class_nodeids": [1, 2, 2],
        "class_ids": [0, 1, 2], "class_weights": [1.0, 0.75, 0.25], "classlabels_int64s": [0, 1, 2],
        "post_transform": "NONE",
    }  # fmt: skip  # several to a line
    node = helper.make_node("TreeEnsembleClassifier", ["X"], ["label", "probabilities"], domain="ai.onnx.ml", **tree)
    model = save(
        tmp_path / "m.onnx", [node], [tensor("label", INT64, None), tensor("probabilities", FLOAT, None, CLASSES)]
    )
    classifier = Classifier(model)
    for value, label, confidence in ((0.0, 0, 1.0), (1.0, 1, 0.75), (0.0, 0, 1.0)):
        answer = classifier.answer([value] * FEATURES)
        assert answer[0] == label
        assert answer[1] == pytest.approx(confidence, abs=1e-6)


def test_a_softmax_is_noticed_said_once_and_not_taken_again(tmp_path: Path, caplog: Any) -> None:
    node, weights = gemm()
    soft = save(
        tmp_path / "m.onnx",
        [node, helper.make_node("Softmax", ["scores"], ["p"])],
        [tensor("p", FLOAT, None, CLASSES)],
        weights,
    )
    with (
        caplog.at_level(logging.WARNING, "hinge"),
        Device(soft, lambda _: 0, Gate(offload_cost=0.5), shadow="local") as device,
    ):
        confidences = [device.infer(sample).confidence for sample in SAMPLES]
    np.testing.assert_allclose(confidences, PROBABILITIES.max(axis=1), atol=1e-5)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "its outputs are probabilities, so that no softmax is taken of them"
    ]


@pytest.mark.parametrize("shape", [(None, CLASSES), (None, 1, CLASSES), (None, CLASSES, 1, 1)])
def test_axes_of_size_one_are_no_classes(tmp_path: Path, shape: tuple[int | None, ...]) -> None:
    node, weights = gemm()
    target = numpy_helper.from_array(np.array([0 if size is None else size for size in shape], np.int64), "target")
    end = helper.make_node("Reshape", ["scores", "target"], ["y"])
    model = save(tmp_path / "m.onnx", [node, end], [tensor("y", FLOAT, *shape)], weights, target)
    np.testing.assert_allclose(model.many(SAMPLES), SCORES, atol=1e-5)
    np.testing.assert_allclose(model(SAMPLES[0]), SCORES[0], atol=1e-5)


@pytest.mark.parametrize("flat", [True, False])
def test_one_sigmoid_is_a_classifier_of_two_classes(tmp_path: Path, flat: bool) -> None:
    node, weights = gemm(WEIGHTS[:1])
    nodes, shape = [node, helper.make_node("Sigmoid", ["scores"], ["p"])], (None, 1)
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    if flat:
        nodes.append(helper.make_node("Squeeze", ["p", "axes"], ["flat"]))
    outputs = [tensor("flat", FLOAT, None) if flat else tensor("p", FLOAT, *shape)]
    model = save(tmp_path / "m.onnx", nodes, outputs, weights, axes)
    second = 1 / (1 + np.exp(-SCORES[:, 0]))
    np.testing.assert_allclose(model.many(SAMPLES), np.column_stack([1 - second, second]), atol=1e-6)
    label, confidence = Classifier(model).answer(SAMPLES[0])
    assert label == int(second[0] > 0.5)
    assert confidence == pytest.approx(max(second[0], 1 - second[0]), abs=1e-6)


def test_what_is_no_classifier_is_named_with_what_to_do(tmp_path: Path) -> None:
    node, weights = gemm(WEIGHTS[:1])
    regression = save(tmp_path / "m.onnx", [node], [tensor("scores", FLOAT, None, 1)], weights)
    with pytest.raises(InvalidModel, match=r"m\.onnx: one number .* from 0 to 1, got .*a regression has no classes"):
        regression(SAMPLES[0] * 100)
    target = numpy_helper.from_array(np.array([0, 2, 4], np.int64), "target")
    node, weights = gemm(RANDOM.normal(size=(8, FEATURES)))
    boxes = save(
        tmp_path / "m.onnx", [node, helper.make_node("Reshape", ["scores", "target"], ["boxes"])],
        [tensor("boxes", FLOAT, None, 2, 4)], weights, target,
    )  # fmt: skip  # several to a line
    with pytest.raises(InvalidModel, match=r"shape \[1, 2, 4\] are not a score for each class: choose another output"):
        boxes(SAMPLES[0])
    node, weights = gemm()
    top = helper.make_node("ArgMax", ["scores"], ["top"], axis=1, keepdims=0)
    with pytest.raises(InvalidModel, match="must give scores, and this one gives none, but 'top'"):
        save(tmp_path / "m.onnx", [node, top], [tensor("top", INT64, None)], weights)
    sequence = helper.make_node("SplitToSequence", ["scores"], ["parts"], axis=1)
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [None, 1]))
    with pytest.raises(InvalidModel, match="must give scores, and this one gives none, but 'parts'"):
        save(tmp_path / "m.onnx", [node, sequence], [helper.make_value_info("parts", kind)], weights)


def test_scores_beside_a_label_are_found_and_may_be_named(tmp_path: Path) -> None:
    node, weights = gemm()
    top = helper.make_node("ArgMax", ["scores"], ["top"], axis=1, keepdims=0)
    twice = helper.make_node("Add", ["scores", "scores"], ["double"])
    ends = [tensor("top", INT64, None), tensor("double", FLOAT, None, CLASSES), tensor("scores", FLOAT, None, CLASSES)]
    model = save(tmp_path / "m.onnx", [node, top, twice], ends, weights)
    np.testing.assert_allclose(model(SAMPLES[0]), 2 * SCORES[0], rtol=1e-5)
    np.testing.assert_allclose(OnnxModel(model.path, output="scores")(SAMPLES[0]), SCORES[0], rtol=1e-5)
    with pytest.raises(InvalidModel, match="has no output 'logits'; it has 'top', 'double', 'scores'"):
        OnnxModel(model.path, output="logits")
    with pytest.raises(InvalidModel, match="must give scores, and this one gives none, but 'top'"):
        OnnxModel(model.path, output="top")


def columns(path: Path, first: int = 0, **ends: Any) -> Path:
    """The graph that skl2onnx makes with zipmap='columns': a label, and an output for each class from the first on."""
    kind = STRING if "classlabels_strings" in ends else INT64
    scorer = helper.make_node(
        "LinearClassifier", ["X"], ["label", "p"], domain="ai.onnx.ml", post_transform="SOFTMAX", multi_class=0,
        coefficients=WEIGHTS.ravel().tolist(), intercepts=[0.0] * CLASSES, **ends,
    )  # fmt: skip  # several to a line
    split = helper.make_node("Split", ["p"], [f"column{k}" for k in range(CLASSES)], axis=1, num_outputs=CLASSES)
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    flat = [helper.make_node("Squeeze", [f"column{k}", "axes"], [f"i{k}"]) for k in range(first, CLASSES)]
    outputs = [tensor("label", kind, None), *(tensor(f"i{k}", FLOAT, None) for k in range(first, CLASSES))]
    graph = helper.make_graph([scorer, split, *flat], "g", [tensor("X", FLOAT, None, FEATURES)], outputs, [axes])
    opset = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    return path


def test_an_output_for_each_class_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = columns(tmp_path / "m.onnx", classlabels_ints=[0, 1, 2])
    refused = r"scores are in 3 outputs of one number for a sample, 'i0', 'i1', 'i2': export it with zipmap=False"
    with pytest.raises(InvalidModel, match=refused):
        OnnxModel(path)
    assert OnnxModel(path, output="i1")(SAMPLES[0])[1] == pytest.approx(PROBABILITIES[0, 1], abs=1e-6)


@pytest.mark.parametrize(
    ("classes", "found"),
    [({"classlabels_ints": [0, 1, 2]}, "label 2"), ({"classlabels_strings": [*"abc"]}, "labels 'a', 'b', 'c'")],
)
def test_more_than_two_labels_beside_one_probability_are_refused(
    tmp_path: Path, classes: dict[str, Any], found: str
) -> None:
    model = OnnxModel(columns(tmp_path / "m.onnx", CLASSES - 1, **classes))  # the last class alone
    two = Classifier(model).answer_many(SAMPLES[PROBABILITIES.argmax(axis=1) < 2])
    names = next(iter(classes.values()))
    assert {label for label, _ in two} == set(names[:2])
    with pytest.raises(InvalidModel, match=rf"m\.onnx: one number .* of two classes, and there is {found}: name the"):
        Classifier(model).answer_many(SAMPLES)
