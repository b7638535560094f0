"""The pages of the media application: titles, the grid that fills, a player, and uploads."""

from holdfast_media.web.pages import media_pages

__all__ = ["media_pages"]
