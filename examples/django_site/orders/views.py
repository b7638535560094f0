"""A shop: an order and the mail about it are written together, or neither is."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from orders.jobs import app, send_mail
from orders.models import Order


class SoldOutError(Exception):
    """There is nothing left of it."""


@csrf_exempt
def create(_request: HttpRequest, item: str) -> JsonResponse:
    try:
        with transaction.atomic():
            order = Order.objects.create(item=item)
            order.mail = send_mail.enqueue_sync(order.pk).id
            order.save()
            take_from_stock(item)  # raises: and neither the order nor the job was ever there
    except SoldOutError:
        return JsonResponse({"detail": "we have no coffee"}, status=409)
    return JsonResponse({"order": order.pk})


def take_from_stock(item: str) -> None:
    if item == "coffee":
        raise SoldOutError


def mail(_request: HttpRequest, number: int) -> JsonResponse:
    order = Order.objects.get(pk=number)
    return JsonResponse({"mail": app.job(order.mail).result_sync(timeout=10)})


def count(_request: HttpRequest) -> JsonResponse:
    stats = app.stats_sync()
    return JsonResponse({"live": stats["live"], "succeeded": stats["succeeded"]})
