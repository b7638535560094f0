"""The page of limits: the weight of a queue."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.store.port import Role

if TYPE_CHECKING:
    from tests.server.ui.conftest import Place

OVER_MAIL = LimitName(LimitKind.QUEUE, "mail")


def test_the_weight_of_a_queue_is_set_and_its_declared_limit_holds_on(place: Place) -> None:
    place.do(place.store.declare({OVER_MAIL: LimitRule(most=8)}))
    operator = place.having(Role.OPERATOR)
    asked = operator.get("/limits/confirm?kind=queue&name=mail&weight=3").text
    assert "at most 8 at once, weight 3" in asked
    assert operator.post("/limits/set", data={"kind": "queue", "name": "mail", "weight": "3"}).status_code == 303
    (view,) = place.do(place.store.limits())
    assert (view.rule, view.override) == (LimitRule(most=8), LimitRule(weight=3.0))
    page = html.unescape(operator.get("/limits").text)
    assert "at most 8 at once, weight 3" in page
    assert operator.post("/limits/clear", data={"kind": "queue", "name": "mail"}).status_code == 303
    assert place.do(place.store.limits())[0].override is None


def test_who_may_steer_some_queues_sees_the_field_for_their_weight(place: Place) -> None:
    assert 'name="weight"' in place.having(Role.OPERATOR, queues=("mail",)).get("/limits").text
