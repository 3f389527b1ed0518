"""How agents act: warm-up, policy samples, and critic-guided multiple shooting."""

import pytest
import torch
from small_cohorts import (
    CPU,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    random_batch,
    set_head,
    tape_reading,
    train,
)
from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.agents.tape import Tape, read
from pac4sac.tasks import Task
from pac4sac.training.run import make_runs, plan_cohorts


def varied_state(agent: Agent) -> State:
    state = agent.initial_state(range(agent.runs), CPU)
    generator = torch.Generator().manual_seed(2)
    for name in agent.nets:
        state[name] += 0.3 * torch.randn(state[name].shape, generator=generator)
    state["step"].fill_(64)
    return state


def states(agent: Agent, count: int) -> Tensor:
    return torch.randn(agent.runs, count, agent.ds, generator=torch.Generator().manual_seed(3))


def numbers(agent: Agent, count: int, evaluating: bool = False) -> dict[str, Tensor]:
    tape = Tape(range(agent.runs), agent.behaviour_streams(count, evaluating), CPU)
    tape.seek(0)
    return read(tape.blocks, torch.tensor(0))


def candidates(agent: Agent, state: State, s: Tensor, draw: dict[str, Tensor]) -> Tensor:
    mean, std = agent.actor(agent.params(state, "actor"), s)
    return torch.tanh(mean.unsqueeze(1) + std.unsqueeze(1) * draw["candidates"])  # [R, S, B, da]


