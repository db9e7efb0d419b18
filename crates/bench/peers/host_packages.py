"""Makes packages that a host lacks importable from the archive that pack_packages.py makes.

    python host_packages.py        prints the versions of what is found

The host's own packages come first, since they fit its PyTorch. Only missing packages are unpacked.
"""

import hashlib
import importlib.util
import json
import pathlib
import sys
import tarfile
import tempfile

CHOICES = ("missing", "all", "none")
# What the peers import; other packages are only dependencies of these.
NEEDED = ("torch", "numpy", "PIL", "safetensors", "transformers", "diffusers")


def found(module):
    """Whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def unpack(archive, distributions):
    """Unpacks folders of the archive, unless an earlier run has, and returns the folder that they are in."""
    key = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    folder = pathlib.Path(tempfile.gettempdir()) / f"kinora-peer-packages-{key}"
    wanted = {name for name in distributions if not (folder / f"{name}.unpacked").exists()}
    if wanted:
        folder.mkdir(exist_ok=True)
        with tarfile.open(archive) as packed:
            for member in packed:
                distribution = member.name.split("/")[0]
                if distribution in wanted:
                    packed.extract(member, folder, filter="data")
                elif distribution > max(wanted):
                    # They are sorted, so that the rest need not be decompressed.
                    break
        for name in wanted:
            (folder / f"{name}.unpacked").touch()
    return folder


def make_importable(choice, folder):
    """Adds packages of the archive in `folder` to the import path: those that are missing, all, or none.

    Returns the names of the added distributions. Exits with a message if a module that is needed is still not found.
    """
    index, archive = folder / "packages.json", folder / "packages.tar.xz"
    added = []
    if choice != "none" and index.is_file():
        contents = json.loads(index.read_text(encoding="utf-8"))
        added = [
            name
            for name, entry in sorted(contents.items())
            if choice == "all" or not all(found(module) for module in entry["modules"])
        ]
        if added:
            unpacked = unpack(archive, added)
            paths = [str(unpacked / name) for name in added]
            sys.path[:] = paths + sys.path if choice == "all" else sys.path + paths
            importlib.invalidate_caches()
    missing = [module for module in NEEDED if not found(module)]
    if missing:
        where = f"nor are they in {archive}" if index.is_file() else f"and there is no archive of packages at {archive}"
        raise SystemExit(
            f"These Python modules are not installed for {sys.executable}, {where}: {', '.join(missing)}.\n"
            "Install crates/bench/peers/requirements.txt, or make a bundle with `cargo xtask bundle`, which has all of "
            "them but torch, numpy and PIL."
        )
    return added


def import_libraries(added):
    """Imports the libraries; exits with a message that names their versions if that fails."""
    try:
        import diffusers  # noqa: F401
        import transformers  # noqa: F401
        from diffusers import StableVideoDiffusionPipeline  # noqa: F401
    except Exception as error:
        from importlib import metadata

        versions = []
        for name in ("torch", "diffusers", "transformers", "huggingface_hub", "tokenizers", "safetensors", "numpy"):
            try:
                versions.append(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                versions.append(f"{name} without metadata")
        raise SystemExit(
            f"diffusers cannot be imported: {type(error).__name__}: {error}\n"
            f"Found: {', '.join(versions)}; from the bundle: {', '.join(added) or 'nothing'}.\n"
            "If the host's own packages do not fit each other, `--packages all` uses the bundle's instead."
        ) from error


def main():
    print(sys.version.split()[0], sys.executable)
    added = make_importable("missing", pathlib.Path(__file__).resolve().parent)
    print("packages from the bundle:", ", ".join(added) or "none")
    import_libraries(added)
    import diffusers
    import torch
    import transformers

    print(f"torch {torch.__version__}, diffusers {diffusers.__version__}, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
