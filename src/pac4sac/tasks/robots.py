"""The four robots of the paper and their common PyBullet world: loading, resetting, one control
interval, and rendering. They reproduce the unusual behaviour of the original library, which
docs/tasks.md describes."""

import contextlib
import importlib
import math
import os
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from pac4sac.base.errors import how_to_install
from pac4sac.tasks.rendering import Camera, Painter, Window

Vector = NDArray[np.float32]


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence the output of PyBullet's C code on import, which Python cannot redirect."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


try:
    with _silent_stderr():
        pybullet: Any = importlib.import_module("pybullet")
except ModuleNotFoundError as missing:
    where = "there are wheels for Python 3.11; later versions build it with a C++ compiler"
    raise DependencyNotInstalled(f"pybullet; {how_to_install('bullet')} ({where}).") from missing
DATA: str = importlib.import_module("pybullet_data").getDataPath()

DT = 0.0165  # seconds of one environment step
GROUND = 0  # body number; the ground is loaded first
SELF_COLLISION = (
    pybullet.URDF_USE_SELF_COLLISION | pybullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS
)


def described(name: str) -> SimpleNamespace:
    """Return the description of a robot in robots.toml.

    By default, the joints with motors are observed, and all observed joints start at 0.
    """
    about = tomllib.loads((Path(__file__).parent / "robots.toml").read_text())[name]
    joints = about.get("joints", list(about["motors"]))
    return SimpleNamespace(**{"joints": joints, "start": dict.fromkeys(joints, 0.0)} | about)


class BulletEnv(gymnasium.Env[Vector, Vector], ABC):
    """Simulate a robot; subclasses define observations and rewards (`_first_observation`,
    `_outcome`).

    The default is the behaviour of the original library, with two changes that make episodes
        reproducible: contacts are processed in a fixed order, and every reset reloads the world.
            With `restore_state`, a reset works as in the original, and an episode can depend on
            earlier episodes.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": round(1 / DT)}  # noqa: RUF012
    episode_option = True  # reset accepts options={"episode": n}, counted from 0 for each instance

    robot: ClassVar[SimpleNamespace]
    observation_size: int
    dt: ClassVar[float] = DT

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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = int((options or {}).get("episode", self.episode + 1))
        if self._client < 0:
            self._window = (
                Window.open(pybullet, self._camera, DT) if self.render_mode == "human" else None
            )
            self._client = (
                self._window.client if self._window else int(pybullet.connect(pybullet.DIRECT))
            )
        if self._saved_state is None:
            self._load_world()
        else:
            pybullet.restoreState(self._saved_state, physicsClientId=self._client)
        noise = self.np_random.uniform(-0.1, 0.1, size=len(self.robot.start)).tolist()
        for (joint, position), deviation in zip(self.robot.start.items(), noise, strict=True):
            pybullet.resetJointState(
                self._body, self._index[joint], position + deviation, 0.0, self._client
            )
        observation = self._first_observation()
        if self.restore_state and self._saved_state is None:
            self._saved_state = pybullet.saveState(physicsClientId=self._client)
        return observation, {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        wanted: list[float] = action.tolist()
        if not math.isfinite(sum(wanted)):
            raise ValueError(f"The action {wanted} is not finite.")
        forces = [
            gain * (-1.0 if a < -1.0 else 1.0 if a > 1.0 else a)
            for gain, a in zip(self._gains, wanted, strict=True)
        ]
        self._drive(forces)
        pybullet.stepSimulation(self._client)
        observation, reward, terminated, info = self._outcome(wanted)
        if self._window:
            self._window.show(*self.position())
        return observation, reward, terminated, False, info

    def render(self) -> NDArray[np.uint8] | None:
        if self.render_mode != "rgb_array":
            return None  # a window shows every step anyway
        if self._painter is None:
            self._painter = Painter(pybullet, self._camera)
        return self._painter.paint(self._client, *self.position())

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
            self._body,
            self._driven,
            pybullet.TORQUE_CONTROL,
            forces=forces,
            physicsClientId=self._client,
        )

    def _joint_states(self) -> Any:
        return pybullet.getJointStates(self._body, self._observed, self._client)

    def position(self) -> tuple[float, float]:
        """Return the robot's position on the floor, which the camera follows."""
        return 0.0, 0.0

    def _load_world(self) -> None:
        client = self._client
        pybullet.resetSimulation(physicsClientId=client)
        pybullet.setGravity(0.0, 0.0, -9.8, physicsClientId=client)
        engine = {
            "fixedTimeStep": DT,
            "numSolverIterations": 5,
            "numSubSteps": self.robot.substeps,
            "contactERP": 0.9,
        }
        pybullet.setPhysicsEngineParameter(
            **engine, deterministicOverlappingPairs=1, physicsClientId=client
        )
        if self.robot.has_ground:
            pybullet.loadSDF(os.path.join(DATA, "plane_stadium.sdf"), physicsClientId=client)
            pybullet.changeDynamics(
                GROUND, -1, lateralFriction=0.8, restitution=0.5, physicsClientId=client
            )
        path = os.path.join(DATA, "mjcf", self.robot.model)
        self._body = pybullet.loadMJCF(path, flags=SELF_COLLISION, physicsClientId=client)[-1]
        self._find_joints()
        # Every joint has a velocity motor by default, which would act as friction.
        every, gains = range(len(self._joint_info)), [0.1] * len(self._joint_info)
        how = {"positionGains": gains, "velocityGains": gains, "forces": [0.0 for _ in every]}
        pybullet.setJointMotorControlArray(
            self._body, every, pybullet.POSITION_CONTROL, **how, physicsClientId=client
        )
        if self.render_mode is not None:
            self._colour_parts()

    def _find_joints(self) -> None:
        count = pybullet.getNumJoints(self._body, physicsClientId=self._client)
        self._joint_info = [
            pybullet.getJointInfo(self._body, i, physicsClientId=self._client) for i in range(count)
        ]
        self._index = {info[1].decode(): index for index, info in enumerate(self._joint_info)}
        self._driven = [self._index[joint] for joint in self.robot.motors]
        self._observed = [self._index[joint] for joint in self.robot.joints]

    def _colour_parts(self) -> None:
        moved_by = {-1: "base"}
        for link, info in enumerate(self._joint_info):
            name, parent = info[1].decode(), info[16]
            moved_by[link] = moved_by[parent] if name.startswith("jointfix") else name
        for link, name in moved_by.items():
            colour = next(
                colour for prefix, colour in self.robot.colours.items() if name.startswith(prefix)
            )
            pybullet.changeVisualShape(
                self._body, link, rgbaColor=(*colour, 1.0), physicsClientId=self._client
            )
        if self.robot.has_ground and self._window is None:  # the painter draws its own floor
            pybullet.changeVisualShape(
                GROUND, -1, rgbaColor=(1.0, 1.0, 1.0, 0.0), physicsClientId=self._client
            )


