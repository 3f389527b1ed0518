import contextlib
import dataclasses
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pool_environments
import pytest
from safetensors.numpy import load, save

from pac4sac.base.errors import UserError
from pac4sac.tasks import Task, get_task, make_env
from pac4sac.tasks import worker as waiting
from pac4sac.tasks.episodes import board_layout, simulator_seed
from pac4sac.tasks.pool import EnvPool, choose_workers, interleaved_pools

SEEDS = [3, 5, 8]
VICTIM = 1
FAULTY = "pool_environments:Faulty-v0"


def faulty(fault: str = "", at: int = 4, marker: object = "", episode: int = 0) -> Task:
    """The fault hits run VICTIM alone."""
    victim = simulator_seed(SEEDS[VICTIM], "train", episode)
    return Task(
        "faulty",
        FAULTY,
        20,
        env_kwargs={"fault": fault, "at": at, "victim": victim, "marker": str(marker)},
    )


def actions_at(step: int, pool: EnvPool) -> np.ndarray:
    """Each run's actions depend on its seed and the step alone."""
    draws = [
        np.random.default_rng([seed, step]).uniform(-1, 1, pool.action_size) for seed in pool.seeds
    ]
    return np.array(draws, np.float32)


def play(pool: EnvPool, steps: range) -> list[list[bytes]]:
    """What each run saw: [step][run]."""
    seen = []
    for step in steps:
        pool.send(actions_at(step, pool))
        transitions = pool.receive()
        seen.append(
            [b"".join(array[run].tobytes() for array in transitions) for run in range(pool.runs)]
        )
    return seen


def record(task: Task, steps: int, workers: int = 0, seeds: list[int] = SEEDS) -> list[list[bytes]]:
    with EnvPool(task, seeds, workers) as pool:
        return [[row.tobytes() for row in pool.reset()], *play(pool, range(steps))]


def without(run: int, seen: list[list[bytes]]) -> list[list[bytes]]:
    return [[row for other, row in enumerate(rows) if other != run] for rows in seen]


