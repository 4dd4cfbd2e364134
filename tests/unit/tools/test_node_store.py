"""Image stores of containerd that are kept from one start of a node to the next."""

import os

import pytest

import node_store


@pytest.fixture
def store(tmp_path):
    """A store with a file of an image, a database, and a database in an image."""
    folder = tmp_path / "stores" / "0123"
    for name in ("blobs/sha256/abc", "meta.db", "snapshots/1/fs/home/app.db"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "snapshots/1/fs/home").chmod(0o700)
    return folder


def test_layers_are_left_to_mounts_and_databases_are_copies(store, tmp_path):
    target = tmp_path / "containerd"
    assert [str(layer) for layer in node_store.prepare_folder(store, target)] == ["snapshots/1"]
    assert list((target / "snapshots/1").iterdir()) == []
    assert (target / "blobs/sha256/abc").samefile(store / "blobs/sha256/abc")
    assert (target / "meta.db").read_text() == "meta.db"
    assert not (target / "meta.db").samefile(store / "meta.db")


def test_on_another_disk_everything_is_a_copy(store, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", fail)
    node_store.prepare_folder(store, tmp_path / "containerd")
    assert (tmp_path / "containerd/blobs/sha256/abc").read_text() == "blobs/sha256/abc"


def test_a_folder_becomes_a_store_whose_databases_it_does_not_share(store, tmp_path):
    made = store.with_name("4567")
    node_store.keep(store, made)
    for name, is_shared in (("blobs/sha256/abc", True), ("meta.db", False), ("snapshots/1/fs/home/app.db", True)):
        assert (made / name).samefile(store / name) is is_shared, name
    assert (made / "snapshots/1/fs/home").stat().st_mode & 0o777 == 0o700, "folders of an image keep their modes"
    assert sorted(path.name for path in made.parent.iterdir()) == ["0123", "4567"]


def test_of_two_nodes_that_make_the_same_store_one_does(store, tmp_path):
    (tmp_path / "containerd" / "blobs").mkdir(parents=True)
    node_store.keep(tmp_path / "containerd", store)
    assert (store / "meta.db").exists()
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_the_stores_that_were_used_last_stay(store, tmp_path):
    for age, name in enumerate(("newest", "newer", "old")):
        (store.parent / name).mkdir()
        os.utime(store.parent / name, (2e9 - age, 2e9 - age))
    node_store.keep(tmp_path / "none", store)
    assert sorted(path.name for path in store.parent.iterdir()) == ["newer", "newest"]


def test_another_image_and_another_containerd_have_another_store(tmp_path):
    archive = tmp_path / "ray.tar"
    archive.write_text("one")
    first = node_store.store_of(tmp_path, [archive], "overlayfs", tmp_path / "debian-1")
    assert node_store.store_of(tmp_path, [archive], "overlayfs", tmp_path / "debian-1") == first
    assert node_store.store_of(tmp_path, [archive], "native", tmp_path / "debian-1") != first
    assert node_store.store_of(tmp_path, [archive], "overlayfs", tmp_path / "debian-2") != first
    archive.write_text("three")
    assert node_store.store_of(tmp_path, [archive], "overlayfs", tmp_path / "debian-1") != first
