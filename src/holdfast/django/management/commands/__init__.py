"""The commands of `manage.py`: `holdfast`, `holdfast_worker`, `holdfast_migrate`."""
