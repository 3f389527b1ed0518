"""Collect the packages that a Linux machine without a network lacks to train from a source tree.

    python tools/offline_kit.py KIT --python 3.12 --extras mujoco,dmc
    PYTHONPATH=KIT:src python -m pac4sac train Pendulum-v1     # on that machine

The kit is a folder of unpacked wheels for the Python of that machine. It holds what
`pyproject.toml` requires, except the packages that are there already (--present). Of MuJoCo and
dm_control it holds what training needs: no rendering, no locomotion arenas, no dog model. Searches
store in journal files only."""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCES = "src"
MIB = 2**20
MANIFEST = "kit.json"  # marks a folder as a kit, which may be replaced
# The last three come with torch and matplotlib.
PRESENT = "torch,numpy,scipy,matplotlib,safetensors,rich,packaging,pillow,typing_extensions"
OLDEST_GLIBC, NEWEST_GLIBC = 17, 28  # minor versions
CHECKED_TASKS = {"": "Pendulum-v1", "mujoco": "HalfCheetah-v5", "dmc": "dmc-pendulum-swingup"}
CHECK = """
import sys, warnings
warnings.simplefilter("ignore")
import pac4sac.cli.main, pac4sac.tasks
for task in sys.argv[1:]:
    env = pac4sac.tasks.make_env(task)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    print(task, "works")
"""


@dataclass(frozen=True)
class Unused:
    """What training does not load of a package, and lines that slow it down.

    Attributes:
        dependencies: Packages that it requires.
        files: Patterns of its files.
        lines: Lines of its files, by file.
    """

    dependencies: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)


NOTHING = Unused()
SHOW_ALWAYS = "warnings.simplefilter('always', DeprecationWarning)"
DRAWING = {"pyopengl", "etils", "websockets"}
TYPED = ("*.pyi", "*/py.typed")  # for type checkers
UNUSED = {
    "mujoco": Unused(
        frozenset(DRAWING),
        (
            "mujoco/experimental/*",
            "mujoco/mjx/*",
            "mujoco/usd/*",
            "mujoco/sysid/*",
            "mujoco/testdata/*",
            "mujoco/include/*",
            "mujoco/plugin/*",
            "mujoco/*_test.py",
            "mujoco/_render_filament*",
            "mujoco/_simulate*",
            "mujoco/libmujoco_simulate*",
            *TYPED,
        ),
    ),
    "dm-control": Unused(
        frozenset(
            {
                *DRAWING,
                "labmaze",
                "protobuf",
                "requests",
                "setuptools",
                "tqdm",
                "scipy",
                "pyparsing",
            }
        ),
        (
            "dm_control/locomotion/*",
            "dm_control/blender/*",
            "dm_control/suite/dog_assets/*",
            "dm_control/*_test.py",
            "dm_control/mjcf/test_assets/*",
            "dm_control/mujoco/testing/*",
            "dm_control/suite/*.png",
        ),
        # With NumPy 2.5 it would print several warnings in every step.
        {"dm_control/composer/environment.py": SHOW_ALWAYS},
    ),
    "gymnasium": Unused(files=("gymnasium/envs/*/img/*", *TYPED)),
    "lxml": Unused(
        files=("lxml/includes/*", "lxml/html/*", "lxml/isoschematron/*", "lxml/objectify*")
    ),
    "imageio": Unused(files=TYPED),
    "optuna": Unused(frozenset({"sqlalchemy", "alembic", "pyyaml"})),  # for storage in a database
}


class KitError(Exception):
    """The kit cannot be made; the message says why."""


@dataclass(frozen=True)
class Target:
    """The machine that the kit is for."""

    python: str  # such as "3.12"
    machine: str = "x86_64"

    def environment(self, extra: str = "") -> dict[str, str]:
        """Return the values of markers such as `python_version < '3.12'` on that machine."""
        return {
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": self.machine,
            "platform_release": "",
            "platform_version": "",
            "extra": extra,
        }

    def pip_options(self) -> list[str]:
        """Return the options with which pip downloads wheels for that machine."""
        minors = range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)
        tags = [*(f"manylinux_2_{minor}" for minor in minors), "manylinux2014"]
        platforms = [f"--platform={tag}_{self.machine}" for tag in tags]
        return [f"--python-version={self.python}", "--only-binary=:all:", *platforms]


