"""Backends: a faster one is used only after it was seen to agree with eager on the cohort
itself."""

import shutil
import warnings
from collections.abc import Callable

import pytest
import torch
from small_cohorts import (
    CPU,
    assert_compiled_learns_as_eager,
    make_agent,
    make_learner,
    trace_only,
    train,
)

from pac4sac.base.errors import UserError
from pac4sac.training import backends
from pac4sac.training.backends import Rehearsal, choose_backend, disagreement, pick_device, prepare
from pac4sac.training.learner import Learner, Operation, Tensors


def small_learner() -> Learner:
    return make_learner("pac4sac", {"xi": 0.0}, {"shots": 3}, shots=4)


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile needs a C++ compiler"
)


@needs_compiler
@pytest.mark.slow
def test_the_compiled_backend_learns_the_same_as_eager() -> None:
    assert_compiled_learns_as_eager(small_learner(), small_learner())


@pytest.mark.parametrize(
    "algo", ["pac4sac", "oac", "td3", "crossq", "xqc", "flashsac", "pac4sac-explore"]
)
def test_operations_traced_with_gradients_learn_the_same_as_eager(
    monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    trace_only(monkeypatch)
    shots = {} if algo == "td3" else {"shots": 4}
    learner, eager = (
        make_learner(algo, {"gamma": 0.9}, {"tau": 0.1}, depth=1, updates_per_step=1, **shots)
        for _ in range(2)
    )
    assert_compiled_learns_as_eager(learner, eager)


@needs_compiler
def test_compiled_acting_and_storing_agrees_with_eager() -> None:
    """Cheap to compile, unlike an update. With noise that drifts, acting changes the state too."""
    drifting = {"noise_kind": "ornstein-uhlenbeck"}
    learner = make_learner("ddpg", {}, drifting, depth=1, norm=False, activation="relu")
    with Rehearsal(learner) as rehearsal:
        expected = rehearsal.once()
        for name, operation in (("act", learner.act_operation), ("store", learner.store_operation)):
            learner.run[name] = backends.compiled(operation, learner.tensors)
        assert disagreement(rehearsal.start, expected, rehearsal.once()) is None


def wrong(
    damage: Callable[[Tensors], None], where: str
) -> Callable[[Operation, Tensors], Callable[[], None]]:
    """A backend that runs one operation and then does damage to its results."""

    def prepare_wrongly(operation: Operation, tensors: Tensors) -> Callable[[], None]:
        def run() -> None:
            operation(tensors)
            if operation.__name__ == f"{where}_operation":
                damage(tensors)

        return run

    return prepare_wrongly


def refuse(operation: Operation, tensors: Tensors) -> Callable[[], None]:
    raise RuntimeError("no compiler\nand much more about it")


@pytest.mark.parametrize(
    ("backend", "cause"),
    [
        (
            wrong(lambda t: t["critic/first_moment"].mul_(1.01), "update"),
            "critic/first_moment differs",
        ),
        (
            wrong(lambda t: t["actor/second_moment"].zero_(), "update"),
            "actor/second_moment differs",
        ),
        (wrong(lambda t: t["metrics"][0].add_(1), "update"), "metrics differs"),
        (wrong(lambda t: t["update"].add_(1), "update"), "update differs"),
        (wrong(lambda t: t["alive"].logical_not_(), "update"), "alive differs"),
        (wrong(lambda t: t["action"].neg_(), "act"), "of 100% of the runs differs"),
        (wrong(lambda t: t["step"].zero_(), "store"), "step differs"),
        (wrong(lambda t: t["critic"].fill_(torch.nan), "update"), "critic differs"),
        (wrong(lambda t: t["actor"].add_(1e-3), "update"), "actor differs"),
        (wrong(lambda t: t["hyper/lr"].mul_(1.001), "update"), "hyper/lr differs"),
        (wrong(lambda t: t["critic/target"].add_(1e-5), "update"), "critic/target differs"),
        (wrong(lambda t: t["replay"].zero_(), "store"), "replay of 100% of the runs differs"),
        (wrong(lambda t: t["observation"].zero_(), "store"), "observation differs"),
        (refuse, "RuntimeError: no compiler"),
    ],
)
def test_a_backend_with_wrong_results_is_replaced_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
    backend: Callable[[Operation, Tensors], Callable[[], None]],
    cause: str,
) -> None:
    monkeypatch.setitem(backends.PREPARE, "compiled", backend)
    learner, reference = small_learner(), small_learner()
    with pytest.warns(UserWarning, match="^The compiled backend was replaced by eager: ") as caught:
        assert prepare(learner, "compiled") == "eager"
    assert len(caught) == 1
    message = str(caught[0].message)
    assert cause in message
    assert "\n" not in message
    for one in (learner, reference):
        train(one, 10)
    assert all(
        torch.equal(tensor, reference.tensors[name]) for name, tensor in learner.tensors.items()
    )


