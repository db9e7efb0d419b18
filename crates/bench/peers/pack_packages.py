"""Packs the Python packages that a GPU host without a network may lack into one archive.

    python pack_packages.py --cache FOLDER --out FOLDER

downloads the wheels of requirements-gpu-host.txt for Linux on x86-64 into the cache, and writes `packages.tar.xz`
with a folder for each distribution, and `packages.json` with their versions and modules. One solid archive is less
than half the size of the wheels, since files of a library resemble each other. Earlier archives stay in the cache.
"""

import argparse
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements-gpu-host.txt"
# Compiled packages are for this Python, unless they are built for the stable ABI.
PYTHON = "312"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def download(folder):
    """The wheels of the requirements."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), "-r", str(REQUIREMENTS)]
    command += ["--implementation", "cp", "--python-version", PYTHON]
    for abi in (f"cp{PYTHON}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def modules(names):
    """The top-level modules among a wheel's files."""
    found = set()
    for name in names:
        first, _, rest = name.partition("/")
        if rest == "__init__.py":
            found.add(first)
        elif not rest and first.endswith(".py"):
            found.add(first.removesuffix(".py"))
    # A leading underscore marks a private module.
    return sorted(module for module in found if not module.startswith("_"))


def pack(wheels, archive, index):
    """Writes the archive, distributions sorted, and its index."""
    contents = {}
    with tarfile.open(archive, "w:xz", preset=6) as packed:
        for wheel in wheels:
            distribution, version = wheel.name.split("-")[:2]
            with zipfile.ZipFile(wheel) as files:
                names = sorted(name for name in files.namelist() if not name.endswith("/"))
                contents[distribution] = {"version": version, "modules": modules(names)}
                for name in names:
                    # Without times and owners, so that the same wheels give the same archive.
                    member = tarfile.TarInfo(f"{distribution}/{name}")
                    data = files.read(name)
                    member.size = len(data)
                    packed.addfile(member, io.BytesIO(data))
    index.write_text(json.dumps(contents, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cache", type=pathlib.Path, required=True, help="where wheels and archives are cached")
    arguments.add_argument("--out", type=pathlib.Path, required=True, help="where the archive goes")
    arguments = arguments.parse_args()
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    kept = arguments.cache / key
    if not (kept / "packages.json").is_file():
        shutil.rmtree(kept, ignore_errors=True)
        (kept / "wheels").mkdir(parents=True)
        # The index is written last: a folder without it is incomplete.
        pack(download(kept / "wheels"), kept / "packages.tar.xz", kept / "packages.json")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in ("packages.tar.xz", "packages.json"):
        shutil.copyfile(kept / name, arguments.out / name)
    size = (arguments.out / "packages.tar.xz").stat().st_size
    print(f"{len(json.loads((kept / 'packages.json').read_text()))} packages, {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