@dataclass
class Source:
    """Where wheels come from: a package index, or a folder of wheels."""

    target: Target
    downloads: Path
    constraints: Path | None = None
    wheels: Path | None = None

    def wheel(self, requirement: Requirement) -> Path:
        """Download the wheel for a requirement, without its dependencies, and return its path."""
        folder = self.downloads / canonicalize_name(requirement.name)
        options = ["--no-deps", "--quiet", *self.target.pip_options(), f"--dest={folder}"]
        if self.constraints is not None:
            options.append(f"--constraint={self.constraints}")
        if self.wheels is not None:
            options += ["--no-index", f"--find-links={self.wheels}"]
        wanted = f"{requirement.name}{requirement.specifier}"
        command = [sys.executable, "-m", "pip", "download", *options, wanted]
        process = subprocess.run(command, capture_output=True, text=True)
        found = sorted(folder.glob("*.whl"))
        if process.returncode or not found:
            lines = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
            reason = lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else "no reason given"
            raise KitError(
                f"There is no wheel of {wanted} for Python {self.target.python}: {reason}."
            )
        return found[0]


def requirements_of_project(pyproject: Path, extras: Sequence[str]) -> list[Requirement]:
    """Return the dependencies of the project and of some of its extras."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    known = project["optional-dependencies"]
    if unknown := sorted(set(extras) - set(known)):
        raise KitError(f"There is no extra {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    texts = [*project["dependencies"], *(text for extra in extras for text in known[extra])]
    return [Requirement(text) for text in texts]


def needed_wheels(
    requirements: Iterable[Requirement], present: Iterable[str], source: Source
) -> dict[str, Path]:
    """Return the wheels of all requirements and of what these require, by package.

    Args:
        requirements: What is needed.
        present: Packages that the machine has; they and their dependencies are left out.
        source: Where wheels come from.
    """
    there = {canonicalize_name(name) for name in present}
    waiting = [each for each in requirements if applies(each, [], source.target)]
    wheels: dict[str, Path] = {}
    seen: set[tuple[str, frozenset[str]]] = set()  # packages with their extras
    while waiting:
        requirement = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        asked = (name, frozenset(requirement.extras))
        if name in there or asked in seen:
            continue
        seen.add(asked)
        if name not in wheels:
            wheels[name] = source.wheel(requirement)
        waiting += used_by(name, wheels[name], requirement.extras, source.target)
    return wheels


def used_by(name: str, wheel: Path, extras: Iterable[str], target: Target) -> Iterator[Requirement]:
    """Yield what a wheel with some extras requires on a machine, and training uses."""
    unused = UNUSED.get(name, NOTHING).dependencies
    for each in required_by(wheel):
        if applies(each, extras, target) and canonicalize_name(each.name) not in unused:
            yield each


def applies(requirement: Requirement, extras: Iterable[str], target: Target) -> bool:
    """Return whether a requirement counts on that machine with some extras."""
    marker = requirement.marker
    if marker is None:
        return True
    return any(marker.evaluate(target.environment(extra)) for extra in ["", *extras])


def required_by(wheel: Path) -> Iterator[Requirement]:
    """Yield what a wheel requires, by its metadata."""
    with zipfile.ZipFile(wheel) as content:
        name = next(name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        for text in message_from_bytes(content.read(name)).get_all("Requires-Dist", []):
            yield Requirement(text)


def unpack(wheel: Path, folder: Path, unused: Unused = NOTHING) -> None:
    """Unpack a wheel into a folder, without what is unused."""
    patterns = [*unused.files, "*.dist-info/RECORD"]  # the list of files would be wrong
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                content.extract(name, folder)
    for name, line in unused.lines.items():
        path = folder / name
        if path.is_file():
            path.write_text(path.read_text().replace(f"\n{line}\n", "\n"))


def add_folder(folder: Path, kit: Path) -> None:
    """Copy modules that no wheel has into the kit."""
    if not folder.is_dir():
        raise KitError(f"There is no folder {folder} to add.")
    ignored = shutil.ignore_patterns("__pycache__", "README*")
    shutil.copytree(folder, kit, dirs_exist_ok=True, ignore=ignored, copy_function=shutil.copyfile)
    for path in kit.rglob("*"):  # the original may be read-only
        path.chmod(0o755 if path.is_dir() else 0o644)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def tree_bytes(root: Path) -> int:
    """Return the size of the files of a clone that git tracks, or does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.split(b"\0")
    paths = {root / name.decode() for name in names if name}
    return sum(path.stat().st_size for path in paths if path.is_file())