class CartpoleSwingup(BulletEnv):
    robot, observation_size = described("CartpoleSwingup"), 5

    def _first_observation(self) -> Vector:
        return self._outcome([])[0]

    def _outcome(self, action: list[float]) -> tuple[Vector, float, bool, dict[str, Any]]:
        cart, pole = self._joint_states()
        angle = pole[0]
        upright = math.cos(angle)
        observation = np.array((cart[0], cart[1], upright, math.sin(angle), pole[1]), np.float32)
        return observation, upright, False, {"reward_upright": upright}

    def _drive(self, forces: list[float]) -> None:
        # Positional arguments for a single joint save one of about twelve microseconds per step.
        # The zeros are ignored.
        mode, joint = pybullet.TORQUE_CONTROL, self._driven[0]
        pybullet.setJointMotorControl2(
            self._body, joint, mode, 0.0, 0.0, forces[0], 0.0, 0.0, 0.0, self._client
        )


class HalfCheetah(BulletEnv):
    robot, observation_size = described("HalfCheetah"), 17

    def _first_observation(self) -> Vector:
        # In the original, a misplaced body number gives the ground this friction in all episodes
        # after the first.
        friction = 0.1 if self.episode > 0 else 0.0
        pybullet.changeDynamics(
            GROUND,
            -1,
            rollingFriction=friction,
            spinningFriction=friction,
            physicsClientId=self._client,
        )
        states = self._joint_states()
        self._torso_x = self._lagged_torso_x(states)
        return self._observation(states)

    def _outcome(self, action: list[float]) -> tuple[Vector, float, bool, dict[str, Any]]:
        states = self._joint_states()
        x, self._torso_x = self._torso_x, self._lagged_torso_x(states)
        velocity = (self._torso_x - x) / DT
        control = -0.1 * sum([a * a for a in action])  # cost of the unclipped action
        info = {"reward_velocity": velocity, "reward_control": control}
        return self._observation(states), velocity + control, False, info

    def position(self) -> tuple[float, float]:
        return self._torso_x, 0.0

    def _lagged_torso_x(self, states: Any) -> float:
        """Return the torso's position one substep earlier, which the original reads from Bullet."""
        root = states[0]
        return float(root[0] - root[1] * (DT / self.robot.substeps))

    def _observation(self, states: Any) -> Vector:
        return np.array(
            [state[0] for state in states[1:]] + [state[1] for state in states], np.float32
        )


