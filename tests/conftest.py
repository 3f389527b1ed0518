"""Modules beside the tests, or made by them, are trusted as if each test had named them; tests of
trust have others.

Where PyBullet is not installed, whoever imports it skips the test that runs.
"""

import importlib.util
import sys

import pytest
from hypothesis import settings

from pac4sac.base.trust import allow
from pac4sac.report import figures

settings.register_profile("untimed", deadline=None)  # a busy machine breaks no test
settings.load_profile("untimed")

allow(
    [
        "linear_quadratic",
        "pool_environments",
        "probe_environments",
        "training_agents",
        "training_environments",
    ]
)
allow(
    [
        "my_agent",
        "my_environments",
        "my_world",
        "their_environments",
        "no_such_module",
        "own_environment",
    ]
)
allow(["gymnasium", "math", "pac4sac.agents.base", "pac4sac.agents.sac"])


class NoPyBullet:
    """A finder of modules that is asked for PyBullet where there is none."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pybullet":
            pytest.skip("PyBullet is not installed", allow_module_level=True)


if not importlib.util.find_spec("pybullet"):
    sys.meta_path.append(NoPyBullet)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports whose figures are composed and not drawn, which is most of the time that they
    take."""
    monkeypatch.setattr(figures, "to_svg", lambda figure, name: '<svg viewBox="0 0 1 1"></svg>')
    monkeypatch.setattr(figures, "to_pdf", lambda figure: b"")
