"""Draw frames of robots without a display, and show PyBullet's window.

PyBullet's software renderer draws the robot; this module draws the floor and the shadow. The
renderer spends nearly all its time on the ground, draws no shadows on it and aliases it badly. The
camera keeps its height and direction, so each floor pixel shows the same point relative to the
camera in every frame, and the floor takes a few array operations.
"""

import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 640, 480
FIELD_OF_VIEW = 40.0  # degrees, vertical
SAMPLES = 2  # samples per pixel and direction, for smooth edges of the robot

LIGHT = np.array([-0.35, -0.45, 0.82])  # direction of the light
SHADING = {
    "lightDirection": (10 * LIGHT).tolist(),
    "lightColor": (1, 1, 1),
    "lightAmbientCoeff": 0.55,
}
SHADING |= {"lightDiffuseCoeff": 0.55, "lightSpecularCoeff": 0.05, "shadow": 0}
LIGHT_DISTANCE = 60.0  # metres; far enough for parallel rays
SHADOW_SIZE = 384  # pixels of the shadow map per direction
SHADOW_REACH = 3.0  # metres from the centre of the map to its edges

TILES = np.array([[226, 232, 240], [190, 203, 219]], np.float32)
HORIZON = np.array([238, 243, 249], np.float32)
ZENITH = np.array([164, 192, 226], np.float32)
FOG_DISTANCE = 22.0  # metres

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Camera:
    distance: float
    yaw: float  # degrees; 0 looks along +y, with +x to the right
    pitch: float
    height: float  # height of the point at the centre of the frame
    floor: float = 0.0  # height of the drawn floor


class Painter:
    def __init__(self, pybullet: Any, camera: Camera) -> None:
        self._pybullet, self._camera = pybullet, camera
        self._projection = pybullet.computeProjectionMatrixFOV(
            FIELD_OF_VIEW, WIDTH / HEIGHT, 0.1, 100.0
        )
        # The view matrix transforms world to camera axes, so its rows are the camera's axes in
        # the world.
        view = np.reshape(self._view(0.0, 0.0), (4, 4)).T
        right, up, back = view[:3, :3]
        self._eye: NDArray[np.float64] = -view[:3, :3].T @ view[:3, 3]
        slope = np.tan(np.radians(FIELD_OF_VIEW / 2))
        across = slope * WIDTH / HEIGHT * (2 * (np.arange(WIDTH) + 0.5) / WIDTH - 1)
        down = slope * (1 - 2 * (np.arange(HEIGHT) + 0.5) / HEIGHT)
        rays = across[None, :, None] * right + down[:, None, None] * up - back  # [H, W, 3]
        drop = np.minimum(rays[..., 2], -1e-4)
        reach = (camera.floor - self._eye[2]) / drop  # [H, W], in units of the ray
        self._floor_x = (self._eye[0] + reach * rays[..., 0]).astype(np.float32)
        self._floor_y = (self._eye[1] + reach * rays[..., 1]).astype(np.float32)
        # Distance on the floor between neighbouring pixels, down and across; smaller tiles fade
        # out.
        slopes = [np.abs(np.gradient(floor)) for floor in (self._floor_x, self._floor_y)]
        self._blur_x, self._blur_y = (np.maximum(down + across, 1e-3) for down, across in slopes)
        length = np.linalg.norm(rays, axis=-1)
        fog = 1 - np.exp(-((reach * length / FOG_DISTANCE) ** 2))
        self._clear = np.where(rays[..., 2] < 0, 1 - fog, 0).astype(np.float32)
        climb = np.clip(2.2 * rays[..., 2] / length, 0, 1)[..., None]
        sky = HORIZON + (ZENITH - HORIZON) * climb
        self._backdrop = (sky * (1 - self._clear[..., None])).astype(np.float32)
        light_angle = 2 * np.degrees(np.arctan(SHADOW_REACH / LIGHT_DISTANCE))
        self._light_projection = pybullet.computeProjectionMatrixFOV(
            light_angle, 1.0, 1.0, 2 * LIGHT_DISTANCE
        )
        self._shadow_pixel = self._where_in_shadow_map()

    def paint(self, client: int, x: float, y: float) -> Pixels:
        """Return the frame of a camera that looks at (x, y)."""
        tiles = _square_wave(self._floor_x + np.float32(x), self._blur_x)
        tiles *= _square_wave(self._floor_y + np.float32(y), self._blur_y)
        # Colour of the floor: a light tile, darkened by the pattern and the shadow, then faded by
        # fog.
        light = self._clear * (1 - 0.45 * self._shadow(client, x, y))
        tiles *= light
        contrast = tiles[..., None] * (TILES[0] - TILES[1]) / 2
        picture: NDArray[np.float32] = self._backdrop + light[..., None] * TILES.mean(0) + contrast
        self._add_robot(picture, client, x, y)
        return picture.astype(np.uint8)

    def _view(self, x: float, y: float) -> Any:
        camera = self._camera
        place = (x, y, camera.height), camera.distance, camera.yaw, camera.pitch
        return self._pybullet.computeViewMatrixFromYawPitchRoll(*place, 0.0, 2)

    def _add_robot(self, picture: NDArray[np.float32], client: int, x: float, y: float) -> None:
        colours, mask = self._shoot(
            client, SAMPLES * WIDTH, SAMPLES * HEIGHT, self._view(x, y), self._projection
        )
        mask = mask.reshape(HEIGHT, SAMPLES, WIDTH, SAMPLES)
        rows, columns = np.flatnonzero(mask.any((1, 2, 3))), np.flatnonzero(mask.any((0, 1, 3)))
        if rows.size == 0:
            return
        box = (
            slice(rows[0], rows[-1] + 1),
            slice(None),
            slice(columns[0], columns[-1] + 1),
            slice(None),
        )
        hit = mask[box][..., None]
        seen = colours.reshape(HEIGHT, SAMPLES, WIDTH, SAMPLES, 3)[box] * hit
        behind = picture[box[0], box[2]]
        behind *= 1 - hit.mean((1, 3), dtype=np.float32)
        behind += seen.mean((1, 3), dtype=np.float32)

    def _shadow(self, client: int, x: float, y: float) -> NDArray[np.float32]:
        """Return the fraction of light that the robot blocks at each pixel of the floor.

        It is computed from a picture of the robot from the position of the light.
        """
        _, shadow_map = self._shoot(
            client, SHADOW_SIZE, SHADOW_SIZE, self._light_view(x, y), self._light_projection
        )
        soft: NDArray[Any] = shadow_map.astype(np.float32)
        for axis, shift in ((0, 1), (0, 3), (1, 1), (1, 3)):
            soft = (np.roll(soft, shift, axis) + soft + np.roll(soft, -shift, axis)) / 3
        return soft.ravel()[self._shadow_pixel]

    def _light_view(self, x: float, y: float) -> Any:
        target = np.array([x, y, self._camera.floor])
        return self._pybullet.computeViewMatrix(
            target + LIGHT_DISTANCE * LIGHT, target, (0.0, 1.0, 0.0)
        )

    def _where_in_shadow_map(self) -> NDArray[np.int64]:
        """Return the pixel of the shadow map for each pixel of the floor.

        Pixels of the floor outside the map get the first pixel of the map, which is never in
        shadow.
        """
        view = np.reshape(self._light_view(0.0, 0.0), (4, 4)).T
        floor = np.stack(
            [self._floor_x, self._floor_y, np.full_like(self._floor_x, self._camera.floor)], axis=-1
        )
        right, up, back = np.moveaxis(floor @ view[:3, :3].T + view[:3, 3], -1, 0)
        scale = -back * SHADOW_REACH / LIGHT_DISTANCE
        column, row = (
            ((side / scale + 1) / 2 * SHADOW_SIZE).astype(np.int64) for side in (right, -up)
        )
        inside = (
            (column >= 0) & (column < SHADOW_SIZE) & (row >= 0) & (row < SHADOW_SIZE) & (back < 0)
        )
        return np.where(inside, row * SHADOW_SIZE + column, 0)

    def _shoot(
        self, client: int, width: int, height: int, view: Any, projection: Any
    ) -> tuple[Pixels, Mask]:
        how = SHADING | {"renderer": self._pybullet.ER_TINY_RENDERER, "physicsClientId": client}
        _, _, colours, _, bodies = self._pybullet.getCameraImage(
            width, height, view, projection, **how
        )
        pixels = np.asarray(colours, np.uint8).reshape(height, width, 4)[..., :3]
        return pixels, np.asarray(bodies).reshape(height, width) >= 0


