"""The benchmarks run, and count and compare what they say."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pac4sac.agents import ALGORITHMS, get_algorithm, make_config
from pac4sac.training.backends import Rehearsal
from pac4sac.training.learner import Learner

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    known, threads = set(sys.modules), torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    for name in set(sys.modules) - known:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]  # their names are common words


def run(name, out, *arguments):
    importlib.import_module(name).main(
        ["--quick", "--device", "cpu", "--out", str(out), *arguments]
    )
    return json.loads(out.read_bytes())


# A full covariance multiplies matrices that are no network.
@pytest.mark.parametrize("algo", sorted({*ALGORITHMS} - {"pac4sac-full-covariance"}))
def test_the_floor_counts_the_multiplications_of_the_networks(algo):
    floor = importlib.import_module("floor")
    kind = get_algorithm(algo).agent
    preset = "reproduction" if "reproduction" in kind.presets else "default"
    agent = kind([make_config(algo, preset)], 17, 6)
    learner = Learner(agent, [0], 64, torch.device("cpu"))
    with Rehearsal(learner):
        for operation, least in (
            ("act", floor.act_flops(agent)),
            ("update", floor.update_flops(agent)),
        ):
            with FlopCounterMode(display=False) as counter:
                learner.run[operation]()
            done = counter.get_total_flops()
            # The heads of critics, with their single output, may be sums instead of products.
            # CrossQ goes back through the whole of its joint pass, where others take the next state
            # without gradient.
            assert 0.98 * least < done < (1.5 if algo in ("sac-nr", "crossq") else 1.1) * least


def test_algorithms_take_turns_and_ratios_are_computed_within_a_round():
    measuring = importlib.import_module("measuring")
    order = []
    busy = iter([9.0, 1.0, 2.0, 4.0])  # the machine gets slower, for both

    def contender(name, factor):
        def measure():
            order.append(name)
            contender.pace = next(busy) if name == "a" else contender.pace
            return factor * contender.pace

        return measure

    taken = measuring.in_rounds({"a": contender("a", 1.0), "b": contender("b", 3.0)}, rounds=3)
    assert order == ["a", "b"] * 4
    assert taken == {"a": [1.0, 2.0, 4.0], "b": [3.0, 6.0, 12.0]}
    assert measuring.ratio(taken["b"], taken["a"]) == measuring.Spread(3.0, 3.0, 3.0)


def test_the_step_of_every_agent_is_measured_and_the_machine_described(tmp_path):
    content = run(
        "step", tmp_path / "step.json", "--agents", "ddpg,sac", "--runs", "1,2", "--no-libraries"
    )
    rows = content["tables"]["operations"]["rows"]
    assert [(row["agent"], row["runs"]) for row in rows] == [
        ("ddpg", 1),
        ("ddpg", 2),
        ("sac", 1),
        ("sac", 2),
    ]
    assert all(row["× floor"]["median"] > 1 for row in rows)
    assert content["machine"]["cpu"]
    assert content["machine"]["versions"]["torch"]


def test_tasks_and_pool_are_measured(tmp_path):
    content = run("tasks", tmp_path / "tasks.json", "--runs", "2", "--workers", "0,1")
    assert all(row["ratio"]["median"] > 1 for row in content["tables"]["steps"]["rows"])
    assert [row["workers"] for row in content["tables"]["pool"]["rows"]] == [0, 1]


def test_memory_of_a_cohort_is_counted(tmp_path):
    content = run("scaling", tmp_path / "scaling.json", "--sweeps", "memory", "--runs", "1")
    cheetah, humanoid = content["tables"]["memory"]["rows"]
    replay = 25_000 * (2 * 376 + 17 + 2) * 4 / 1e9
    assert replay < humanoid["tensors GB"] < replay + 0.1
    assert cheetah["tensors GB"] < humanoid["tensors GB"]


def test_concurrent_cohorts_are_measured_to_the_end(tmp_path):
    content = run("end_to_end", tmp_path / "end.json", "--cohorts", "2", "--runs", "1")
    table = content["tables"]["half-cheetah, 2 cohort(s)"]
    assert [row["algorithm"] for row in table["rows"]] == ["oac", "pac4sac"]
    for cohort in table["measured"]:
        assert sum(cohort["parts"].values()) == pytest.approx(cohort["lockstep"])
        assert cohort["checkpoint"] > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--split", "3"],
        ["--split", "0"],
        ["--split", "2", "--cohorts", "2"],
        ["--split", "2", "--table-1"],
    ],
)
def test_runs_that_cannot_be_split_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module("end_to_end").main(arguments)
    assert "split" in capsys.readouterr().err.splitlines()[-1]


def test_the_kernels_of_an_update_are_listed_by_time_and_kind(tmp_path):
    content = run("kernels", tmp_path / "kernels.json", "--algo", "ddpg", "--runs", "1,2")
    rows = content["tables"]["kernels, 2 runs"]["rows"]
    times = [row["µs"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert any(row["kind"] == "matrix products" and row["launches"] >= 1 for row in rows)
    summary = content["tables"]["update"]["rows"]
    assert [row["runs"] for row in summary] == [1, 2]
    kinds = ("matrix products", "Adam and Polyak", "copies", "the rest")
    total = sum(summary[1][f"{kind} µs"] for kind in kinds)
    assert total == pytest.approx(sum(times))


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64>", "matrix products"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "matrix products"),
        ("triton_poi_fused_abs_add_addcdiv_bitwise_and_lerp", "Adam and Polyak"),
        ("triton_per_fused_add_bmm_cat_exp_mul", "the rest"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
    ],
)
def test_a_kernel_is_classified_by_its_name(kernel, kind):
    assert importlib.import_module("kernels").kind_of(kernel) == kind


def test_ratios_25_percent_above_the_stored_ratios_fail():
    quick = importlib.import_module("quick")
    spread = importlib.import_module("measuring").Spread
    measured = {name: spread(5.0, 4.0, 6.0) for name in ("same", "slower", "new")}
    rows, slow = quick.rows_of(measured, {"same": 4.01, "slower": 3.99})
    assert slow == ["slower"]
    assert [row["÷ stored"] for row in rows] == pytest.approx([5 / 4.01, 5 / 3.99, None])


def test_bench_quick_stores_ratios_by_machine_and_fails_if_they_grow(tmp_path, capsys):
    quick, stored = importlib.import_module("quick"), tmp_path / "quick.json"
    asked = ["--quick", "--device", "cpu", "--stored", str(stored)]
    assert quick.main(asked) == 0  # nothing is stored yet
    assert "--store" in capsys.readouterr().out
    assert quick.main([*asked, "--store"]) == 0
    ratios = json.loads(stored.read_text())
    assert all(value > 0 for value in next(iter(ratios.values())).values())
    least = {kind: dict.fromkeys(each, 1e-6) for kind, each in ratios.items()}
    stored.write_text(json.dumps(least))
    assert quick.main(asked) == 1


def test_a_short_training_is_timed_from_the_command_to_the_evaluation(tmp_path, monkeypatch):
    short = importlib.import_module("short_trainings")
    monkeypatch.setattr(short, "PEERS", {})
    out = tmp_path / "short.json"
    short.main(["--quick", "--device", "cpu", "--out", str(out)])
    (row,) = json.loads(out.read_bytes())["tables"]["300 steps"]["rows"]
    assert row["library"] == "pac4sac, 1 seed(s)"
    assert row["CPU seconds"]["median"] > 0
    assert -2000 < row["mean return"] < 0  # of Pendulum
    with pytest.raises(SystemExit, match="rounds"):
        short.main(["--steps", "300,400", "--rounds", "1"])


def test_the_break_even_of_compiling_runs(tmp_path):
    (row,) = run("break_even", tmp_path / "out.json")["tables"]["break even"]["rows"]
    assert (row["runs"], row["eager ms"] > 0) == (1, True)


def test_the_calculated_time_of_a_learner_is_compared_with_the_measured_one(tmp_path):
    (row,) = run("predictions", tmp_path / "out.json")["tables"]["predictions"]["rows"]
    assert 0 < row["matrix products ms"] <= row["calculated ms"] <= row["eager ms"]
    assert row["measured ms"] > 0
