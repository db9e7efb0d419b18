"""Makes the packages that a host lacks importable from the archive that pack_packages.py made.

What the host has of its own comes first: its packages fit its PyTorch. Only what cannot be found is unpacked.
"""

import hashlib
import importlib.util
import json
import pathlib
import sys
import tarfile
import tempfile

CHOICES = ("missing", "all", "none")
# What the peers import; anything else is needed only by these.
NEEDED = ("torch", "numpy", "PIL", "safetensors", "transformers", "diffusers")


def found(module):
    """Whether a module can be imported, as far as one can tell without doing so."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def unpack(archive, distributions):
    """Unpacks folders of the archive, unless an earlier run has, and gives the folder that they are in."""
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
                    # They are in order, and what follows need not be decompressed.
                    break
        for name in wanted:
            (folder / f"{name}.unpacked").touch()
    return folder


def make_importable(choice, folder):
    """Adds to the import path what `choice` says of the archive in `folder`: what is missing, all, or none.

    Gives the names of the distributions that were added. Stops with a message where a needed module is still not found.
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
            "Install bench/peers/requirements.txt, or make a bundle with `cargo xtask bundle`, which brings all of them but "
            "torch, numpy and PIL."
        )
    return added


def import_libraries(added):
    """Imports what the peers are made of; stops with a message that names versions where that fails."""
    try:
        import diffusers  # noqa: F401
        import transformers  # noqa: F401
        from diffusers import StableVideoDiffusionPipeline  # noqa: F401
    except Exception as error:  # noqa: BLE001 - whatever a library throws at import is the same news.
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