def children(parent: int | None = None) -> dict[int, str]:
    """Worker processes of a parent and the state of each (Z: zombie)."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, ppid = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(ppid) == (parent or os.getpid()) and (
                state == "Z" or b"tasks.worker" in (folder / "cmdline").read_bytes()
            ):
                found[int(folder.name)] = state
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def wait_until(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture(autouse=True)
def _no_process_is_left_behind():
    yield
    assert children() == {}


# --- what it hands out


def test_the_pool_matches_stepping_each_environment_separately():
    task = faulty()
    with EnvPool(task, SEEDS) as pool:
        envs = [make_env(task) for _ in SEEDS]
        episodes = [0] * len(SEEDS)
        expected = [
            env.reset(seed=simulator_seed(seed, "train", 0))[0]
            for env, seed in zip(envs, SEEDS, strict=True)
        ]
        np.testing.assert_array_equal(pool.reset(), expected)
        for step in range(60):
            actions = actions_at(step, pool)
            pool.send(actions)
            seen = pool.receive()
            for run, env in enumerate(envs):
                observation, reward, terminated, truncated, _ = env.step(actions[run])
                np.testing.assert_array_equal(seen.final_observation[run], observation)
                assert seen.reward[run] == reward
                assert (seen.terminated[run], seen.truncated[run]) == (terminated, truncated)
                if terminated or truncated:
                    episodes[run] += 1
                    observation, _ = env.reset(
                        seed=simulator_seed(SEEDS[run], "train", episodes[run])
                    )
                np.testing.assert_array_equal(seen.observation[run], observation)
        assert min(episodes) >= 2


@pytest.mark.parametrize("name", ["Pendulum-v1", "cartpole-swingup", "half-cheetah", "humanoid"])
def test_the_number_of_workers_does_not_change_a_result(name):
    task = dataclasses.replace(get_task(name), horizon=15)
    alone = record(task, 40)
    assert alone == record(task, 40, workers=1)
    assert alone == record(task, 40, workers=2)


def test_a_run_gets_the_same_transitions_in_any_pool():
    together = record(faulty(), 50)
    assert [[rows[1]] for rows in together] == record(faulty(), 50, seeds=SEEDS[1:2])


def test_episode_seeds_match_the_published_results():
    assert simulator_seed(0, "train", 0) == 1430681047
    assert simulator_seed(0, "train", 1) == 414688459
    assert simulator_seed(0, "evaluate", 0) == 1954949553
    assert simulator_seed(1, "train", 0) == 698426018


def test_a_reset_may_start_at_a_later_episode():
    with EnvPool(faulty(), SEEDS, purpose="evaluate") as pool:
        env = make_env(faulty())
        np.testing.assert_array_equal(
            pool.reset(7)[2], env.reset(seed=simulator_seed(SEEDS[2], "evaluate", 7))[0]
        )


def play_in_turns(pools: list[EnvPool], steps: int) -> list[list[list[bytes]]]:
    """What the runs of each pool saw, from the reset on; each is sent its actions while the others
    step."""
    seen = [[[row.tobytes() for row in pool.reset()]] for pool in pools]
    for pool in pools:
        pool.send(actions_at(0, pool))
    for step in range(1, steps + 1):
        for number, pool in enumerate(pools):
            transitions = pool.receive()
            seen[number].append(
                [
                    b"".join(array[run].tobytes() for array in transitions)
                    for run in range(pool.runs)
                ]
            )
            if step < steps:
                pool.send(actions_at(step, pool))
    return seen


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_interleaved_pools_get_the_same_transitions_as_separate_pools(workers):
    first, second = interleaved_pools(faulty(), [SEEDS, [13, 21]], workers)
    with first, second:
        assert play_in_turns([first, second], 30) == [
            record(faulty(), 30),
            record(faulty(), 30, seeds=[13, 21]),
        ]
        first.close()
        assert len(play(second, range(30, 40))) == 10  # it outlives the other


def test_a_dead_worker_is_replaced_in_every_pool(tmp_path):
    first, second = interleaved_pools(
        faulty("exit once", marker=tmp_path / "died"), [SEEDS, [13, 21]], 1
    )
    with first, second:
        assert play_in_turns([first, second], 12) == [
            record(faulty(), 12),
            record(faulty(), 12, seeds=[13, 21]),
        ]
        assert not first.failures | second.failures
    assert (tmp_path / "died").exists()


def test_received_arrays_are_kept_during_the_next_step():
    with EnvPool(faulty(), SEEDS, workers=1) as pool:
        pool.reset()
        pool.send(actions_at(0, pool))
        seen = pool.receive()
        before = [array.copy() for array in seen]
        pool.send(actions_at(1, pool))
        time.sleep(0.2)
        assert all(np.array_equal(now, then) for now, then in zip(seen, before, strict=True))
        pool.receive()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_parked_run_is_no_longer_stepped_and_the_others_continue(workers):
    with EnvPool(faulty(), SEEDS, workers) as pool:
        pool.reset()
        seen = play(pool, range(3))
        pool.park(VICTIM)
        seen += play(pool, range(3, 30))
        pool.send(actions_at(30, pool))
        transitions = pool.receive()
        assert not any(array[VICTIM].any() for array in transitions)
        assert pool.failures == {}
    assert without(VICTIM, seen) == without(VICTIM, record(faulty(), 30)[1:])


def test_the_pool_measures_the_time_of_each_worker():
    with EnvPool(faulty(), SEEDS, workers=2) as pool:
        pool.reset()
        assert pool.worked().tolist() == [0, 0]
        started = time.perf_counter()
        play(pool, range(1))
        elapsed = time.perf_counter() - started
        assert all(0 < seconds < elapsed for seconds in pool.worked())


def test_calls_out_of_order_are_refused():
    with EnvPool(faulty(), SEEDS) as pool:
        with pytest.raises(RuntimeError):
            pool.send(np.zeros((3, 2), np.float32))
        pool.reset()
        with pytest.raises(RuntimeError):
            pool.receive()
        with pytest.raises(ValueError, match="shape"):
            pool.send(np.zeros(2, np.float32))


def test_auto_chooses_workers_from_simulator_time_and_overhead():
    assert choose_workers(runs=1, step_seconds=100e-6, cores=16) == 0  # nothing to share out
    assert choose_workers(runs=8, step_seconds=2e-6, cores=16) == 0  # cheaper than waking anyone
    # two runs each; sixteen would be no faster
    assert choose_workers(runs=20, step_seconds=1e-3, cores=16) == 10
    assert choose_workers(runs=20, step_seconds=1e-3, cores=2) == 2
    assert choose_workers(runs=4, step_seconds=1e-3, cores=1) == 0


def test_auto_makes_a_pool_that_works():
    assert record(faulty(), 5, workers="auto") == record(faulty(), 5)


# --- snapshot and restore


@pytest.mark.parametrize(
    ("name", "workers_before", "workers_after"),
    [("faulty", 0, 2), ("half-cheetah", 2, 0), ("ant", 0, 0)],
)
def test_a_restored_pool_continues_exactly(name, workers_before, workers_after):
    task = faulty() if name == "faulty" else dataclasses.replace(get_task(name), horizon=20)
    whole = record(task, 60)[1:]
    with EnvPool(task, SEEDS, workers_before) as pool:
        pool.reset()
        play(pool, range(33))
        stored = save(pool.snapshot())
    with EnvPool(task, SEEDS, workers_after) as pool:
        pool.restore(load(stored))
        assert save(pool.snapshot()) == stored
        assert play(pool, range(33, 60)) == whole[33:]


def test_snapshots_do_not_remember_earlier_episodes_or_restores():
    with EnvPool(faulty(), SEEDS) as pool, EnvPool(faulty(), SEEDS) as resumed:
        pool.reset()
        play(pool, range(25))
        resumed.restore(pool.snapshot())
        for step in range(25, 50):
            play(pool, range(step, step + 1))
            play(resumed, range(step, step + 1))
            assert save(pool.snapshot()) == save(resumed.snapshot())


def test_an_episode_without_end_can_be_restored():
    task = dataclasses.replace(get_task("Pendulum-v1"), horizon=10**6)
    with EnvPool(task, SEEDS) as pool, EnvPool(task, SEEDS) as resumed:
        pool.reset()
        play(pool, range(1100))
        resumed.restore(pool.snapshot())
        assert play(pool, range(1100, 1110)) == play(resumed, range(1100, 1110))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_nondeterministic_environment_is_named_and_continues_from_its_replay(workers):
    with (
        EnvPool(faulty("unseeded"), SEEDS, workers) as pool,
        EnvPool(faulty("unseeded"), SEEDS, workers) as resumed,
    ):
        pool.reset()
        play(pool, range(4))
        snapshot = pool.snapshot()
        with pytest.warns(
            UserWarning,
            match=r"not deterministic given its seed.* Seed 5 continues from that observation",
        ):
            seen = resumed.restore(snapshot)
        differs = (seen != snapshot["observation"]).any(axis=1)
        assert np.flatnonzero(differs).tolist() == [VICTIM]
        assert resumed.failures == {}
        assert without(VICTIM, play(pool, range(4, 9))) == without(
            VICTIM, play(resumed, range(4, 9))
        )


@pytest.mark.parametrize("workers", [0, 2])
def test_parked_and_failed_runs_stay_out_after_a_restore(workers):
    with (
        EnvPool(faulty("raise"), SEEDS, workers) as pool,
        EnvPool(faulty("raise"), SEEDS, workers) as resumed,
    ):
        pool.reset()
        pool.park(2)
        play(pool, range(5))
        resumed.restore(load(save(pool.snapshot())))
        assert resumed.failures == pool.failures != {}
        assert play(pool, range(5, 9)) == play(resumed, range(5, 9))


def test_a_snapshot_of_other_runs_is_refused():
    with EnvPool(faulty(), SEEDS) as pool, EnvPool(faulty(), [3, 5, 9]) as other:
        pool.reset()
        with pytest.raises(UserError, match="seeds"):
            other.restore(pool.snapshot())


# --- faults


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("raise", f"{FAULTY} raised ValueError in step 4 of episode 0: the robot left the world"),
        (
            "raise in reset",
            f"{FAULTY} raised OSError in the reset of episode 0: the licence server is down",
        ),
        (
            "nan observation",
            f"{FAULTY} returned an observation or reward that is not finite in step 4 of "
            "episode 0.",
        ),
        (
            "infinite reward",
            f"{FAULTY} returned an observation or reward that is not finite in step 4 of "
            "episode 0.",
        ),
    ],
)
def test_an_environment_with_an_error_fails_only_its_run(fault, cause, workers):
    with EnvPool(faulty(fault), SEEDS, workers) as pool:
        seen = [[row.tobytes() for row in pool.reset()], *play(pool, range(29))]
        pool.send(actions_at(29, pool))
        transitions = pool.receive()
        assert pool.failures == {VICTIM: cause}
        assert transitions.failed.tolist() == [False, True, False]
        assert not any(array[VICTIM].any() for array in transitions[:-1])
    assert without(VICTIM, seen) == without(VICTIM, record(faulty(), 29))


@pytest.mark.parametrize("moment", ["idle", "in flight"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_worker_is_restarted_and_its_episodes_replayed(workers, moment):
    with EnvPool(faulty(), SEEDS, workers) as pool:
        pool.reset()
        seen = play(pool, range(26))
        worker = min(children())
        if moment == "idle":
            os.kill(worker, signal.SIGKILL)
            seen += play(pool, range(26, 27))
        else:
            os.kill(worker, signal.SIGSTOP)
            pool.send(actions_at(26, pool))
            os.kill(worker, signal.SIGKILL)
            transitions = pool.receive()
            seen.append(
                [
                    b"".join(array[run].tobytes() for array in transitions)
                    for run in range(pool.runs)
                ]
            )
        assert worker not in children()
        seen += play(pool, range(27, 50))
        assert pool.failures == {}
    assert seen == record(faulty(), 50)[1:]


def test_a_death_in_a_later_step_counts_as_a_first_death():
    with EnvPool(faulty(), SEEDS, workers=3) as pool:
        pool.reset()
        seen = []
        for step in range(3):
            # the youngest, which is the one that replaced the last
            os.kill(max(children()), signal.SIGKILL)
            seen += play(pool, range(step, step + 1))
        assert pool.failures == {}
    assert seen == record(faulty(), 3)[1:]


def test_a_worker_that_dies_before_its_first_reset_is_restarted():
    with EnvPool(faulty(), SEEDS, workers=2) as pool:
        for worker in children():
            os.kill(worker, signal.SIGKILL)
        assert [[row.tobytes() for row in pool.reset()], *play(pool, range(5))] == record(
            faulty(), 5
        )


def test_an_environment_that_kills_its_worker_once_loses_no_step(tmp_path):
    task = faulty("exit once", marker=tmp_path / "died")
    seen = record(task, 30, workers=1)
    assert (tmp_path / "died").exists()
    assert seen == record(faulty(), 30)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_environment_that_kills_its_worker_twice_fails_only_its_run(workers):
    with EnvPool(faulty("exit", episode=1), SEEDS, workers) as pool:
        seen = [[row.tobytes() for row in pool.reset()], *play(pool, range(40))]
        assert list(pool.failures) == [VICTIM]
        assert (
            "died twice in the same step, the last time with exit status 3" in pool.failures[VICTIM]
        )
        pool.reset()
        play(pool, range(3))
    assert without(VICTIM, seen) == without(VICTIM, record(faulty(), 40))


def test_a_run_with_a_different_replay_after_a_death_continues_with_a_warning():
    with EnvPool(faulty("unseeded"), SEEDS, workers=1) as pool:
        pool.reset()
        seen = play(pool, range(4))
        for worker in children():
            os.kill(worker, signal.SIGKILL)
        with pytest.warns(
            UserWarning,
            match=r"not deterministic given its seed.* Seed 5 continues from that observation",
        ):
            seen += play(pool, range(4, 30))
        assert pool.failures == {}
    assert without(VICTIM, seen) == without(VICTIM, record(faulty(), 30)[1:])


def test_an_environment_that_workers_cannot_import_is_reported():
    gymnasium.register("OnlyHere-v0", pool_environments.Faulty, max_episode_steps=20)
    try:
        record(get_task("OnlyHere-v0"), 3, workers=0)
        with pytest.raises(
            UserError, match=r"task or environment 'OnlyHere-v0'.*'module:Environment-v0'"
        ):
            record(get_task("OnlyHere-v0"), 3, workers=1)
    finally:
        gymnasium.registry.pop("OnlyHere-v0")


def test_options_that_cannot_be_sent_to_a_worker_are_reported():
    task = Task("faulty", FAULTY, env_kwargs={"marker": object()})
    with pytest.raises(UserError, match="env_kwargs that cannot be stored as JSON"):
        EnvPool(task, SEEDS, workers=1)
    with pytest.raises(UserError, match="seed"):
        EnvPool(faulty(), [])
    with pytest.raises(UserError, match=r"workers must be .*, not -1"):
        EnvPool(faulty(), SEEDS, workers=-1)


# --- nothing is left


def open_descriptors() -> list[str]:
    return sorted(os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists())


@pytest.mark.parametrize("ending", ["closed", "dropped", "refused"])
def test_a_pool_leaves_no_process_memory_or_descriptor(ending):
    gc.collect()
    before = open_descriptors()
    pool = EnvPool(faulty(), SEEDS, workers=2)
    pool.reset()
    assert len(children()) == 2
    if ending == "refused":
        with pytest.raises(ValueError, match="shape"), pool:
            pool.send(np.zeros(1, np.float32))
    elif ending == "closed":
        pool.send(actions_at(0, pool))
        pool.close()
        pool.close()
    del pool
    gc.collect()
    assert open_descriptors() == before
    assert children() == {}
    assert "memfd:pac4sac" not in Path("/proc/self/maps").read_text()


# No guard around the main program, as in a notebook; the thread stands for a learner's.
PROGRAM = """
import signal, threading
import numpy as np
from pac4sac.tasks import Task
from pac4sac.tasks.pool import EnvPool
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
threading.Thread(target=threading.Event().wait, daemon=True).start()
task = Task("faulty", "pool_environments:Faulty-v0", 20, env_kwargs={kwargs})
with EnvPool(task, [3, 5, 8], workers=2) as pool:
    pool.reset()
    print("ready", flush=True)
    while True:
        pool.send(np.zeros((3, 2), np.float32))
        pool.receive()
