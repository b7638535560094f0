"""Naming a task so that another process finds it, and finding it there."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import BadTask, HoldfastError
from holdfast.runtime.executor.wire import Target
from holdfast.tasks.task import Task, module_name

if TYPE_CHECKING:
    from types import ModuleType


class TaskNotImportable(HoldfastError):
    """A child process cannot import the module of a task, or does not find the task there."""

    code = "TASK_NOT_IMPORTABLE"


PREPARE: Final = "holdfast_prepare"
"""The attribute in which a function says what a child has to call before it imports the function's module."""

_loading: Final[list[str]] = []
"""The module that is being imported for a task, in a child."""


def target_of(task: Task[..., Any]) -> Target:
    """Return how another process finds a task."""
    function = task.function
    module, qualname = function.__module__, getattr(function, "__qualname__", task.name)
    if module != "__main__":
        return Target(task.name, module, qualname, prepare=getattr(function, PREPARE, None))
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return Target(task.name, str(spec.name), qualname)
    file = getattr(main, "__file__", None)
    if not file:
        raise TaskNotImportable(
            f"task {task.name!r} cannot run in a child process: it was typed into an interactive session. Put it into a file"
        )
    return Target(task.name, module_name(module), qualname, str(Path(file).absolute()))


def find_task(target: Target) -> Task[..., Any]:
    """Import the module of a task and return the task. Raises `TaskNotImportable`, naming the module and the cause."""
    where = target.file or target.module
    _loading.append(where)
    try:
        if target.prepare is not None:
            name, _, function = target.prepare.partition(":")
            getattr(_imported(name), function)()
        module = _script(target.module, target.file) if target.file else _imported(target.module)
    except BaseException as error:
        cause = f"importing {where} there raised {type(error).__name__}: {error}"
        raise TaskNotImportable(f"task {target.task!r} cannot run in a child process: {cause}") from error
    finally:
        _loading.pop()
    task = _named(module, target)
    if task is None:
        raise TaskNotImportable(
            f"task {target.task!r} cannot run in a child process: {where} has no task {target.qualname!r} when it is imported "
            "there. Declare it at the top level of the module, under the name of its function"
        )
    return task


def refuse_while_loading() -> None:
    """Refuse to start child processes while a child imports a module: each would import it again, without end."""
    if _loading:
        raise BadTask(
            f"{_loading[-1]} starts a worker when it is imported. Put what starts it under: if __name__ == '__main__':"
        )


def _imported(name: str) -> ModuleType:
    if (module := sys.modules.get(name)) is not None:
        return module
    importlib.invalidate_caches()  # the file may be newer than this process
    return importlib.import_module(name)


def _script(name: str, file: str) -> ModuleType:
    """Load a script under the name that its tasks are known by, unless a module of that name is there already."""
    if getattr(known := sys.modules.get(name), "__file__", None) == file and known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name if known is None else f"holdfast_script_{name}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python source file")
    if (loaded := sys.modules.get(spec.name)) is not None:
        return loaded
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _named(module: ModuleType, target: Target) -> Task[..., Any] | None:
    """Find the task where its function stands, or anywhere in the module under its own name."""
    found: Any = module
    for part in target.qualname.split("."):
        found = getattr(found, part, None)
    while found is not None and not isinstance(found, Task):
        found = getattr(found, "__wrapped__", None)
    if isinstance(found, Task) and found.name == target.task:
        return found
    for value in list(vars(module).values()):
        if isinstance(value, Task) and value.name == target.task:
            return value
    return found if isinstance(found, Task) else None
