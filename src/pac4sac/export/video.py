"""Videos of one episode of a trained agent, recorded without a display."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pac4sac.base.errors import UserError, how_to_install, import_extra
from pac4sac.tasks.catalogue import Task
from pac4sac.tasks.custom import takes_render_mode
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.tasks.offscreen import advice_on, choose_offscreen_rendering
from pac4sac.tasks.registry import find_spec, make_env
from pac4sac.training.agent_file import choose_agent
from pac4sac.training.backends import on_threads, suitable_threads
from pac4sac.training.trained_agent import TrainedAgent, load

Picture = Image.Image
Progress = Callable[[int, int], None]  # drawn frames, largest expected number

FPS = 20  # one frame every 50 ms, which a gif can represent exactly
MAX_PICTURES = 600  # half a minute; longer episodes are cut
GIF_WIDTH = 400
GIF_COLOURS = 255
# for pygame
NO_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


def record_video(
    path: str | Path,
    out: Path,
    seed: int = 0,
    progress: Progress | None = None,
    most: int = MAX_PICTURES,
) -> Path:
    """Record one episode of a trained agent in real time, and return the file.

    Every frame shows the run, the step and the return so far.

    Args:
        path: Agent file, run, or experiment, whose best run is used.
        out: File to write, a .gif or an .mp4.
        seed: Seed of the episode.
        progress: Function that is called after each frame.
        most: Largest number of frames.
    """
    out = Path(out)
    choose_offscreen_rendering()
    write = _writer(out.suffix.lower(), out.name)
    agent = load(choose_agent(path))
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.stem}.part{out.suffix}")
    part.unlink(missing_ok=True)  # the file could be a link
    try:
        with on_threads(suitable_threads(agent.agent, 1)):
            write(part, pictures(agent, seed, progress, most))
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return out


def _writer(suffix: str, name: str) -> Callable[[Path, Iterator[Picture]], None]:
    """Return the function that writes files of this kind.

    A missing encoder is reported before the frames are drawn.
    """
    if suffix == ".gif":
        return write_gif
    if suffix != ".mp4":
        raise UserError(f"The name of a video must end in .gif or .mp4, not {name!r}.")
    imageio = import_extra(
        "video",
        "An mp4 needs an encoder",
        "imageio_ffmpeg",
        "imageio.v2",
        otherwise=", or write a .gif",
    )
    return partial(_write_mp4, imageio)


def _write_mp4(imageio: Any, out: Path, frames: Iterator[Picture]) -> None:
    with imageio.get_writer(out, fps=FPS, codec="libx264", macro_block_size=2) as writer:
        for frame in frames:
            writer.append_data(np.asarray(frame))


def pictures(
    agent: TrainedAgent, seed: int, progress: Progress | None = None, most: int = MAX_PICTURES
) -> Iterator[Picture]:
    """Yield the frames of an episode, including the last one."""
    task = agent.run.task
    _check_rendering(task)
    with contextlib.closing(make_env(task, "rgb_array")) as env:
        every = max(1, round(env.metadata.get("render_fps", FPS) / FPS))
        expected = min(most, task.horizon // every + 1) if task.horizon else most
        shown = (
            step for step in _steps(env, agent, seed) if step.number % every == 0 or step.ended
        )
        for drawn, step in enumerate(itertools.islice(shown, most), 1):
            text = f"{agent.run.id}   step {step.number}   return {step.total:.0f}"
            yield _captioned(_draw(env, task), text)
            if progress:
                progress(drawn, max(drawn, expected))


def _check_rendering(task: Task) -> None:
    with contextlib.closing(make_env(task)) as env:
        if "rgb_array" not in env.metadata.get("render_modes", ()):
            raise UserError(
                f"The environment of task {task.name!r} cannot be rendered, because it has no "
                "render mode 'rgb_array'."
            )
        if env.render_mode != "rgb_array" and not takes_render_mode(find_spec(task.env_id)):
            raise UserError(
                f"The environment of task {task.name!r} cannot be rendered, because the function "
                "that creates it has no parameter render_mode; add render_mode=None to the "
                "function, and pass it to gymnasium.make."
            )


class Step(NamedTuple):
    """Hold the state of an episode: number of steps, return so far, and whether it has ended."""

    number: int
    total: float
    ended: bool


def _steps(env: gymnasium.Env[Any, Any], agent: TrainedAgent, seed: int) -> Iterator[Step]:
    """Play an episode, and yield its state at the start and after each step."""
    # Episode 1, not 0: in some tasks the first episode of an environment differs from the others.
    options = {"episode": 1} if getattr(env.unwrapped, "episode_option", False) else None
    observation, _ = env.reset(seed=simulator_seed(seed, "watch", 1), options=options)
    step = Step(0, 0.0, ended=False)
    yield step
    while not step.ended:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        step = Step(step.number + 1, step.total + float(reward), terminated or truncated)
        yield step


def _draw(env: gymnasium.Env[Any, Any], task: Task) -> Picture:
    for variable, value in NO_DISPLAY.items():
        os.environ.setdefault(variable, value)
    try:
        return Image.fromarray(np.asarray(env.render(), np.uint8))
    except gymnasium.error.DependencyNotInstalled as missing:
        needed = (
            f"pygame; {how_to_install('pygame')}."
            if "pygame" in str(missing)
            else f"more: {missing}"
        )
        raise UserError(
            f"To be rendered, the environment of task {task.name!r} needs {needed}"
        ) from missing
    except Exception as error:  # environments can raise any exception
        cause = f"{type(error).__name__}: {error}".rstrip(".")
        raise UserError(
            f"The environment of task {task.name!r} could not be rendered ({cause})."
            f"{advice_on(error)}"
        ) from error


def _captioned(picture: Picture, text: str) -> Picture:
    size = max(11, picture.width // 30)
    style: dict[str, Any] = {
        "fill": (30, 41, 59),
        "stroke_width": max(1, size // 8),
        "stroke_fill": "white",
    }
    ImageDraw.Draw(picture).text(
        (size, size // 2), text, font=ImageFont.load_default(size), **style
    )
    return picture


def write_gif(out: Path, frames: Iterator[Picture]) -> None:
    """Write frames as a gif with one palette."""
    small = []
    for frame in frames:
        width = min(frame.width, GIF_WIDTH)
        size = (width, round(frame.height * width / frame.width))
        small.append(frame.resize(size, Image.Resampling.LANCZOS))
    palette = _shared_palette(small)
    # With one palette and no dithering, static parts are equal in all frames and take no space.
    reduced = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    reduced[0].save(
        out, save_all=True, append_images=reduced[1:], duration=1000 // FPS, loop=0, optimize=False
    )


def _shared_palette(frames: Sequence[Picture]) -> Picture:
    """Return a palette of frames from all parts of the video."""
    chosen = frames[:: max(1, len(frames) // 8)]
    # Every fourth pixel suffices.
    width, height = (chosen[0].width // 2, chosen[0].height // 2)
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for row, frame in enumerate(chosen):
        sheet.paste(frame.resize((width, height), Image.Resampling.NEAREST), (0, row * height))
    # Without k-means, the ground fills most of the frame and leaves too few colours for the robot.
    return sheet.quantize(GIF_COLOURS, Image.Quantize.MEDIANCUT, kmeans=2)
