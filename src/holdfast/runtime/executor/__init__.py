"""How functions are run: on the event loop, in threads, in processes, or as programs."""