def test_a_backend_that_agrees_is_kept_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_torchs_advice(operation: Operation, tensors: Tensors) -> Callable[[], None]:
        warnings.warn(
            "TensorFloat32 tensor cores for float32 matrix multiplication available.", stacklevel=1
        )
        return backends.eager(operation, tensors)

    monkeypatch.setitem(backends.PREPARE, "compiled", with_torchs_advice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prepare(small_learner(), "compiled") == "compiled"


def test_a_tie_broken_by_rounding_in_one_rehearsal_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []

    def other_choice_at_first(operation: Operation, tensors: Tensors) -> Callable[[], None]:
        def run() -> None:
            operation(tensors)
            if operation.__name__.startswith("act"):
                seen.append(tensors["observation"].clone())
                if seen[-1].equal(seen[0]):  # there is a tie on these data, and none on others
                    tensors["action"].neg_()

        return run

    monkeypatch.setitem(backends.PREPARE, "compiled", other_choice_at_first)
    assert prepare(small_learner(), "compiled") == "compiled"
    assert len(seen) == 2


def test_kernels_are_not_fused_if_the_compiler_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiler(traced: object, values: object, options: dict[str, bool]) -> Callable[..., None]:
        # for its cache
        asked.append((options, torch._guards.TracingContext.get().fake_mode.shape_env is not None))
        if options.get("join"):
            raise RuntimeError("cannot sort")
        return lambda *values: values[0].add_(1)

    monkeypatch.setattr(torch._inductor, "compile", compiler)
    monkeypatch.setitem(backends.COMPILER_OPTIONS, "cpu", [{"join": True}, {"plain": True}])
    x = torch.zeros(2)
    backends.compiled(lambda t: None, {"x": x})()
    assert asked == [({"join": True}, True), ({"plain": True}, True)]
    assert x.tolist() == [1.0, 1.0]


def test_a_rehearsal_uses_and_restores_only_the_beginning_of_a_long_replay_buffer() -> None:
    agent = make_agent("sac", {"capacity": 50_000, "warmup": 20}, {})
    learner = Learner(agent, [0, 1], 50_000, torch.device("cpu"))
    learner.buffers["replay"].fill_(7.0)
    with Rehearsal(learner) as rehearsal:
        rehearsal.once()
        assert rehearsal.before["replay"].shape[1] < 2000
        assert not (learner.buffers["replay"] == 7.0).all()
    assert (learner.buffers["replay"] == 7.0).all()


@pytest.mark.parametrize("steps", [0, 12])
def test_a_rehearsal_restores_the_learner_exactly(steps: int) -> None:
    learner, reference = train(small_learner(), steps), train(small_learner(), steps)
    before = {name: tensor.clone() for name, tensor in learner.tensors.items()}
    with Rehearsal(learner) as rehearsal:
        after = rehearsal.once()
        rehearsal.seconds(1)
        assert not torch.equal(after["critic"], before["critic"])  # the rehearsal does learn
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.tensors.items())
    assert (learner.step, int(learner.state["update"])) == (steps, steps)
    for one in (learner, reference):  # and what follows is the same
        train(one, 10)
    assert all(
        torch.equal(tensor, reference.tensors[name]) for name, tensor in learner.tensors.items()
    )


def test_every_step_of_a_rehearsal_starts_from_the_same_numbers() -> None:
    with Rehearsal(small_learner()) as rehearsal:
        first, second = rehearsal.once(), rehearsal.once()
        assert disagreement(rehearsal.start, first, second) is None
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_rounding_is_accepted_even_for_the_smallest_steps() -> None:
    with Rehearsal(make_learner("sac", {"tau": 1e-7, "lr": 1e-7}, {})) as rehearsal:
        expected = rehearsal.once()
        rounded = {
            name: t * (1 + 1e-7) if t.is_floating_point() else t for name, t in expected.items()
        }
        assert disagreement(rehearsal.start, expected, rounded) is None


def test_backends_are_chosen_by_device_and_length() -> None:
    cuda = torch.device("cuda")
    assert choose_backend("auto", cuda, 10) == "graph"
    assert choose_backend("auto", CPU, 10) == "eager"
    assert choose_backend("eager", cuda, 10**6) == "eager"
    assert choose_backend("compiled", CPU, 10) == "compiled"


def test_long_cpu_training_is_compiled_if_a_compiler_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for compiler, chosen in (("/usr/bin/g++", "compiled"), (None, "eager")):
        monkeypatch.setattr(shutil, "which", lambda _, compiler=compiler: compiler)
        assert choose_backend("auto", CPU, backends.COMPILING_PAYS) == chosen


def test_updates_of_all_runs_count_towards_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/g++")
    monkeypatch.setattr(backends, "prepare", lambda learner, backend: backend)
    how = {"device": "cpu", "backend": "auto", "threads": 1}
    half = backends.COMPILING_PAYS // 2
    one, two = make_agent("sac", {}), make_agent("sac", {}, {})
    (first,) = one.learning_starts()
    assert backends.make_learner(one, [0], first + half, how)[1]["backend"] == "eager"
    assert backends.make_learner(two, [0, 1], first + half, how)[1]["backend"] == "compiled"
    # the warm-up has none
    assert backends.make_learner(two, [0, 1], first + half - 1, how)[1]["backend"] == "eager"
    assert backends.number_of_updates(two, first - 1) == 0


def test_an_impossible_backend_or_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for call, sentence in [
        (
            lambda: choose_backend("jit", CPU, 1),
            "Unknown backend 'jit'; use eager, compiled, graph or auto.",
        ),
        (
            lambda: choose_backend("graph", CPU, 1),
            "The backend graph needs a CUDA device; use compiled or eager",
        ),
        (lambda: pick_device("gpu0"), "Unknown device 'gpu0'; use cpu, cuda or auto."),
        (lambda: pick_device("mps"), "The device 'mps' is not supported; use cpu, cuda or auto."),
        (lambda: pick_device("cuda"), "No CUDA device is available here; use --device cpu."),
    ]:
        with pytest.raises(UserError) as refusal:
            call()
        assert str(refusal.value).startswith(sentence)
    assert pick_device("auto") == pick_device("cpu") == CPU


def test_a_cuda_device_beyond_those_of_the_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    assert pick_device("auto").type == "cuda"
    with pytest.raises(
        UserError, match=r"Unknown device 'cuda:2': this machine has 2 CUDA device\(s\)\."
    ):
        pick_device("cuda:2")