def _square_wave(position: NDArray[np.float32], blur: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a wave of +1 and −1, each one metre long, averaged over a width of `blur`."""
    ramp = np.abs(np.mod(position, 2.0) - 1.0) - 0.5  # distance to the nearest edge, signed
    wave: NDArray[np.float32] = np.clip(ramp * (2 / blur), -1, 1) * np.clip(1.5 - blur, 0, 1)
    return wave


class Window:
    """Show the robot in PyBullet's window in real time; the camera follows the robot."""

    def __init__(self, pybullet: Any, camera: Camera, frame_seconds: float) -> None:
        self.client = int(pybullet.connect(pybullet.GUI))
        self._pybullet, self._camera = pybullet, camera
        self._frame_seconds, self._next_frame = frame_seconds, 0.0
        pybullet.configureDebugVisualizer(pybullet.COV_ENABLE_GUI, 0, physicsClientId=self.client)

    @classmethod
    def open(cls, pybullet: Any, camera: Camera, frame_seconds: float) -> "Window | None":
        """Open a window; return None without a display, because PyBullet would end the process."""
        if sys.platform == "linux" and not os.environ.get("DISPLAY"):
            gymnasium.logger.warn(
                "There is no display for a window; use render_mode='rgb_array' for frames."
            )
            return None
        return cls(pybullet, camera, frame_seconds)

    def show(self, x: float, y: float) -> None:
        camera = self._camera
        place = (camera.distance, camera.yaw, camera.pitch, (x, y, camera.height))
        self._pybullet.resetDebugVisualizerCamera(*place, physicsClientId=self.client)
        now = time.perf_counter()
        time.sleep(max(0.0, self._next_frame - now))
        self._next_frame = max(self._next_frame, now) + self._frame_seconds
