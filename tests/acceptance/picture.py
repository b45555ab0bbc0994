"""Run by the Python that has Playwright: a picture of a trace in Phoenix.

    python picture.py URL TEXT CHROMIUM FILE

The picture is taken once TEXT can be seen.
"""

from __future__ import annotations

import os
import sys

from playwright.sync_api import sync_playwright

SIZE = {"width": 1864, "height": 1000}  # the trace takes three quarters of it
# Nothing but the page itself goes over the network.
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]

if __name__ == "__main__":
    url, text, chromium, file = sys.argv[1:]
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own does not work for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*QUIET, *sandbox])
        page = browser.new_page(viewport=SIZE, reduced_motion="reduce")
        page.add_init_script("localStorage.setItem('arize-phoenix-theme', 'light')")
        page.goto(url)
        page.get_by_text(text).first.wait_for()
        page.wait_for_load_state("networkidle")
        page.get_by_role("dialog").screenshot(path=file, animations="disabled")
        browser.close()
