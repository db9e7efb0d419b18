"""Packs the Python packages that a GPU host without a network may lack into one archive.

    python pack_packages.py --cache FOLDER --out FOLDER

downloads the wheels of requirements-gpu-host.txt for Linux on x86-64 into the cache, and writes `packages.tar.xz` with a
folder for each distribution, and `packages.json` with their versions and modules. One solid archive is less than half of the
wheels together, since the networks of a library repeat each other. What was packed before stays in the cache.
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
# Packages with compiled parts are for this Python, unless they are built for the stable ABI.
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
    """The top-level modules among a wheel's files, without those that are another's inside."""
    found = set()
    for name in names:
        first, _, rest = name.partition("/")
        if rest == "__init__.py":
            found.add(first)
        elif not rest and first.endswith(".py"):
            found.add(first.removesuffix(".py"))
    # A leading underscore is an implementation's own business.
    return sorted(module for module in found if not module.startswith("_"))


def pack(wheels, archive, index):
    """Writes the archive, distributions in order, and what it holds."""
    contents = {}
    with tarfile.open(archive, "w:xz", preset=6) as packed:
        for wheel in wheels:
            distribution, version = wheel.name.split("-")[:2]
            with zipfile.ZipFile(wheel) as files:
                names = sorted(name for name in files.namelist() if not name.endswith("/"))
                contents[distribution] = {"version": version, "modules": modules(names)}
                for name in names:
                    # Times and owners are left out, so that the same wheels give the same archive.
                    member = tarfile.TarInfo(f"{distribution}/{name}")
                    data = files.read(name)
                    member.size = len(data)
                    packed.addfile(member, io.BytesIO(data))
    index.write_text(json.dumps(contents, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cache", type=pathlib.Path, required=True, help="where wheels and archives are kept")
    arguments.add_argument("--out", type=pathlib.Path, required=True, help="where the archive goes")
    arguments = arguments.parse_args()
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    kept = arguments.cache / key
    if not (kept / "packages.json").is_file():
        shutil.rmtree(kept, ignore_errors=True)
        (kept / "wheels").mkdir(parents=True)
        # The index is written last: a folder without it was left half-made.
        pack(download(kept / "wheels"), kept / "packages.tar.xz", kept / "packages.json")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in ("packages.tar.xz", "packages.json"):
        shutil.copyfile(kept / name, arguments.out / name)
    size = (arguments.out / "packages.tar.xz").stat().st_size
    print(f"{len(json.loads((kept / 'packages.json').read_text()))} packages, {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
