"""A region host: what it is made of (`host`), and how it comes to run (`starting`)."""

from delivery.app.starting import serve

__all__ = ["serve"]
