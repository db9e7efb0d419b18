"""Packages for a GPU host that lacks some of them and has no network."""


def add_packages(folder):
    """Makes the packages in `folder`, written by pack_packages.py, importable if the host has none of its own.

    The module that unpacks them belongs to the benchmarks' peers; run_on_host.sh puts their folder on PYTHONPATH.
    """
    if folder is None:
        return
    import host_packages

    host_packages.import_libraries(host_packages.make_importable("missing", folder))
