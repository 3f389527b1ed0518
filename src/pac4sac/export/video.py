"""One episode of a trained agent as a film, drawn without a display."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pac4sac.base.errors import UserError, how_to_install, import_extra
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.tasks.registry import Task, make_env
from pac4sac.training.agent_file import TrainedAgent, choose_agent, load
from pac4sac.training.backends import on_threads, suitable_threads

Picture = Image.Image
Progress = Callable[[int, int], None]  # pictures drawn, pictures expected at most

FPS = 20  # a picture every 50 ms, which a gif can say exactly
MAX_PICTURES = 600  # half a minute; what an endless episode is cut to
GIF_WIDTH = 400
GIF_COLOURS = 255
# lest pygame look for one, or greet
NO_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


def record_video(
    path: str | Path,
    out: Path,
    seed: int = 0,
    progress: Progress | None = None,
    most: int = MAX_PICTURES,
) -> Path:
    """Film one episode of the agent at `path` (an agent file, a run, or an experiment, whose best
    run is taken) in the time in which it happens, or as much of it as `most` pictures show. Every
    picture names the run, the step and the return so far."""
    out = Path(out)
    if out.suffix.lower() not in (".gif", ".mp4"):
        raise UserError(f"A video is a .gif or an .mp4, so that {out.name!r} needs another ending.")
    imageio = None
    # an encoder is found missing before a minute of drawing, not after
    if out.suffix.lower() == ".mp4":
        problem, otherwise = "An mp4 needs an encoder", ", or ask for a .gif"
        imageio = import_extra(
            "video", problem, "imageio_ffmpeg", "imageio.v2", otherwise=otherwise
        )
    agent = load(choose_agent(path))
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.stem}.part{out.suffix}")
    part.unlink(missing_ok=True)  # lest it be a link
    try:
        with on_threads(suitable_threads(agent.agent, 1)):
            frames = pictures(agent, seed, progress, most)
            if imageio is None:
                write_gif(part, frames)
            else:
                with imageio.get_writer(
                    part, fps=FPS, codec="libx264", macro_block_size=2
                ) as writer:
                    for frame in frames:
                        writer.append_data(np.asarray(frame))
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return out


def pictures(
    agent: TrainedAgent, seed: int, progress: Progress | None = None, most: int = MAX_PICTURES
) -> Iterator[Picture]:
    """Yield the pictures of an episode, the last one included."""
    task = agent.run.task
    _check_rendering(task)
    with contextlib.closing(make_env(task, "rgb_array")) as env:
        every = max(1, round(env.metadata.get("render_fps", FPS) / FPS))
        expected = min(most, task.horizon // every + 1) if task.horizon else most
        drawn = 0
        for step, total, ended in _steps(env, agent, seed):
            if step % every and not ended:
                continue
            text = f"{agent.run.id}   step {step}   return {total:.0f}"
            yield _captioned(_draw(env, task), text)
            drawn += 1
            if progress:
                progress(drawn, max(drawn, expected))
            if drawn == most:
                return


def _check_rendering(task: Task) -> None:
    with contextlib.closing(make_env(task)) as env:
        if "rgb_array" not in env.metadata.get("render_modes", ()):
            raise UserError(
                f"The environment of task {task.name!r} cannot draw itself; it has no mode "
                "'rgb_array'."
            )


def _steps(
    env: gymnasium.Env[Any, Any], agent: TrainedAgent, seed: int
) -> Iterator[tuple[int, float, bool]]:
    """Play an episode; yield the steps taken, the return so far, and whether it has ended."""
    # Episode 1, not 0: an instance's first episode has quirks of its own in some tasks.
    options = {"episode": 1} if getattr(env.unwrapped, "episode_option", False) else None
    observation, _ = env.reset(seed=simulator_seed(seed, "watch", 1), options=options)
    step, total, ended = 0, 0.0, False
    yield step, total, ended
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        step, total, ended = step + 1, total + float(reward), terminated or truncated
        yield step, total, ended


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
            f"To draw itself the environment of task {task.name!r} needs {needed}"
        ) from missing


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
    small = []
    for frame in frames:
        width = min(frame.width, GIF_WIDTH)
        size = (width, round(frame.height * width / frame.width))
        small.append(frame.resize(size, Image.Resampling.LANCZOS))
    palette = _shared_palette(small)
    # One palette and no dithering: still parts stay equal from picture to picture, and cost
    # nothing.
    reduced = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    reduced[0].save(
        out, save_all=True, append_images=reduced[1:], duration=1000 // FPS, loop=0, optimize=False
    )


def _shared_palette(frames: Sequence[Picture]) -> Picture:
    """Colours of pictures from all parts of the film."""
    chosen = frames[:: max(1, len(frames) // 8)]
    # every fourth point knows the colours
    width, height = (chosen[0].width // 2, chosen[0].height // 2)
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for row, frame in enumerate(chosen):
        sheet.paste(frame.resize((width, height), Image.Resampling.NEAREST), (0, row * height))
    # Without rounds of k-means the ground, most of the picture, leaves too few colours to the
    # robot.
    return sheet.quantize(GIF_COLOURS, Image.Quantize.MEDIANCUT, kmeans=2)
