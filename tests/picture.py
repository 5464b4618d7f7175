"""The picture of the page in the README: `python tests/picture.py` makes it anew.

The words and numbers on the picture go into the file as well, as a digest, so that a
test can tell an old picture on any machine, whatever its fonts are.
"""

import hashlib
import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).resolve().parent.parent / "data" / "page.png"
SIZE = {"width": 1280, "height": 720}
KEY = b"Words"


def picture(browser: Any, page: Path) -> bytes:
    """A PNG of the page's first screen, with the digest of its words in it."""
    tab = browser.new_page(viewport=SIZE, color_scheme="light")
    tab.goto(page.as_uri())
    tab.wait_for_selector("#picture .lines path.on")
    words = tab.locator("#top, #stage").all_inner_texts()
    made = tab.screenshot()
    tab.close()
    return with_digest(made, hashlib.sha256("\n".join(words).encode()).hexdigest())


def with_digest(png: bytes, digest: str) -> bytes:
    """The PNG with a text chunk before its end."""
    inside = KEY + b"\0" + digest.encode()
    chunk = struct.pack(">I", len(inside)) + b"tEXt" + inside
    chunk += struct.pack(">I", zlib.crc32(b"tEXt" + inside))
    return png[:-12] + chunk + png[-12:]


def digest_of(png: bytes) -> str:
    """The digest in a PNG of `picture`."""
    start = png.index(b"tEXt" + KEY + b"\0") + len(KEY) + 5
    return png[start : start + 64].decode()


def main() -> None:
    from opened import FLAGS
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(PICTURE.parent.parent))
    from steps.walk.command import parser, settings
    from steps.walk.page import write_page

    values, _ = settings(parser("picture", "").parse_args([]))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        write_page(values, str(page))
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        PICTURE.write_bytes(picture(browser, page))
        browser.close()


if __name__ == "__main__":
    main()
