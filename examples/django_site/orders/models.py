"""What the shop stores."""

from django.db import models


class Order(models.Model):
    """An order, and the job that sends the mail about it."""

    item = models.CharField(max_length=100)
    mail = models.UUIDField(null=True)
    mailed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.pk}: {self.item}"
