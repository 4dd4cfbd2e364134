"""Watches: where they start, what they show, how they end."""

import pytest

from integration.probe.client import MERGE, Client


def essential(events: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without repeated MODIFIED, which schedulers and deletion may add."""
    return [event for index, event in enumerate(events) if event[0] != "MODIFIED" or event != events[index - 1]]


def test_from_a_lists_version_only_new_events_come(client: Client) -> None:
    client.new_pod("before")
    watch = client.watch(client.pods, resourceVersion=client.version(client.pods))
    client.new_pod("one")
    client.patch(f"{client.pods}/one", {"metadata": {"labels": {"a": "b"}}})
    client.delete(f"{client.pods}/one", {"gracePeriodSeconds": 0})
    seen = watch.until("DELETED", "one")
    assert essential(seen) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    watch.close()


def test_events_after_an_old_version_are_replayed(client: Client) -> None:
    version = client.new_cluster("old").metadata["resourceVersion"]
    for text in ("a", "b"):
        client.patch(f"{client.clusters}/old", {"spec": {"rayVersion": text}})
    watch = client.watch(client.clusters, resourceVersion=version)
    events = watch.take(2)
    assert [(e["type"], e["object"]["spec"]["rayVersion"]) for e in events] == [("MODIFIED", "a"), ("MODIFIED", "b")]
    watch.close()


@pytest.mark.parametrize("spelling", ["true", "1"])
def test_without_a_version_what_is_there_comes_as_added(client: Client, spelling: str) -> None:
    client.new_pod("there")
    watch = client.watch(client.pods, watch=spelling)
    assert watch.until("ADDED", "there") == [("ADDED", "there")]
    client.new_pod("live")
    assert watch.until("ADDED", "live")[-1] == ("ADDED", "live")
    watch.close()


def test_bookmarks_come_before_the_time_is_up_and_then_the_stream_ends(client: Client) -> None:
    """They tell a watch how far others have gone on: kube-apiserver sends none if no pod has changed since."""
    client.new_pod("one")
    version = client.version(client.pods)
    watch = client.watch(
        client.pods, resourceVersion=version, labelSelector="none=such", allowWatchBookmarks="true", timeoutSeconds=3
    )
    client.new_pod("two")
    events = watch.rest()
    marks = [event["object"] for event in events if event["type"] == "BOOKMARK"]
    assert marks, "no bookmark within the time"
    assert marks[0]["kind"] == "Pod"
    assert int(marks[0]["metadata"]["resourceVersion"]) > int(version)


def test_no_bookmarks_unless_requested(client: Client) -> None:
    watch = client.watch(client.pods, resourceVersion=client.version(client.pods), timeoutSeconds=1)
    assert [event["type"] for event in watch.rest()] == []


def test_a_streaming_list_ends_its_first_part_with_a_bookmark(client: Client) -> None:
    client.new_pod("one")
    watch = client.watch(
        client.pods, allowWatchBookmarks="true", sendInitialEvents="true", resourceVersionMatch="NotOlderThan"
    )
    added, mark = watch.take(2)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "one")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    watch.close()


def test_a_version_that_is_too_old_is_gone_unless_it_is_still_known(client: Client) -> None:
    client.new_pod("one")
    watch = client.watch(client.pods, resourceVersion="1", timeoutSeconds=4)
    if watch.status == 200:
        event = watch.next()
        assert event is not None
        if event["type"] == "ADDED":  # a server that remembers everything since it began
            assert event["object"]["metadata"]["name"] == "one"
        else:
            assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    else:
        assert watch.status == 410
    watch.close()


def test_leaving_a_selection_is_a_deletion(client: Client) -> None:
    version = client.version(client.pods)
    watch = client.watch(client.pods, labelSelector="kept=1", resourceVersion=version)
    client.new_pod("in", labels={"kept": "1"})
    client.new_pod("out", labels={"kept": "2"})
    client.patch(f"{client.pods}/in", {"metadata": {"labels": {"kept": "3"}}}, MERGE)
    client.patch(f"{client.pods}/out", {"metadata": {"labels": {"kept": "1"}}}, MERGE)
    seen = essential(watch.until("ADDED", "out"))
    assert [event for event in seen if event[0] != "MODIFIED"] == [("ADDED", "in"), ("DELETED", "in"), ("ADDED", "out")]
    watch.close()


def test_one_object_can_be_watched_by_name(client: Client) -> None:
    version = client.version(client.pods)
    watch = client.watch(client.pods, fieldSelector="metadata.name=me", resourceVersion=version)
    client.new_pod("other")
    client.new_pod("me")
    assert watch.until("ADDED", "me") == [("ADDED", "me")]
    watch.close()
