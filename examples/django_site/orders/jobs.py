"""What the shop does later. Found by Django, as `jobs.py` of every installed app is."""

from orders.models import Order

from holdfast.django import DjangoHoldfast

app = DjangoHoldfast()


@app.task(queue="mail")
def send_mail(order: int) -> str:
    item = Order.objects.get(pk=order).item
    Order.objects.filter(pk=order).update(mailed=True)
    return f"mail about order {order} sent: {item}"
