"""When a file is complete."""

from __future__ import annotations

from holdfast.watch.files import Version
from holdfast.watch.settling import Settling

SMALL, LARGE = Version(1, 10, 100), Version(1, 20, 200)


def test_a_file_is_complete_when_it_stayed_the_same_for_the_settle_time() -> None:
    settling = Settling(2.0)
    assert settling.look(0.0, {"a": SMALL}) == []
    assert settling.look(1.9, {"a": SMALL}) == []
    assert settling.look(2.0, {"a": SMALL}) == ["a"]


def test_every_change_makes_it_wait_anew() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {"a": SMALL})
    assert settling.look(1.9, {"a": LARGE}) == []
    assert settling.look(3.8, {"a": LARGE}) == []
    assert settling.look(3.9, {"a": LARGE}) == ["a"]


def test_the_first_look_takes_nothing_however_old_the_file_says_it_is() -> None:
    assert Settling(2.0).look(1e9, {"a": Version(1, 10, 0)}) == []


def test_a_file_that_went_and_came_back_waits_anew() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {"a": SMALL})
    settling.look(1.0, {})
    assert settling.look(2.5, {"a": SMALL}) == []


def test_a_partial_file_that_was_renamed_as_it_was_need_not_wait() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {LARGE})
    assert settling.look(0.1, {"a": LARGE}) == ["a"]


def test_a_partial_file_that_has_changed_since_waits_for_its_number_may_be_another_files_by_now() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {SMALL})
    assert settling.look(0.1, {"a": LARGE}) == []


def test_a_second_name_of_a_file_that_is_still_partial_waits() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {LARGE})
    assert settling.look(0.1, {"a": LARGE}, {LARGE}) == []


def test_it_says_when_the_next_one_may_be_complete() -> None:
    settling = Settling(2.0)
    assert settling.next_at() is None
    settling.look(1.0, {"a": SMALL})
    settling.look(2.0, {"a": SMALL, "b": LARGE})
    assert settling.next_at() == 3.0
    settling.forget("a")
    assert settling.next_at() == 4.0
    assert settling.waiting == 1