def replace_kit(made: Path, kit: Path) -> None:
    """Put a finished kit in its place. A folder that is not a kit is never replaced."""
    if kit.exists():
        if not (kit / MANIFEST).is_file():
            raise KitError(f"{kit} exists and is not a kit; choose another folder.")
        shutil.rmtree(kit)
    kit.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, kit)


def check(kit: Path, python: str, extras: Iterable[str]) -> None:
    """Step an environment of each kind with another Python and the kit, without site packages of
    the user."""
    tasks = [task for extra, task in CHECKED_TASKS.items() if extra in ("", *extras)]
    variables = {"PYTHONPATH": f"{kit.resolve()}:{ROOT / SOURCES}", "MUJOCO_GL": "disable"}
    process = subprocess.run(
        [python, "-B", "-s", "-c", CHECK, *tasks],  # -B: no bytecode, which would travel too
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise KitError(f"The kit does not work with {python}: {lines[-1]}")
    works = [line for line in process.stdout.splitlines() if line.endswith(" works")]
    print("\n".join(works))


def make(options: argparse.Namespace) -> None:
    """Make the kit, print its content and check its size."""
    extras, target = names(options.extras), Target(options.python, options.machine)
    wanted = requirements_of_project(ROOT / "pyproject.toml", extras)
    wanted = [*map(Requirement, options.require), *wanted]  # the first version that is asked for
    with tempfile.TemporaryDirectory() as folder:
        made, downloads = Path(folder, "kit"), Path(folder, "wheels")
        made.mkdir()
        source = Source(target, downloads, options.constraints, options.wheels)
        wheels = needed_wheels(wanted, names(options.present), source)
        for name, wheel in sorted(wheels.items()):
            before = folder_bytes(made)
            unpack(wheel, made, UNUSED.get(name, NOTHING))
            shown = "-".join(wheel.name.split("-")[:2])
            print(f"{(folder_bytes(made) - before) / MIB:7.2f} MiB  {shown}")
        for added in options.add:
            before = folder_bytes(made)
            add_folder(added, made)
            print(f"{(folder_bytes(made) - before) / MIB:7.2f} MiB  {added.name}")
        about = {"python": target.python, "wheels": sorted(wheel.name for wheel in wheels.values())}
        (made / MANIFEST).write_text(json.dumps(about, indent=1) + "\n")
        check_size(folder_bytes(made), options)
        replace_kit(made, options.kit)


def check_size(size: int, options: argparse.Namespace) -> None:
    """Print the size of the kit, and refuse one that is too large."""
    print(f"{size / MIB:7.2f} MiB  together")
    if options.limit is not None and size > options.limit * MIB:
        raise KitError(
            f"The kit has {size / MIB:.1f} MiB, and {options.limit:g} MiB are allowed; leave out "
            "extras or raise --limit."
        )
    if options.tree_limit is not None:
        travelling = size + tree_bytes(ROOT)
        print(f"{travelling / MIB:7.2f} MiB  with the files of this clone")
        if travelling > options.tree_limit * MIB:
            raise KitError(
                f"The kit and this clone have {travelling / MIB:.1f} MiB, and "
                f"{options.tree_limit:g} MiB are allowed."
            )


def names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def version(text: str) -> str:
    if not re.fullmatch(r"3\.\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version of Python such as 3.12")
    return text


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("kit", type=Path, help="folder to write; an older kit there is replaced")
    made.add_argument("--python", type=version, default="3.12", help="(default: 3.12)")
    made.add_argument("--machine", default="x86_64", help="processor (default: x86_64)")
    made.add_argument("--extras", default="", help="extras of the project, such as mujoco,dmc")
    made.add_argument("--present", default=PRESENT, help=f"packages there (default: {PRESENT})")
    made.add_argument("--require", action="append", default=[], help="a package and its version")
    made.add_argument("--add", type=Path, action="append", default=[], help="a folder of modules")
    made.add_argument("--constraints", type=Path, help="constraints file for pip")
    made.add_argument("--wheels", type=Path, help="take wheels from this folder, not from an index")
    made.add_argument("--limit", type=float, help="largest size of the kit in MiB")
    made.add_argument("--tree-limit", type=float, help="the same with the files of this clone")
    made.add_argument("--check", metavar="PYTHON", help="try the kit with this Python")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        make(options)
        if options.check:
            check(options.kit, options.check, names(options.extras))
    except KitError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
