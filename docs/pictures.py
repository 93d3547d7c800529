"""Take the pictures of pages in the documentation from a home whose data set `demo` has been run.

python -m docs.pictures var
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PICTURES = {"report.png": ("demo/report/index.html", (1400, 1010))}  # file: page in the home; width, height in pixels
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def take_picture(page: Path, file: Path, size: tuple[int, int]) -> None:
    """Write the first `size` pixels of a page, width and height, as PNG, with a headless Chromium.

    Raises:
        FileNotFoundError: the page or Chromium does not exist.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise FileNotFoundError(f"none of {', '.join(BROWSERS)} is on the PATH; install Chromium")
    if not page.is_file():
        raise FileNotFoundError(
            f"{page} does not exist; run `python -m flows.backfill --dataset demo --home DIR` first"
        )
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size={size[0]},{size[1]}", f"--screenshot={file.resolve()}", page.resolve().as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    """Take every picture."""
    parser = argparse.ArgumentParser(description="Take the documentation's pictures from a home with the demo.")
    parser.add_argument("home", type=Path, help="home in which the data set demo has been run")
    home = parser.parse_args().home
    for name, (page, size) in PICTURES.items():
        try:
            take_picture(home / page, FOLDER / name, size)
        except FileNotFoundError as error:
            sys.exit(f"docs.pictures: {error}")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
