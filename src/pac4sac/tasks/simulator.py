"""The PyBullet world that the four robots share: loading, resetting, one control interval, being looked at."""

import contextlib
import importlib
import math
import os
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pac4sac.tasks.rendering import Camera, Painter, Window

Vector = NDArray[np.float32]


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """The wheel prints its build date from C when imported; Python's own redirection does not reach that."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


with _silent_stderr():
    pybullet: Any = importlib.import_module("pybullet")
DATA: str = importlib.import_module("pybullet_data").getDataPath()

DT = 0.0165  # seconds of one environment step
GROUND = 0  # body number: the ground is loaded first
SELF_COLLISION = pybullet.URDF_USE_SELF_COLLISION | pybullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS


@dataclass(frozen=True)
class Robot:
    """A robot as robots.toml describes it."""

    model: str
    motors: dict[str, float]  # torque (or force) at action 1 for a power of 1, in the order of the action
    camera: dict[str, float]
    colours: dict[str, Sequence[float]]  # of the parts moved by joints whose names begin so
    joints: Sequence[str]  # the joints that are observed
    start: dict[str, float]  # joint position about which the reset noise lies, in the order it is drawn
    power: float = 1.0
    substeps: int = 4
    has_ground: bool = True
    # Of a robot that can fall:
    alive_bonus: float = 0.0
    fallen_below: float = 0.0
    height_counted_twice: float = 0.0
    empty_entries: int = 0  # observation entries reserved for contact forces, which the original never fills


def described(name: str) -> Robot:
    """Unless it is told otherwise, the joints with motors are observed, and start at 0 with all that is observed."""
    about = tomllib.loads((Path(__file__).parent / "robots.toml").read_text())[name]
    joints = about.get("joints", list(about["motors"]))
    return Robot(**{"joints": joints, "start": dict.fromkeys(joints, 0.0)} | about)


class BulletEnv(gymnasium.Env[Vector, Vector], ABC):
    """The environment of a robot; subclasses read it out (`_first_observation`, `_outcome`).

    The default is the original library's behaviour, with two deviations that make episodes reproducible: contacts are
    processed in a fixed order, and the world is reloaded at every reset. `restore_state` resets the original's way,
    after which an episode can depend on those before it.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": round(1 / DT)}  # noqa: RUF012
    episode_option = True  # reset takes options={"episode": n}, n counted from 0 in the life of an instance

    robot: ClassVar[Robot]
    observation_size: int

    def __init__(self, render_mode: str | None = None, restore_state: bool = False) -> None:
        self.render_mode, self.restore_state = render_mode, restore_state
        self.episode = self._client = self._body = -1
        self.action_space = spaces.Box(-1.0, 1.0, (len(self.robot.motors),), np.float32)
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.observation_size,), np.float32)
        self._saved_state: int | None = None
        self._painter: Painter | None = None
        self._window: Window | None = None
        self._camera = Camera(**self.robot.camera)
        self._gains = [torque * self.robot.power for torque in self.robot.motors.values()]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = int((options or {}).get("episode", self.episode + 1))
        if self._client < 0:
            self._window = Window.open(pybullet, self._camera, DT) if self.render_mode == "human" else None
            self._client = self._window.client if self._window else int(pybullet.connect(pybullet.DIRECT))
        if self._saved_state is None:
            self._load_world()
        else:
            pybullet.restoreState(self._saved_state, physicsClientId=self._client)
        noise = self.np_random.uniform(-0.1, 0.1, size=len(self.robot.start)).tolist()
        for (joint, position), deviation in zip(self.robot.start.items(), noise, strict=True):
            pybullet.resetJointState(self._body, self._index[joint], position + deviation, 0.0, self._client)
        observation = self._first_observation()
        if self.restore_state and self._saved_state is None:
            self._saved_state = pybullet.saveState(physicsClientId=self._client)
        return observation, {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        wanted: list[float] = action.tolist()
        if not math.isfinite(sum(wanted)):
            raise ValueError(f"The action {wanted} is not finite.")
        forces = [
            gain * (-1.0 if a < -1.0 else 1.0 if a > 1.0 else a) for gain, a in zip(self._gains, wanted, strict=True)
        ]
        self._drive(forces)
        pybullet.stepSimulation(self._client)
        observation, reward, terminated, info = self._outcome(wanted)
        if self._window:
            self._window.show(*self._place())
        return observation, reward, terminated, False, info

    def render(self) -> NDArray[np.uint8] | None:
        if self.render_mode != "rgb_array":
            return None  # a window shows every step by itself
        if self._painter is None:
            self._painter = Painter(pybullet, self._camera)
        return self._painter.paint(self._client, *self._place())

    def close(self) -> None:
        if self._client >= 0:
            pybullet.disconnect(physicsClientId=self._client)
            self._client, self._saved_state, self._window = -1, None, None

    @abstractmethod
    def _first_observation(self) -> Vector: ...

    @abstractmethod
    def _outcome(self, action: list[float]) -> tuple[Vector, float, bool, dict[str, Any]]: ...

    def _drive(self, forces: list[float]) -> None:
        pybullet.setJointMotorControlArray(
            self._body, self._driven, pybullet.TORQUE_CONTROL, forces=forces, physicsClientId=self._client
        )

    def _joint_states(self) -> Any:
        return pybullet.getJointStates(self._body, self._observed, self._client)

    def _place(self) -> tuple[float, float]:
        """Where on the floor the robot is, for the camera to follow it."""
        return 0.0, 0.0

    def _load_world(self) -> None:
        client = self._client
        pybullet.resetSimulation(physicsClientId=client)
        pybullet.setGravity(0.0, 0.0, -9.8, physicsClientId=client)
        engine = {"fixedTimeStep": DT, "numSolverIterations": 5, "numSubSteps": self.robot.substeps, "contactERP": 0.9}
        pybullet.setPhysicsEngineParameter(**engine, deterministicOverlappingPairs=1, physicsClientId=client)
        if self.robot.has_ground:
            pybullet.loadSDF(os.path.join(DATA, "plane_stadium.sdf"), physicsClientId=client)
            pybullet.changeDynamics(GROUND, -1, lateralFriction=0.8, restitution=0.5, physicsClientId=client)
        path = os.path.join(DATA, "mjcf", self.robot.model)
        self._body = pybullet.loadMJCF(path, flags=SELF_COLLISION, physicsClientId=client)[-1]
        self._find_joints()
        # Joints come with a velocity motor each, which would act as friction.
        every, gains = range(len(self._joint_info)), [0.1] * len(self._joint_info)
        how = {"positionGains": gains, "velocityGains": gains, "forces": [0.0 for _ in every]}
        pybullet.setJointMotorControlArray(self._body, every, pybullet.POSITION_CONTROL, **how, physicsClientId=client)
        if self.render_mode is not None:
            self._colour_parts()

    def _find_joints(self) -> None:
        count = pybullet.getNumJoints(self._body, physicsClientId=self._client)
        self._joint_info = [pybullet.getJointInfo(self._body, i, physicsClientId=self._client) for i in range(count)]
        self._index = {info[1].decode(): index for index, info in enumerate(self._joint_info)}
        self._driven = [self._index[joint] for joint in self.robot.motors]
        self._observed = [self._index[joint] for joint in self.robot.joints]

    def _colour_parts(self) -> None:
        moved_by = {-1: "base"}
        for link, info in enumerate(self._joint_info):
            name, parent = info[1].decode(), info[16]
            moved_by[link] = moved_by[parent] if name.startswith("jointfix") else name
        for link, name in moved_by.items():
            colour = next(colour for prefix, colour in self.robot.colours.items() if name.startswith(prefix))
            pybullet.changeVisualShape(self._body, link, rgbaColor=(*colour, 1.0), physicsClientId=self._client)
        if self.robot.has_ground and self._window is None:  # the painter has its own floor
            pybullet.changeVisualShape(GROUND, -1, rgbaColor=(1.0, 1.0, 1.0, 0.0), physicsClientId=self._client)
