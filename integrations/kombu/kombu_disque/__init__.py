"""Disque as a broker for Kombu and Celery.

Importing this package makes URLs that begin with `disque://` known to Kombu.
"""

from kombu.transport import TRANSPORT_ALIASES

__version__ = "0.1.0"

TRANSPORT_ALIASES.setdefault("disque", "kombu_disque.transport:Transport")
