"""Signals that ask a process to end."""

import signal


def ending_signals() -> list[int]:
    """Return those of SIGTERM and SIGHUP (the terminal has ended) that exist and are not ignored, as with `nohup`."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
