import pytest

from pac4sac import cores


def test_a_share_given_by_the_environment_counts_instead_of_the_machine(monkeypatch):
    monkeypatch.delenv(cores.SHARE, raising=False)
    assert cores.cores() == cores.machine_cores()
    monkeypatch.setenv(cores.SHARE, "3")
    assert cores.cores() == 3


@pytest.mark.parametrize("nonsense", ["", "0", "-2", "many"])
def test_nonsense_is_no_share(monkeypatch, nonsense):
    monkeypatch.setenv(cores.SHARE, nonsense)
    assert cores.cores() == cores.machine_cores()


def test_cohorts_get_cores_by_their_runs(monkeypatch):
    monkeypatch.setenv(cores.SHARE, "16")
    assert cores.share_out(20, 20) == 16  # alone: never more than there are
    assert [cores.share_out(runs, 70) for runs in (25, 15, 10, 5, 5, 5, 5)] == [7, 4, 3, 1, 1, 1, 1]
    assert cores.share_out(1, 1000) == 1
