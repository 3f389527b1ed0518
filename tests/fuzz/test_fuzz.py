"""Damaged and malicious files, and malformed command lines: no traceback, no hang, no silent
difference, and nothing written or imported that was not asked for.

PAC4SAC_FUZZ_CASES is the number of cases of each kind and PAC4SAC_FUZZ_SEED the first; a case is
the same wherever it runs. `make test-fuzz` runs thousands."""

import os
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from material import make_material
from running import Fuzzer, Outcome

CASES = int(os.environ.get("PAC4SAC_FUZZ_CASES", "12"))
BY_HAND = "PAC4SAC_FUZZ_CASES" in os.environ  # with time for more than one case of a kind
FIRST = int(os.environ.get("PAC4SAC_FUZZ_SEED", "0"))


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a pool of threads does not survive the fork of each case
    folder = tmp_path_factory.mktemp("fuzz")
    make_material(folder / "material")
    yield Fuzzer(folder / "material", folder)
    torch.set_num_threads(threads)


def assert_no_problem(run: Callable[[int], Outcome]) -> None:
    outcomes = [run(seed) for seed in range(FIRST, FIRST + CASES)]
    failures = [outcome for outcome in outcomes if outcome.trouble]
    counts = Counter((outcome.kind, outcome.trouble) for outcome in failures)
    print(f"{len(outcomes)} cases from seed {FIRST}, {len(failures)} failures")
    assert not failures, f"{dict(counts)}\n" + "\n\n".join(map(str, failures))


def test_damaged_and_malicious_files_are_reported(fuzzer: Fuzzer):
    assert_no_problem(fuzzer.file_case)


def test_malformed_command_lines_are_reported(fuzzer: Fuzzer):
    assert_no_problem(fuzzer.line_case)


def test_wrong_calls_are_reported(fuzzer: Fuzzer):
    assert_no_problem(fuzzer.call_case)


def test_any_history_ends_like_one_training(fuzzer: Fuzzer):
    assert_no_problem(fuzzer.history_case)
