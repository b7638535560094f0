"""`manage.py holdfast …`: every command of Holdfast, on the app and the database of this project."""

from holdfast.django.commands import PassingOn


class Command(PassingOn):
    """Pass on to Holdfast's command line."""

    help = "Durable jobs: jobs ls, jobs why, queues pause, top, … (all commands of holdfast, on this project's database)."
    checked = False  # a look at the jobs must not depend on the health of everything else
