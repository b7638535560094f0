"""The steps of a transcode, each a function that a job calls: plan, encode chunks and sound, package, master, verify."""

from holdfast_media.transcode.audio import encode_audio
from holdfast_media.transcode.chunk import encode_chunk, encode_chunks
from holdfast_media.transcode.facts import ChunkFacts, PackageFacts, PictureFacts, Verdict
from holdfast_media.transcode.master import write_master
from holdfast_media.transcode.package import package_audio, package_rendition
from holdfast_media.transcode.pictures import pictures
from holdfast_media.transcode.plan import Chunk, Plan, plan, usual_chunk
from holdfast_media.transcode.recipe import audio_recipe, package_recipe, pictures_recipe, recipe
from holdfast_media.transcode.verify import verify

__all__ = [
    "Chunk",
    "ChunkFacts",
    "PackageFacts",
    "PictureFacts",
    "Plan",
    "Verdict",
    "audio_recipe",
    "encode_audio",
    "encode_chunk",
    "encode_chunks",
    "package_audio",
    "package_recipe",
    "package_rendition",
    "pictures",
    "pictures_recipe",
    "plan",
    "recipe",
    "usual_chunk",
    "verify",
    "write_master",
]