@pytest.mark.parametrize("critics", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_shooting_takes_the_candidate_with_the_largest_sampled_q(critics: int, count: int) -> None:
    shots = 6
    agent = make_agent("pac4sac", {}, {}, shots=shots, critics=critics, log_variance=0.0)
    state, s, draw = varied_state(agent), states(agent, count), numbers(agent, count)
    a = candidates(agent, state, s, draw)
    q = agent.params(state, "critic")
    chosen_by_mean = []
    for run in range(2):
        for i in range(count):
            sampled, means = [], []
            for shot in range(shots):
                one_s, one_a = s[:, i : i + 1], a[:, shot, i : i + 1]
                m_p, v_p = (x[run, :, 0] for x in agent.critic(q, one_s, one_a))
                sampled.append((m_p + draw["values"][run, shot, :, i] * v_p.sqrt()).min())
                means.append(m_p.min())
            best = int(torch.stack(sampled).argmax())
            chosen_by_mean.append(best == int(torch.stack(means).argmax()))
            assert torch.equal(agent.behaviour(state, s, draw)[run, i], a[run, best, i])
    assert not all(chosen_by_mean)  # the samples decide, not the means


def test_sac_shooting_ranks_candidates_by_the_smaller_critic() -> None:
    agent = make_agent("sac", {}, shots=6)
    state, s, draw = varied_state(agent), states(agent, 1), numbers(agent, 1)
    a = candidates(agent, state, s, draw)
    values = agent.critic(agent.params(state, "critic"), s.expand(-1, 6, -1), a[:, :, 0])[0].amin(1)
    assert torch.equal(agent.behaviour(state, s, draw)[0, 0], a[0, int(values[0].argmax()), 0])


@pytest.mark.parametrize("algo", ["pac4sac", "sac"])
def test_one_shot_is_exactly_a_sample_of_the_policy(algo: str) -> None:
    agent = make_agent(algo, {}, {}, shots=1)
    state, s, draw = varied_state(agent), states(agent, 2), numbers(agent, 2)
    mean, std = agent.actor(agent.params(state, "actor"), s)
    assert torch.equal(
        agent.behaviour(state, s, draw), torch.tanh(mean + std * draw["candidates"][:, 0])
    )
    assert set(draw) == {"candidates"}


def test_candidates_beyond_the_shots_of_a_run_are_never_taken() -> None:
    agent, state = hand_computed_agent("pac4sac", {"shots": 2}, {"shots": 3})
    # Q = −max(a, 0)
    set_head(agent, state, "critic", {"weight": [0.0, -1.0], "variance": [1e-12, 1e-12]})
    draw = {
        "candidates": torch.tensor([[1.0, 2.0, 0.0]] * 2).view(2, 3, 1, 1),
        "values": torch.zeros(2, 3, 1, 1),
    }
    actions = agent.behaviour(state, column(1.0).expand(2, -1, -1), draw).flatten()
    torch.testing.assert_close(actions, torch.tanh(torch.tensor([1.0, 0.0])))


def test_a_run_with_fewer_shots_acts_in_a_cohort_as_it_does_alone() -> None:
    together = train(
        make_learner("pac4sac", {"shots": 5}, {"shots": 3}, seeds=[1, 2], warmup=0), 15
    )
    alone = train(make_learner("pac4sac", {"shots": 3}, seeds=[2], warmup=0), 15)
    assert together.act_tape.blocks["candidates"].shape[2] == 5
    torch.testing.assert_close(together.buffers["replay"][1, :15], alone.buffers["replay"][0, :15])


def test_thompson_shooting_ranks_all_candidates_with_one_sample_of_the_weights() -> None:
    agent = make_agent("pac4sac-thompson", {}, {}, shots=6, log_variance=1.0)
    state, s, draw = varied_state(agent), states(agent, 2), numbers(agent, 2)
    # no axis of candidates, none of states
    assert draw["values"].shape == (2, 1, agent.config.width)
    a, q = candidates(agent, state, s, draw), agent.params(state, "critic")
    mean, log_variance = agent.critic.posterior(q)
    weights = (mean + draw["values"] * (0.5 * log_variance).exp())[:, 0]  # [R, K]
    actions = agent.behaviour(state, s, draw)
    for run in range(2):
        for i in range(2):
            phi = torch.stack(
                [
                    agent.critic.features(q, s[:, i : i + 1], a[:, j, i : i + 1])[run, 0]
                    for j in range(6)
                ]
            )
            assert torch.equal(actions[run, i], a[run, int((phi @ weights[run]).argmax()), i])


def test_the_released_code_uses_shooting_only_in_evaluation() -> None:
    agent = make_agent("pac4sac-repo", {}, shots=4)
    state, s = varied_state(agent), states(agent, 1)
    plain, evaluating = numbers(agent, 1), numbers(agent, 1, evaluating=True)
    assert plain["candidates"].shape[1] == 1
    assert evaluating["candidates"].shape[1] == evaluating["values"].shape[1] == 4
    mean, std = agent.actor(agent.params(state, "actor"), s)
    assert torch.equal(
        agent.behaviour(state, s, plain), torch.tanh(mean + std * plain["candidates"][:, 0])
    )
    found = [
        bool((agent.behaviour(state, s, evaluating)[0, 0] == a).all())
        for a in candidates(agent, state, s, evaluating)[0, :, 0]
    ]
    assert sum(found) == 1


def test_the_target_evaluates_the_policy_without_shooting() -> None:
    few, many = make_agent("pac4sac", shots=1), make_agent("pac4sac", shots=50)
    state, batch, draw = varied_state(few), random_batch(), tape_reading(few, [0])
    assert torch.equal(
        few.bellman_target(state, batch, draw).y, many.bellman_target(state, batch, draw).y
    )


def test_actions_are_uniform_during_the_warm_up_of_each_run() -> None:
    agent = make_agent("sac", {"warmup": 5}, {"warmup": 3})
    state, draw = varied_state(agent), tape_reading(agent, [0, 1])
    s = states(agent, 1)
    for step, warming in (
        (2, [True, True]),
        (3, [True, False]),
        (4, [True, False]),
        (5, [False, False]),
    ):
        state["step"].fill_(step)
        actions, uniform = agent.act(state, s[:, 0], draw), 2 * draw["warmup"] - 1
        assert (actions == uniform).all(-1).tolist() == warming
        policy = agent.behaviour(state, s, draw)[:, 0]
        assert (actions == policy).all(-1).tolist() == [not random for random in warming]


@pytest.mark.parametrize("algo", ["pac4sac", "sac", "oac", "ddpg"])
def test_the_deterministic_policy_is_the_tanh_of_the_actors_mean(algo: str) -> None:
    agent = make_agent(algo)
    state, s = varied_state(agent), states(agent, 4)
    output = agent.actor(agent.params(state, "actor"), s)
    assert torch.equal(
        agent.deterministic_action(state, s), output if algo == "ddpg" else torch.tanh(output[0])
    )


def test_cohorts_are_split_if_shots_differ_more_than_twofold() -> None:
    runs = make_runs(
        Task("pendulum", "Pendulum-v1"),
        "pac4sac",
        "default",
        [0, 1],
        {"shots": [1, 500, 3, 2, 1000, 200], "xi": [0.0, 0.1]},
    )
    cohorts = [{run.config.shots for run in cohort} for cohort in plan_cohorts(runs)]
    assert sorted(map(sorted, cohorts)) == [[1, 2], [3], [200], [500, 1000]]
    assert sum(len(cohort) for cohort in plan_cohorts(runs)) == len(runs) == 24


def test_on_a_gpu_runs_with_any_shots_and_updates_share_a_cohort() -> None:
    settings = {"shots": [1, 500], "updates_per_step": [1, 4]}
    runs = make_runs(Task("pendulum", "Pendulum-v1"), "pac4sac", "default", [0, 1], settings)
    assert [len(cohort) for cohort in plan_cohorts(runs, on_gpu=True)] == [8]
    assert len(plan_cohorts(runs)) == 4
