"""The four robots of the paper, quirks of the original library included (docs/tasks.md lists them)."""

import math
from typing import Any

import numpy as np

from pac4sac.tasks.simulator import DT, GROUND, BulletEnv, Vector, described, pybullet


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
        # By position, for one joint: a microsecond less of the dozen that a whole step takes. The zeros are ignored.
        mode, joint = pybullet.TORQUE_CONTROL, self._driven[0]
        pybullet.setJointMotorControl2(self._body, joint, mode, 0.0, 0.0, forces[0], 0.0, 0.0, 0.0, self._client)


class HalfCheetah(BulletEnv):
    robot, observation_size = described("HalfCheetah"), 17

    def _first_observation(self) -> Vector:
        # In the original a misplaced body number gives the ground this friction from the second episode on.
        friction = 0.1 if self.episode > 0 else 0.0
        pybullet.changeDynamics(
            GROUND, -1, rollingFriction=friction, spinningFriction=friction, physicsClientId=self._client
        )
        states = self._joint_states()
        self._torso_x = self._lagged_torso_x(states)
        return self._observation(states)

    def _outcome(self, action: list[float]) -> tuple[Vector, float, bool, dict[str, Any]]:
        states = self._joint_states()
        x, self._torso_x = self._torso_x, self._lagged_torso_x(states)
        velocity = (self._torso_x - x) / DT
        control = -0.1 * sum([a * a for a in action])  # of the action as given, not as clipped
        info = {"reward_velocity": velocity, "reward_control": control}
        return self._observation(states), velocity + control, False, info

    def _place(self) -> tuple[float, float]:
        return self._torso_x, 0.0

    def _lagged_torso_x(self, states: Any) -> float:
        """The original reads the torso from Bullet's link poses, which are one substep old."""
        root = states[0]
        return float(root[0] - root[1] * (DT / self.robot.substeps))

    def _observation(self, states: Any) -> Vector:
        return np.array([state[0] for state in states[1:]] + [state[1] for state in states], np.float32)


class _FloatingRobot(BulletEnv):
    """Ant and humanoid: rewarded for the progress of the mean position of all parts towards x = 1000."""

    def __init__(self, compact: bool = False, terminate_when_fallen: bool = False, **common: Any) -> None:
        self._padding = 0 if compact else self.robot.empty_entries
        self.observation_size = 11 + 2 * len(self.robot.joints) + self._padding
        # The original adds the starting height to a height that is absolute already, so that nothing ever falls.
        self._extra_height = 0.0 if terminate_when_fallen else self.robot.height_counted_twice
        super().__init__(**common)

    def _find_joints(self) -> None:
        super()._find_joints()
        self._links = list(range(len(self._joint_info)))
        limits = [self._joint_info[joint][8:10] for joint in self._observed]
        self._near_limits = [((low + high) / 2, 0.99 * (high - low) / 2) for low, high in limits]

    def _first_observation(self) -> Vector:
        numbers, (x, y), _ = self._read()
        # In the original the ground, at (0, 0), joins the list of parts only after the first reset of an instance.
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
        (x, y, z), orientation = pybullet.getBasePositionAndOrientation(body, physicsClientId=client)
        linear, angular = pybullet.getBaseVelocity(body, physicsClientId=client)
        # Without forward kinematics these are a substep old, as in the original.
        links = pybullet.getLinkStates(body, self._links, physicsClientId=client)
        for link in links:
            position = link[0]
            x += position[0]
            y += position[1]
        numbers = [z, *orientation, *positions, *linear, *angular, *[state[1] for state in states]]
        return numbers, (x, y), positions

    def _place(self) -> tuple[float, float]:
        (x, y, _), _ = pybullet.getBasePositionAndOrientation(self._body, physicsClientId=self._client)
        return x, y

    def _observation(self, numbers: list[float]) -> Vector:
        observation = np.zeros(len(numbers) + self._padding, np.float32)
        observation[: len(numbers)] = numbers
        return observation


def _potential(x: float, y: float, parts: int) -> float:
    """Minus the time, at 1 m/s, to x = 1000 for the mean position, given sums over the parts."""
    return -math.hypot(1000.0 - x / parts, y / parts) / DT


class Ant(_FloatingRobot):
    robot = described("Ant")


class Humanoid(_FloatingRobot):
    robot = described("Humanoid")
