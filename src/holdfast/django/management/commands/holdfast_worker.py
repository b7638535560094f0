"""`manage.py holdfast_worker`: run this project's jobs."""

from holdfast.django.commands import PassingOn


class Command(PassingOn):
    """Run a worker, with the options of `holdfast worker`."""

    help = "Run jobs in this process, until it is asked to stop. Options: those of holdfast worker (--help)."
    first = ("worker",)