class _FloatingRobot(BulletEnv):
    """Simulate ant or humanoid, rewarded for the progress of the mean position of all parts towards
    x = 1000."""

    def __init__(
        self, compact: bool = False, terminate_when_fallen: bool = False, **common: Any
    ) -> None:
        self._padding = 0 if compact else self.robot.empty_entries
        self.observation_size = 11 + 2 * len(self.robot.joints) + self._padding
        # The original adds the starting height to an already absolute height, so no robot ever
        # falls.
        self._extra_height = 0.0 if terminate_when_fallen else self.robot.height_counted_twice
        super().__init__(**common)

    def _find_joints(self) -> None:
        super()._find_joints()
        self._links = list(range(len(self._joint_info)))
        limits = [self._joint_info[joint][8:10] for joint in self._observed]
        self._near_limits = [((low + high) / 2, 0.99 * (high - low) / 2) for low, high in limits]

    def _first_observation(self) -> Vector:
        numbers, (x, y), _ = self._read()
        # In the original the ground, at (0, 0), joins the list of parts only after the first reset
        # of an instance.
        parts = len(self._links) + 1
        self._parts = parts + 1
        self._potential = _potential(x, y, parts if self.episode == 0 else self._parts)
        return self._observation(numbers)

    def _outcome(self, action: list[float]) -> tuple[Vector, float, bool, dict[str, Any]]:
        numbers, (x, y), positions = self._read()
        before, self._potential = self._potential, _potential(x, y, self._parts)
        progress = self._potential - before
        fallen = numbers[0] + self._extra_height <= self.robot.fallen_below
        alive = -1.0 if fallen else self.robot.alive_bonus
        near = zip(positions, self._near_limits, strict=True)
        limits = -0.1 * sum([abs(position - middle) > reach for position, (middle, reach) in near])
        info = {"reward_alive": alive, "reward_progress": progress, "reward_joint_limits": limits}
        terminated = fallen or not math.isfinite(sum(numbers))
        return self._observation(numbers), alive + progress + limits, terminated, info

    def _read(self) -> tuple[list[float], tuple[float, float], list[float]]:
        body, client = self._body, self._client
        states = self._joint_states()
        positions = [state[0] for state in states]
        (x, y, z), orientation = pybullet.getBasePositionAndOrientation(
            body, physicsClientId=client
        )
        linear, angular = pybullet.getBaseVelocity(body, physicsClientId=client)
        # Without forward kinematics, these values lag by one substep, as in the original.
        links = pybullet.getLinkStates(body, self._links, physicsClientId=client)
        for link in links:
            position = link[0]
            x += position[0]
            y += position[1]
        numbers = [z, *orientation, *positions, *linear, *angular, *[state[1] for state in states]]
        return numbers, (x, y), positions

    def position(self) -> tuple[float, float]:
        (x, y, _), _ = pybullet.getBasePositionAndOrientation(
            self._body, physicsClientId=self._client
        )
        return x, y

    def _observation(self, numbers: list[float]) -> Vector:
        observation = np.zeros(len(numbers) + self._padding, np.float32)
        observation[: len(numbers)] = numbers
        return observation


def _potential(x: float, y: float, parts: int) -> float:
    """Return minus the time at 1 m/s from the mean position to x = 1000, given sums over the
    parts."""
    return -math.hypot(1000.0 - x / parts, y / parts) / DT


class Ant(_FloatingRobot):
    robot = described("Ant")


class Humanoid(_FloatingRobot):
    robot = described("Humanoid")