"""


@contextlib.contextmanager
def running_program(fault: str, marker: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    program = textwrap.dedent(PROGRAM).replace(
        "{kwargs}", repr(faulty(fault, marker=marker).env_kwargs)
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    workers: list[int] = []
    try:
        assert process.stdout.readline() == "ready\n"
        if fault == "hang":
            assert wait_until(marker.exists)
        workers += children(process.pid)
        assert len(workers) == 2
        yield process, workers
    finally:
        process.kill()
        for worker in workers:
            if not is_gone(worker):
                os.kill(worker, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("fault", ["", "hang"])
def test_workers_end_with_a_killed_parent(fault, tmp_path):
    shared_before = sorted(os.listdir("/dev/shm"))
    with running_program(fault, tmp_path / "hanging") as (process, workers):
        process.kill()
        assert wait_until(lambda: all(map(is_gone, workers)), seconds=5)
    assert sorted(os.listdir("/dev/shm")) == shared_before


@pytest.mark.parametrize("fault", ["", "hang"])
def test_workers_end_with_an_interrupted_parent(fault, tmp_path):
    with running_program(fault, tmp_path / "hanging") as (process, workers):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        _, complaint = process.communicate(timeout=20)
        assert process.returncode == -signal.SIGINT
        assert complaint.count("Traceback") == 1, complaint
        assert all(map(is_gone, workers))


def test_workers_do_not_import_torch():
    check = "import sys, pac4sac.tasks.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


@contextlib.contextmanager
def two_ends() -> Iterator[tuple[waiting.Notifier, waiting.Notifier, np.ndarray, socket.socket]]:
    board = np.zeros((), board_layout(3, 2, 1))
    here, there = socket.socketpair()
    with here, there:
        yield (
            waiting.Notifier(here, board, 1, "pool"),
            waiting.Notifier(there, board, 1, "worker"),
            board,
            there,
        )


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_a_notification_arrives_while_sleeping_and_spinning(monkeypatch, patience):
    monkeypatch.setattr(waiting, "spin_seconds", lambda: patience)
    # a sleeper is woken, and does not find out by itself
    monkeypatch.setattr(waiting, "POLL_MS", 60_000)
    with two_ends() as (pool, worker, board, _):
        for count in range(1, 4):
            threading.Timer(0.02, pool.notify).start()
            assert waiting.wait([worker]).is_ready()
            threading.Timer(0.02, worker.notify).start()
            assert waiting.wait([pool]).is_ready()
            assert (board["asked"][1], board["answered"][1]) == (count, count)
        assert board["asked"].tolist() == [0, 3, 0]  # at its place alone
        assert not board["pool_sleeps"].any()
        assert not board["worker_sleeps"].any()


def test_a_waiting_end_spins_before_it_sleeps(monkeypatch):
    monkeypatch.setattr(waiting, "spin_seconds", lambda: 0.2)
    with two_ends() as (pool, worker, board, _):
        board["asked"][1] = 1
        waiter = threading.Thread(target=waiting.wait, args=([pool],))
        waiter.start()
        assert not board["pool_sleeps"][1]
        assert wait_until(lambda: board["pool_sleeps"][1], seconds=5)
        worker.notify()
        waiter.join(5)
        assert not waiter.is_alive()


def test_a_sleeping_end_notices_a_missed_notification(monkeypatch):
    monkeypatch.setattr(waiting, "spin_seconds", lambda: 0.0)
    with two_ends() as (pool, worker, board, _):
        board["asked"][1] = 1
        waiter = threading.Thread(target=waiting.wait, args=([pool],))
        waiter.start()
        assert wait_until(lambda: board["pool_sleeps"][1], seconds=5)
        board["pool_sleeps"][1] = False  # as if the worker had looked a moment earlier
        worker.notify()
        waiter.join(5)
        assert not waiter.is_alive()


@pytest.mark.parametrize("patience", [0.0, 0.01])
def test_an_end_does_not_wait_for_a_dead_process(monkeypatch, patience):
    monkeypatch.setattr(waiting, "spin_seconds", lambda: patience)
    with two_ends() as (pool, worker, _, there):
        pool.notify()
        worker.notify()
        there.close()
        assert waiting.wait([pool]).is_ready()  # this was done before
        pool.notify()
        assert not waiting.wait([pool]).is_ready()


def test_unread_notifications_do_not_block(monkeypatch):
    monkeypatch.setattr(waiting, "spin_seconds", lambda: 0.0)
    with two_ends() as (pool, worker, board, _):
        board["pool_sleeps"][1] = True
        for _ in range(300_000):
            worker.notify()
        assert waiting.wait([pool]).is_ready()


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_sleeping_and_spinning_pools_get_the_same_transitions(monkeypatch, patience):
    # of the pool; workers judge for themselves
    monkeypatch.setattr(waiting, "spin_seconds", lambda: patience)
    task = get_task("cartpole-swingup")
    with EnvPool(task, [1, 2, 3], 2) as pool, EnvPool(task, [1, 2, 3]) as local:
        assert np.array_equal(pool.reset(), local.reset())
        for step in range(20):
            actions = np.full((3, 1), np.sin(step), np.float32)
            pool.send(actions)
            local.send(actions)
            assert np.array_equal(pool.receive().observation, local.receive().observation)


@pytest.mark.parametrize(
    ("cores", "machine", "awake"),
    [(16, "x86_64", True), (4, "AMD64", True), (2, "x86_64", False), (16, "aarch64", False)],
)
def test_workers_spin_only_with_many_cores_and_ordered_writes(monkeypatch, cores, machine, awake):
    monkeypatch.setattr(waiting, "machine_cores", lambda: cores)
    monkeypatch.setattr(waiting.platform, "machine", lambda: machine)
    assert bool(waiting.spin_seconds.__wrapped__()) is awake
