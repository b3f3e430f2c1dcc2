"""The site's icon: a target, drawn here so that no picture has to be kept."""

from __future__ import annotations

import io


def icon(size: int) -> bytes:
    """PNG; what counts lies in the middle four fifths, as a mask may cut off the rest."""
    from PIL import Image, ImageDraw

    fine = 4 * size  # drawn larger, for smooth edges
    image = Image.new("RGB", (fine, fine), "#14603f")
    draw = ImageDraw.Draw(image)
    for share, colour in ((0.34, "#ffffff"), (0.25, "#14603f"), (0.16, "#ffffff"), (0.07, "#14603f")):
        reach = share * fine
        draw.ellipse((fine / 2 - reach, fine / 2 - reach, fine / 2 + reach, fine / 2 + reach), fill=colour)
    out = io.BytesIO()
    image.resize((size, size), Image.Resampling.LANCZOS).quantize(64).save(out, "PNG", optimize=True)
    return out.getvalue()
