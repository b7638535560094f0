"""When a file is complete."""

from __future__ import annotations

from holdfast.watch.files import Sighting
from holdfast.watch.settling import Settling

SMALL, LARGE = Sighting(1, 10, 100, 100), Sighting(1, 20, 200, 200)


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


def test_a_file_that_is_numbered_anew_at_every_look_is_complete_all_the_same() -> None:
    settling = Settling(2.0)
    assert [settling.look(number, {"a": SMALL._replace(inode=number)}) for number in range(3)] == [[], [], ["a"]]


def test_another_file_of_the_same_size_and_time_waits_anew_also_under_the_same_number() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {"a": SMALL})
    assert settling.look(2.0, {"a": SMALL._replace(changed=101)}) == []


def test_one_that_was_complete_and_not_taken_may_wait_anew() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {"a": SMALL})
    settling.anew("a", 2.0)
    assert settling.look(3.9, {"a": SMALL}) == []
    assert settling.look(4.0, {"a": SMALL}) == ["a"]


def test_the_first_look_takes_nothing_however_old_the_file_says_it_is() -> None:
    assert Settling(2.0).look(1e9, {"a": Sighting(1, 10, 0, 0)}) == []


def test_a_file_that_went_and_came_back_waits_anew() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {"a": SMALL})
    settling.look(1.0, {})
    assert settling.look(2.5, {"a": SMALL}) == []


def test_a_partial_file_that_was_renamed_as_it_was_need_not_wait() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {LARGE.body})
    assert settling.look(0.1, {"a": LARGE}) == ["a"]


def test_a_partial_file_that_has_changed_since_waits_for_its_number_may_be_another_files_by_now() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {SMALL.body})
    assert settling.look(0.1, {"a": LARGE}) == []


def test_a_partial_file_that_was_renamed_need_not_wait_although_the_rename_is_a_change_of_it() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {LARGE.body})
    assert settling.look(0.1, {"a": LARGE._replace(changed=999)}) == ["a"]


def test_a_second_name_of_a_file_that_is_still_partial_waits() -> None:
    settling = Settling(2.0)
    settling.look(0.0, {}, {LARGE.body})
    assert settling.look(0.1, {"a": LARGE}, {LARGE.body}) == []


def test_it_says_when_the_next_one_may_be_complete() -> None:
    settling = Settling(2.0)
    assert settling.next_at() is None
    settling.look(1.0, {"a": SMALL})
    settling.look(2.0, {"a": SMALL, "b": LARGE})
    assert settling.next_at() == 3.0
    settling.forget("a")
    assert settling.next_at() == 4.0
    assert settling.waiting == 1
